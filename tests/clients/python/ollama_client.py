"""A tool that is a Python function, whole and streamed; a schema; embeddings; the store."""
import os

import ollama
from pydantic import BaseModel

MODEL = os.environ["MODEL"]
client = ollama.Client(host=os.environ["BASE_URL"])


def look_up(name: str) -> str:
    """Looks a name up.

    Args:
        name: which one
    """
    return "Paris: " + name


class Answer(BaseModel):
    sure: bool


for stream in (False, True):
    messages = [{"role": "user", "content": "Where?"}]
    replies = client.chat(MODEL, messages=messages, tools=[look_up], stream=stream)
    calls = [call for reply in (replies if stream else [replies]) for call in reply.message.tool_calls or []]
    assert [call.function.name for call in calls] == ["look_up"], calls
    result = look_up(**calls[0].function.arguments)
    messages += [{"role": "assistant", "content": "", "tool_calls": calls},
                 {"role": "tool", "tool_name": "look_up", "content": result}]
    replies = client.chat(MODEL, messages=messages, tools=[look_up], stream=stream)
    text = "".join(reply.message.content or "" for reply in (replies if stream else [replies]))
    assert text == "Done", text

reply = client.chat(MODEL, messages=[{"role": "user", "content": "Sure?"}], format=Answer.model_json_schema())
assert Answer.model_validate_json(reply.message.content).sure in (True, False)
vectors = client.embed(os.environ["EMBEDDER"], ["a cat", "a dog"]).embeddings
assert len(vectors) == 2 and len(vectors[0]) == len(vectors[1]) > 0
assert MODEL + ":latest" in [model.model for model in client.list().models]
assert "tools" in client.show(MODEL).capabilities
assert MODEL + ":latest" in [model.model for model in client.ps().models]
