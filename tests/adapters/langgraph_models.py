"""A chat model that gives prepared answers, for tests of the LangChain adapter."""

from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import Field


class Scripted(BaseChatModel):
    """Gives the answer whose number is that of the answers in the history; remembers the tools it was offered."""

    answers: list[Any]
    offered: list[Any] = Field(default_factory=list)
    read: list[list[BaseMessage]] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **options: Any) -> "Scripted":
        self.offered = [getattr(tool, "name", None) or tool["function"]["name"] for tool in tools]
        return self

    def _generate(self, messages: list[BaseMessage], *given: Any, **options: Any) -> ChatResult:
        self.read.append(list(messages))
        number = sum(isinstance(message, AIMessage) for message in messages)
        answer = self.answers[number] if number < len(self.answers) else "done"
        message = answer if isinstance(answer, AIMessage) else AIMessage(content=answer)
        return ChatResult(generations=[ChatGeneration(message=message)])


def asks(*calls: tuple[str, str, dict[str, Any]], id: str | None = None, **more: Any) -> AIMessage:
    """An answer with calls, each by its id, name and arguments."""
    made = [{"id": call, "name": name, "args": arguments, "type": "tool_call"} for call, name, arguments in calls]
    return AIMessage(content="", id=id, tool_calls=made, **more)
