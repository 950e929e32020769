"""Tools in a Temporal worker that a team has already: one activity for all of them, with the crash policy of each.

    temporal server start-dev
    python examples/temporal_team.py 127.0.0.1:7233 agent.db

The workflow is an agent with a scripted model: it looks at an account and refunds an order, in one batch of calls. Kill
the program while it runs and start it again with the same arguments: the look is repeated, and the refund never is.
"""

import asyncio
import sys
from typing import Any

from temporalio import workflow
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.worker import Worker

from toolwright import App, ToolContext, tool
from toolwright.adapters.temporal import ToolsPlugin, call_tools

QUEUE = "refunds"


@tool(readonly=True)
async def account(customer: int) -> str:
    """Look at the account of a customer: it may be done again after a crash."""
    return f"customer {customer} has 3 orders"


@tool(parallel=True)
async def refund(ctx: ToolContext, order: int) -> str:
    """Pay an order back: a call that a crash cut off is not made again, and the model is told so."""
    return f"order {order} is refunded"


def next_calls(customer: int, order: int) -> list[dict[str, Any]]:
    """The answer of a model, in the place of one."""
    return [
        {"id": "call_1", "name": "account", "arguments": {"customer": customer}},
        {"id": "call_2", "name": "refund", "arguments": {"order": order}},
    ]


@workflow.defn
class Refund:
    """One conversation."""

    @workflow.run
    async def run(self, customer: int, order: int) -> list[str]:
        """The texts that the model reads."""
        answers = await call_tools(next_calls(customer, order), session=f"customer {customer}")
        return [answer.text for answer in answers]


async def main(address: str, store: str) -> None:
    """Run one workflow with a worker of this process."""
    client = await Client.connect(address)
    plugin = ToolsPlugin(App(tools=[account, refund]), store)
    async with Worker(client, task_queue=QUEUE, workflows=[Refund], plugins=[plugin]):
        handle = await client.start_workflow(
            Refund.run,
            args=[12, 7],
            id="refund-7",
            task_queue=QUEUE,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        )
        for text in await handle.result():
            print(text)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
