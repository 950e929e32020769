"""Probe: an agent of pydantic-ai with DBOS on SQLite, as it comes: 100 parallel calls, each tool a step."""

import asyncio
from typing import Any

from dbos import DBOS
from pydantic_ai import Agent
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.models.function import FunctionModel

from bench.disk import new_file
from bench.pairing import Subject, pair
from bench.peers.pydantic_ai_parallel import complete, own_tools, succeeded
from bench.probe import effort_of, emit, probe_parser
from bench.workload import FUNCTIONS, PARALLEL_CALLS


def with_dbos() -> Subject[str, Any]:
    """Run a workflow for each run of the agent."""
    tools: list[Any] = [DBOS.step(name=name)(function) for name, function in FUNCTIONS.items()]
    agent = Agent(FunctionModel(complete), name="bench", tools=tools, capabilities=[DBOSDurability()])
    results: list[Any] = []

    @DBOS.workflow()
    async def run(question: str) -> str:
        results[:] = [await agent.run(question)]
        return str(results[0].output)

    async def run_agent(question: str) -> Any:
        await run(question)
        return results[0]

    return Subject(calls=PARALLEL_CALLS, prepare=lambda: "go", run=run_agent, count=succeeded)


def main() -> None:
    """Measure it on a file of its own, beside the same agent without DBOS, and print the pairing."""
    effort = effort_of(probe_parser(__doc__).parse_args())
    with new_file() as file:
        url = f"sqlite:///{file}"
        DBOS(config={"name": "bench", "system_database_url": url, "log_level": "ERROR", "enable_otlp": False})
        subject = with_dbos()
        DBOS.launch()
        try:
            pairing = asyncio.run(pair(own_tools(), subject, effort))
        finally:
            DBOS.destroy()
    emit(pairing.to_json())


if __name__ == "__main__":
    main()
