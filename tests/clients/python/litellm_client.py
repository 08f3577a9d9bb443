"""The SDK over three of the server's dialects: a tool and its result, streamed text, embeddings."""
import json
import os

import litellm

BASE, MODEL = os.environ["BASE_URL"], os.environ["MODEL"]
litellm.telemetry = False
TOOLS = [{"type": "function", "function": {"name": "look_up", "description": "Looks a name up.", "parameters": {
    "type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}}}]

for prefix, base in (("openai", BASE + "/v1"), ("anthropic", BASE), ("ollama_chat", BASE)):
    def complete(messages, **more):
        return litellm.completion(model=f"{prefix}/{MODEL}", api_base=base, api_key="none", messages=messages, **more)
    messages = [{"role": "user", "content": "Where?"}]
    message = complete(messages, tools=TOOLS).choices[0].message
    call = message.tool_calls[0]
    assert call.function.name == "look_up" and "name" in json.loads(call.function.arguments), (prefix, message)
    messages += [message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "name": "look_up", "content": "Paris"}]
    text = complete(messages, tools=TOOLS).choices[0].message.content
    assert text == "Done", (prefix, text)
    pieces = [chunk.choices[0].delta.content or "" for chunk in complete(messages, tools=TOOLS, stream=True)]
    assert "".join(pieces) == "Done", (prefix, pieces)

data = litellm.embedding(model="openai/" + os.environ["EMBEDDER"], api_base=BASE + "/v1", api_key="none", encoding_format="float",
                         input=["a cat", "a dog"]).data
assert len(data) == 2 and len(data[0]["embedding"]) > 0
