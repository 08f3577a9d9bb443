"""An agent with a tool, whole and streamed, over chats and responses; an answer of a type."""
import asyncio
import os

from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

provider = OpenAIProvider(base_url=os.environ["BASE_URL"] + "/v1", api_key="none")
looked_up = []


class Answer(BaseModel):
    sure: bool


def look_up(name: str) -> str:
    """Looks a name up."""
    looked_up.append(name)
    return "Paris"


async def stream(agent):
    async with agent.run_stream("Where?") as result:
        return await result.get_output()


for kind in (OpenAIChatModel, OpenAIResponsesModel):
    model = kind(os.environ["MODEL"], provider=provider)
    agent = Agent(model, tools=[look_up])
    before = len(looked_up)
    result = agent.run_sync("Where?")
    assert result.output == "Done" and result.usage.tool_calls == 1, result
    assert asyncio.run(stream(agent)) == "Done"
    assert len(looked_up) == before + 2, looked_up
    typed = Agent(model, output_type=NativeOutput(Answer)).run_sync("Sure?")
    assert typed.output.sure in (True, False), typed
