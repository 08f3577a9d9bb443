"""A tool of a chat, whole and streamed; a schema; /v1/responses with a tool and with a custom tool's grammar; embeddings."""
import json
import os

import openai

MODEL = os.environ["MODEL"]
client = openai.OpenAI(base_url=os.environ["BASE_URL"] + "/v1", api_key="none", max_retries=0)
PARAMETERS = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": "look_up", "description": "Looks a name up.", "parameters": PARAMETERS}}]

messages = [{"role": "user", "content": "Where?"}]
reply = client.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS)
call = reply.choices[0].message.tool_calls[0]
assert (reply.choices[0].finish_reason, call.function.name) == ("tool_calls", "look_up"), reply
assert set(json.loads(call.function.arguments)) == {"name"}, call
history = messages + [reply.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "Paris"}]
reply = client.chat.completions.create(model=MODEL, messages=history, tools=TOOLS)
assert reply.choices[0].message.content == "Done", reply
assert reply.usage.prompt_tokens_details.cached_tokens > 0, reply

with client.chat.completions.stream(model=MODEL, messages=messages, tools=TOOLS,
                                    stream_options={"include_usage": True}) as stream:
    kinds = {event.type for event in stream}
    streamed = stream.get_final_completion()
assert "tool_calls.function.arguments.done" in kinds, kinds
assert streamed.choices[0].message.tool_calls[0].function.arguments == call.function.arguments, streamed
assert streamed.usage.completion_tokens > 0, streamed

schema = {"type": "object", "properties": {"answer": {"enum": ["yes", "no"]}}, "required": ["answer"]}
reply = client.chat.completions.create(model=MODEL, messages=messages, response_format={
    "type": "json_schema", "json_schema": {"name": "a", "schema": schema, "strict": True}})
assert json.loads(reply.choices[0].message.content)["answer"] in ("yes", "no"), reply

tools = [{"type": "function", "name": "look_up", "parameters": PARAMETERS, "strict": True}]
first = client.responses.create(model=MODEL, input="Where?", tools=tools)
made = first.output[0]
assert (made.type, made.name) == ("function_call", "look_up"), first
result = {"type": "function_call_output", "call_id": made.call_id, "output": "Paris"}
second = client.responses.create(model=MODEL, tools=tools,
                                 input=[{"role": "user", "content": "Where?"}, made.to_dict(), result])
assert second.output_text == "Done", second
custom = {"type": "custom", "name": "look_up", "description": "d",
          "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "find " NAME\nNAME: /[A-C]{2}/'}}
made = client.responses.create(model=MODEL, input="Where?", tools=[custom]).output[0]
assert made.type == "custom_tool_call" and made.input[:5] == "find " and set(made.input[5:]) <= set("ABC"), made

vectors = client.embeddings.create(model=os.environ["EMBEDDER"], input=["a cat", "a dog"]).data
assert len(vectors) == 2 and len(vectors[0].embedding) == len(vectors[1].embedding) > 0, vectors
assert MODEL + ":latest" in [model.id for model in client.models.list()]
