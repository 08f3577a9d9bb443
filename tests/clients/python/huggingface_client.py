"""InferenceClient with the server's address in place of a model: the model is called "dummy", or not named at all."""
import os

from huggingface_hub import InferenceClient

BASE = os.environ["BASE_URL"]
client = InferenceClient(BASE)
named = InferenceClient(base_url=BASE + "/v1", api_key="none")
TOOLS = [{"type": "function", "function": {"name": "look_up", "description": "d", "parameters": {
    "type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}}}]
messages = [{"role": "user", "content": "Where?"}]
PROMPT = 'Say "'  # the model goes on without an end

# "dummy" is the only loaded model of two that complete.
for call in (named.chat_completion(messages, model=os.environ["MODEL"], tools=TOOLS, max_tokens=100),
             client.chat_completion(messages, tools=TOOLS, max_tokens=100)):
    assert call.choices[0].message.tool_calls[0].function.name == "look_up", call
chunks = list(client.chat_completion(messages, stream=True, max_tokens=20))
assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Done", chunks

text = client.text_generation(PROMPT, max_new_tokens=8)
assert isinstance(text, str) and text, text
assert client.text_generation(PROMPT, max_new_tokens=8, return_full_text=True) == PROMPT + text
whole = client.text_generation(PROMPT, max_new_tokens=8, details=True)
assert whole.generated_text == text and whole.details.generated_tokens == 8, whole
assert whole.details.finish_reason == "length" and len(whole.details.tokens) == 8, whole
assert "".join(client.text_generation(PROMPT, max_new_tokens=8, stream=True)) == text
last = list(client.text_generation(PROMPT, max_new_tokens=8, stream=True, details=True))[-1]
assert last.generated_text == text and last.details.generated_tokens == 8, last

vectors = client.feature_extraction(["a cat", "a dog"])
assert vectors.shape[0] == 2 and vectors.shape[1] > 0, vectors.shape
assert abs(client.feature_extraction("a cat").reshape(-1) - vectors[0]).max() < 1e-6
