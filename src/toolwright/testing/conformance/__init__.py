"""The conformance suite: the duties of every store, every controller and every model as cases that anybody can run, one
for each promise.

A case about a store needs a `Database`: something that several owners can open, and where one can be killed. Those
about session services and about work in the background are for stores that have `services`, and collections of their
own. A case about neighbours needs two databases in one place, and one about lost connections a `RemoteDatabase`. One
about a controller needs
`Controllers` in the same way, and one about a call journal a runtime that is open. Cases about a model need
`Models`, which make it answer as a case wants. How to run them is in `docs/writing-a-store.md` and `docs/providers.md`.
Nothing here needs pytest.
"""

from toolwright.testing.conformance.any_text import TEXT
from toolwright.testing.conformance.any_text_in_services import SERVICE_TEXT
from toolwright.testing.conformance.archives import ARCHIVES
from toolwright.testing.conformance.attachments import ATTACHMENTS
from toolwright.testing.conformance.background import CASE_CLOCK
from toolwright.testing.conformance.background_runs import RUNS
from toolwright.testing.conformance.call_history import HISTORY
from toolwright.testing.conformance.call_journals import CALL_JOURNALS, CallJournalCase
from toolwright.testing.conformance.calls import CALLS
from toolwright.testing.conformance.cases import Case, Database
from toolwright.testing.conformance.claims import CLAIMS
from toolwright.testing.conformance.connections import CONNECTIONS
from toolwright.testing.conformance.controllers import ControllerCase, Controllers, OverStore
from toolwright.testing.conformance.drivers import DRIVER_CASES, DriverCase, DriverPlace
from toolwright.testing.conformance.effects import EFFECTS
from toolwright.testing.conformance.endings import ENDINGS
from toolwright.testing.conformance.event_log import EVENT_LOG
from toolwright.testing.conformance.fair_shares import SHARES
from toolwright.testing.conformance.files import FILES
from toolwright.testing.conformance.firings import FIRINGS
from toolwright.testing.conformance.key_values import KEY_VALUES
from toolwright.testing.conformance.leases import LEASES
from toolwright.testing.conformance.limits import LIMITS
from toolwright.testing.conformance.lost_connections import LOST_CONNECTIONS, RemoteDatabase
from toolwright.testing.conformance.memory import InMemory
from toolwright.testing.conformance.messages import MESSAGES
from toolwright.testing.conformance.model import play_random_verbs
from toolwright.testing.conformance.models import MODEL_CASES, ModelCase, Models
from toolwright.testing.conformance.neighbours import NEIGHBOURS, SERVICE_NEIGHBOURS, NeighbourCase
from toolwright.testing.conformance.news import NEWS, SERVICE_NEWS
from toolwright.testing.conformance.owners import OWNERS
from toolwright.testing.conformance.repeated_verbs import REPEATED
from toolwright.testing.conformance.replay import REPLAY
from toolwright.testing.conformance.requests import REQUEST_OWNERS, REQUESTS
from toolwright.testing.conformance.resources import RESOURCES
from toolwright.testing.conformance.run_events import RUN_EVENTS
from toolwright.testing.conformance.schedules import SCHEDULES
from toolwright.testing.conformance.secrets import SECRETS
from toolwright.testing.conformance.services_and_calls import SERVICES_AND_CALLS
from toolwright.testing.conformance.session_wide import SESSION_WIDE
from toolwright.testing.conformance.signals import SIGNALS
from toolwright.testing.conformance.takeovers import TAKEOVERS
from toolwright.testing.conformance.time_and_waits import TIME_AND_WAITS
from toolwright.testing.conformance.tokens import TOKENS
from toolwright.testing.conformance.triggers import TRIGGERS
from toolwright.testing.conformance.turns import STORED_TURNS, TURN_OWNERS, TURNS
from toolwright.testing.conformance.waits import WAITS

CASES: tuple[Case[Database], ...] = (
    *CALLS,
    *OWNERS,
    *CLAIMS,
    *EFFECTS,
    *REPEATED,
    *WAITS,
    *SESSION_WIDE,
    *SIGNALS,
    *TEXT,
    *NEWS,
)
"""All cases for stores of calls."""
BACKGROUND_CASES: tuple[Case[Database], ...] = (
    *RUNS,
    *LIMITS,
    *LEASES,
    *SHARES,
    *RUN_EVENTS,
    *ENDINGS,
    *TAKEOVERS,
    *SCHEDULES,
    *FIRINGS,
    *TRIGGERS,
)
"""All cases for stores that have background runs, too: stores with `services`."""
SERVICE_CASES: tuple[Case[Database], ...] = (
    *FILES,
    *KEY_VALUES,
    *MESSAGES,
    *SECRETS,
    *ATTACHMENTS,
    *RESOURCES,
    *CONNECTIONS,
    *ARCHIVES,
    *TOKENS,
    *REQUESTS,
    *SERVICE_TEXT,
)
"""All cases for the session services of a store that has `services`, and for its tokens and requests."""
WHOLE_STORE_CASES: tuple[Case[Database], ...] = (*EVENT_LOG, *HISTORY, *SERVICES_AND_CALLS, *SERVICE_NEWS)
"""All cases that need calls and services in one database: the event log, the history of calls, and marks of calls."""
TURN_CASES: tuple[Case[Database], ...] = (*TURNS, *STORED_TURNS, *TURN_OWNERS)
"""All cases for the turns of a store that has `services`."""
CONTROLLER_CASES: tuple[ControllerCase, ...] = (*REPLAY, *TIME_AND_WAITS)
"""All that are about controllers."""

__all__ = [
    "ARCHIVES",
    "ATTACHMENTS",
    "BACKGROUND_CASES",
    "CALLS",
    "CALL_JOURNALS",
    "CASES",
    "CASE_CLOCK",
    "CLAIMS",
    "CONNECTIONS",
    "CONTROLLER_CASES",
    "DRIVER_CASES",
    "EFFECTS",
    "ENDINGS",
    "EVENT_LOG",
    "FILES",
    "FIRINGS",
    "HISTORY",
    "KEY_VALUES",
    "LEASES",
    "LIMITS",
    "LOST_CONNECTIONS",
    "MESSAGES",
    "MODEL_CASES",
    "NEIGHBOURS",
    "NEWS",
    "OWNERS",
    "REPEATED",
    "REPLAY",
    "REQUESTS",
    "REQUEST_OWNERS",
    "RESOURCES",
    "RUNS",
    "RUN_EVENTS",
    "SCHEDULES",
    "SECRETS",
    "SERVICES_AND_CALLS",
    "SERVICE_CASES",
    "SERVICE_NEIGHBOURS",
    "SERVICE_NEWS",
    "SERVICE_TEXT",
    "SESSION_WIDE",
    "SHARES",
    "SIGNALS",
    "STORED_TURNS",
    "TAKEOVERS",
    "TEXT",
    "TIME_AND_WAITS",
    "TOKENS",
    "TRIGGERS",
    "TURNS",
    "TURN_CASES",
    "TURN_OWNERS",
    "WAITS",
    "WHOLE_STORE_CASES",
    "CallJournalCase",
    "Case",
    "ControllerCase",
    "Controllers",
    "Database",
    "DriverCase",
    "DriverPlace",
    "InMemory",
    "ModelCase",
    "Models",
    "NeighbourCase",
    "OverStore",
    "RemoteDatabase",
    "play_random_verbs",
]
