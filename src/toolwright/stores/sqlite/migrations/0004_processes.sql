-- Work that outlives the batch. `state` is "held" for what waits until something of its session or its schedule ends,
-- "queued" for what any worker may take; then "running" or "waiting", under a lease; and one that nothing follows.
-- `token` rises with each worker. Of the output, the head and the tail are kept among the events.
CREATE TABLE processes (
    id            TEXT    NOT NULL PRIMARY KEY,
    session       TEXT    NOT NULL,
    parent        TEXT,
    schedule      TEXT,
    alone         INTEGER NOT NULL DEFAULT 0,
    tool          TEXT    NOT NULL,
    arguments     BLOB    NOT NULL,
    title         TEXT    NOT NULL,
    options       BLOB    NOT NULL,
    provenance    BLOB    NOT NULL,
    state         TEXT    NOT NULL,
    status_text   TEXT    NOT NULL,
    created_at    REAL    NOT NULL,
    started_at    REAL,
    ended_at      REAL,
    deadline      REAL,
    worker        TEXT,
    token         INTEGER NOT NULL DEFAULT 0,
    lease_until   REAL,
    attempts      INTEGER NOT NULL DEFAULT 0,
    crashes       INTEGER NOT NULL DEFAULT 0,
    cancel_reason TEXT,
    progress      BLOB,
    tail          TEXT    NOT NULL DEFAULT '',
    log_chars     INTEGER NOT NULL DEFAULT 0,
    tail_first    INTEGER,
    tail_chars    INTEGER NOT NULL DEFAULT 0,
    outcome       BLOB,
    last_event    INTEGER NOT NULL DEFAULT 0,
    last_progress INTEGER,
    changed       INTEGER NOT NULL
);

CREATE INDEX queued_processes ON processes (created_at) WHERE state = 'queued';
CREATE INDEX held_processes ON processes (session, created_at) WHERE state = 'held';
CREATE INDEX leased_processes ON processes (lease_until) WHERE state IN ('running', 'waiting');
CREATE INDEX active_processes ON processes (session) WHERE state IN ('queued', 'running', 'waiting');
CREATE INDEX processes_of_session ON processes (session, created_at);
CREATE INDEX processes_of_parent ON processes (parent) WHERE parent IS NOT NULL;
CREATE INDEX unfinished_of_schedule ON processes (schedule, created_at)
    WHERE schedule IS NOT NULL AND state IN ('held', 'queued', 'running', 'waiting');
CREATE INDEX changed_processes ON processes (changed);

-- The events of runs. An event with a key is appended once.
CREATE TABLE process_events (
    process TEXT    NOT NULL,
    number  INTEGER NOT NULL,
    type    TEXT    NOT NULL,
    at      REAL    NOT NULL,
    payload BLOB    NOT NULL,
    key     TEXT,
    PRIMARY KEY (process, number)
) WITHOUT ROWID;

CREATE UNIQUE INDEX keyed_events ON process_events (process, key) WHERE key IS NOT NULL;

-- Sessions that may await, cancel and signal a run of another session.
CREATE TABLE process_grants (
    process TEXT NOT NULL,
    session TEXT NOT NULL,
    PRIMARY KEY (process, session)
) WITHOUT ROWID;

-- Workers by their names, with how many runs each has at most and until when it counts as alive.
CREATE TABLE workers (
    name     TEXT    NOT NULL PRIMARY KEY,
    owner    TEXT,
    capacity INTEGER NOT NULL,
    until    REAL    NOT NULL
) WITHOUT ROWID;

-- When a tool is to be started: once at an instant, or again and again. `next_at` only rises.
CREATE TABLE schedules (
    id          TEXT    NOT NULL PRIMARY KEY,
    session     TEXT    NOT NULL,
    tool        TEXT    NOT NULL,
    arguments   BLOB    NOT NULL,
    title       TEXT    NOT NULL,
    options     BLOB    NOT NULL,
    timing      BLOB    NOT NULL,
    misfire     TEXT    NOT NULL,
    overlap     TEXT    NOT NULL,
    state       TEXT    NOT NULL,
    next_at     REAL,
    created_at  REAL    NOT NULL,
    provenance  BLOB    NOT NULL
);

CREATE INDEX due_schedules ON schedules (next_at, id) WHERE state = 'active';
CREATE INDEX live_schedules ON schedules (session) WHERE state IN ('active', 'paused');
CREATE INDEX schedules_of_session ON schedules (session, created_at);

-- What each schedule did for each instant: once, whoever was first.
CREATE TABLE firings (
    schedule TEXT NOT NULL,
    instant  REAL NOT NULL,
    at       REAL NOT NULL,
    what     TEXT NOT NULL,
    process  TEXT,
    PRIMARY KEY (schedule, instant, what)
) WITHOUT ROWID;

-- What starts a run when something occurs: the topic, and what must be in its payload.
CREATE TABLE triggers (
    session    TEXT NOT NULL,
    id         TEXT NOT NULL,
    topic      TEXT NOT NULL,
    pattern    BLOB NOT NULL,
    tool       TEXT NOT NULL,
    arguments  BLOB NOT NULL,
    payload_as TEXT,
    title      TEXT NOT NULL,
    options    BLOB NOT NULL,
    created_at REAL NOT NULL,
    PRIMARY KEY (session, id)
) WITHOUT ROWID;

CREATE INDEX triggers_of_topic ON triggers (topic);

-- What occurred, once for each key, and what it started. Of the payload, only the digest is kept.
CREATE TABLE occurrences (
    topic   TEXT NOT NULL,
    key     TEXT NOT NULL,
    digest  TEXT NOT NULL,
    at      REAL NOT NULL,
    started BLOB NOT NULL,
    PRIMARY KEY (topic, key)
) WITHOUT ROWID;

INSERT INTO meta VALUES ('changed', 0);
