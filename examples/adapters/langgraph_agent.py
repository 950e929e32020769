"""The same LangChain agent before and after: a payment that a person approves, and a crash right after it.

python langgraph_agent.py before FOLDER    # run it twice: the first run is killed, the second continues
python langgraph_agent.py after FOLDER
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command

from toolwright import Runtime, tool
from toolwright.adapters.langchain import ToolwrightMiddleware

MODE, FOLDER, PAID = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[2]) / "paid.txt"
THREAD: Any = {"configurable": {"thread_id": "t"}}


class Model(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **options: Any) -> "Model":
        return self


def pay(to: str, amount: int) -> str:
    """Pay an amount to someone."""
    first = not PAID.exists()
    with PAID.open("a") as file:
        file.write(f"{amount} to {to}\n")
    if first:
        os.kill(os.getpid(), signal.SIGKILL)  # the machine loses power, just now
    return "paid"


async def main() -> None:
    theirs, stored = AsyncSqliteSaver.from_conn_string(str(FOLDER / "graph.db")), FOLDER / "agent.db"
    async with theirs as saver, Runtime.open(stored, tools=[tool(pay, approval="required")]) as runtime:
        call = {"id": "call_1", "name": "pay", "args": {"to": "Ada", "amount": 10}}
        model = Model(messages=iter([AIMessage("", tool_calls=[call]), AIMessage("Done.")][PAID.exists() :]))
        before = {"tools": [pay], "middleware": [HumanInTheLoopMiddleware({"pay": True})]}
        after = {"middleware": [ToolwrightMiddleware(runtime.session("s"))]}
        agent: Any = create_agent(model, **(before if MODE == "before" else after), checkpointer=saver)
        state = await agent.ainvoke(None if PAID.exists() else {"messages": [("user", "Pay Ada 10.")]}, THREAD)
        if "__interrupt__" in state:
            state = await agent.ainvoke(Command(resume={"decisions": [{"type": "approve"}]}), THREAD)
        print(f"{state['messages'][-2].content}\npaid {PAID.read_text().count('Ada')} x")


asyncio.run(main())
