"""Three turns of tool_runner: two calls and an answer. The first request names a thread and is refused; those after it have the
whole history, the system text and the tools."""
import json
import os

import anthropic

requests = []


@anthropic.beta_tool
def look_up(name: str) -> str:
    """Looks a name up.

    Args:
        name: which one
    """
    return "Paris" if sum(len(request["messages"]) == 3 for request in requests) else "call again"


client = anthropic.Anthropic(
    base_url=os.environ["BASE_URL"], api_key="none", max_retries=0,
    http_client=anthropic.DefaultHttpxClient(
        event_hooks={"request": [lambda request: requests.append(json.loads(request.read()))]}))
for stream in (False, True):
    requests.clear()
    runner = client.beta.messages.tool_runner(model=os.environ["MODEL"], max_tokens=200, system="Be brief.", tools=[look_up],
                                              messages=[{"role": "user", "content": "Where?"}], stream=stream)
    replies = [turn.get_final_message() if stream else turn for turn in runner]
    assert [reply.stop_reason for reply in replies] == ["tool_use", "tool_use", "end_turn"], replies
    assert ["thread" in request for request in requests] == [True, False, False, False], requests
    assert [len(request["messages"]) for request in requests] == [1, 1, 3, 5], requests
    assert all(request["system"] == "Be brief." and len(request["tools"]) == 1 for request in requests), requests
    prompts = [reply.usage.input_tokens + (reply.usage.cache_read_input_tokens or 0) for reply in replies]
    assert prompts[0] < prompts[1] < prompts[2], prompts
    assert replies[2].usage.cache_read_input_tokens >= prompts[0], replies
    print(prompts, [reply.usage.cache_read_input_tokens for reply in replies])
