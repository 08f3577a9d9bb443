#!/usr/bin/env python3
"""Tools and thinking of the bundled model through the front door, in every dialect, streamed and whole."""
import json
import unittest

from harness import MODEL, Daemon

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Get the weather in a city", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "description": "Name of the city"}},
        "required": ["city"]}}}
TRIP = {"type": "function", "function": {"name": "book", "parameters": {
    "type": "object", "properties": {
        "city": {"enum": ["Oslo", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "window": {"type": "boolean"}},
    "required": ["city", "days", "window"]}}}
FLAG = {"type": "function", "function": {"name": "set_flag", "parameters": {
    "type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"], "additionalProperties": False}}}
ASK = [{"role": "user", "content": "What is the weather in Paris?"}]
SUM = [{"role": "system", "content": "Think step by step before you answer."},
       {"role": "user", "content": "What is 38 + 47?"}]
WORKING = "Ones: 8 + 7 = 15. Write 5, carry 1. Tens: 3 + 4 + 1 = 8. So the result is 85."


def native(messages, **fields):
    return {"model": MODEL, "messages": messages, "stream": False, "options": {"temperature": 0}, **fields}


def openai(messages, **fields):
    return {"model": MODEL, "messages": messages, "temperature": 0, **fields}


class Tools(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon().start()

    @classmethod
    def tearDownClass(cls):
        cls.daemon.__exit__(None, None, None)

    def lines(self, body):
        reply = self.daemon.post("/api/chat", {**body, "stream": True})
        self.assertEqual(200, reply.status, reply.body)
        return [json.loads(line) for line in reply.body.splitlines()]

    def chunks(self, body):
        reply = self.daemon.post("/v1/chat/completions", {**body, "stream": True})
        self.assertEqual(200, reply.status, reply.body)
        data = [line[6:] for line in reply.body.decode().split("\n\n") if line.startswith("data: ")]
        self.assertEqual("[DONE]", data[-1])
        return [json.loads(one) for one in data[:-1]]

    def test_lists_say_what_the_model_can_do(self):
        show = self.daemon.post("/api/show", {"model": MODEL}).json
        tags = self.daemon.get("/api/tags").json
        self.assertEqual(["completion", "tools", "insert"], show["capabilities"])
        self.assertEqual([["completion", "tools", "insert"]], [model["capabilities"] for model in tags["models"]])

    def test_native_calls_are_objects_and_no_text(self):
        whole = self.daemon.post("/api/chat", native(ASK, tools=[WEATHER])).json
        self.assertEqual("", whole["message"]["content"])
        call, = whole["message"]["tool_calls"]
        self.assertEqual({"index": 0, "name": "get_weather", "arguments": {"city": "Paris"}}, call["function"])
        self.assertEqual("stop", whole["done_reason"])
        lines = self.lines(native(ASK, tools=[WEATHER]))
        self.assertEqual("", "".join(line["message"]["content"] for line in lines))
        streamed = [call["function"] for line in lines for call in line["message"].get("tool_calls", [])]
        self.assertEqual([call["function"]], streamed)
        self.assertEqual(whole["eval_count"], lines[-1]["eval_count"])

    def test_openai_calls_have_ids_and_finish_as_tool_calls(self):
        whole = self.daemon.post("/v1/chat/completions", openai(ASK, tools=[WEATHER])).json["choices"][0]
        self.assertEqual("tool_calls", whole["finish_reason"])
        call, = whole["message"]["tool_calls"]
        self.assertTrue(call["id"])
        self.assertEqual({"city": "Paris"}, json.loads(call["function"]["arguments"]))
        chunks = self.chunks(openai(ASK, tools=[WEATHER]))
        parts = [part for chunk in chunks for part in chunk["choices"][0]["delta"].get("tool_calls", [])]
        self.assertEqual(["get_weather"], [part["function"]["name"] for part in parts if "name" in part["function"]])
        self.assertEqual(call["function"]["arguments"], "".join(part["function"]["arguments"] for part in parts))
        self.assertEqual("tool_calls", chunks[-1]["choices"][0]["finish_reason"])

    def test_a_conversation_goes_on_with_a_tool_s_result(self):
        result = '{"temperature": 21, "condition": "sunny"}'
        native_turns = [*ASK, {"role": "assistant", "content": "", "tool_calls": [
            {"function": {"name": "get_weather", "arguments": {"city": "Paris"}}}]},
            {"role": "tool", "tool_name": "get_weather", "content": result}]
        openai_turns = [*ASK, {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}]},
            {"role": "tool", "tool_call_id": "c1", "content": result}]
        first = self.daemon.post("/api/chat", native(native_turns, tools=[WEATHER])).json
        second = self.daemon.post("/v1/chat/completions", openai(openai_turns, tools=[WEATHER])).json
        self.assertEqual("It is 21 degrees and sunny in Paris.", first["message"]["content"])
        self.assertEqual(first["message"]["content"], second["choices"][0]["message"]["content"])
        self.assertEqual("stop", second["choices"][0]["finish_reason"])

    def test_thinking_stands_apart_in_both_dialects(self):
        whole = self.daemon.post("/api/chat", native(SUM)).json["message"]
        self.assertEqual((WORKING, "38 + 47 = 85."), (whole["thinking"], whole["content"]))
        lines = self.lines(native(SUM))
        self.assertEqual(WORKING, "".join(line["message"].get("thinking", "") for line in lines))
        self.assertEqual("38 + 47 = 85.", "".join(line["message"]["content"] for line in lines))
        self.assertGreater(len(lines), 20)
        message = self.daemon.post("/v1/chat/completions", openai(SUM)).json["choices"][0]["message"]
        self.assertEqual((WORKING, "38 + 47 = 85."), (message["reasoning_content"], message["content"]))
        message = self.daemon.post("/api/chat", native(SUM, think=False)).json["message"]
        self.assertEqual("38 + 47 = 85.", message["content"])
        self.assertNotIn("thinking", message)
        off = self.daemon.post("/v1/chat/completions", openai(SUM, reasoning_effort="none")).json
        self.assertNotIn("reasoning_content", off["choices"][0]["message"])

    def test_anthropic_has_blocks_of_thinking_and_calls(self):
        tools = [{"name": "get_weather", "description": "Get the weather in a city",
                  "input_schema": WEATHER["function"]["parameters"]}]
        body = {"model": MODEL, "max_tokens": 200, "temperature": 0, "messages": ASK, "tools": tools}
        whole = self.daemon.post("/v1/messages", body).json
        self.assertEqual("tool_use", whole["stop_reason"])
        call, = whole["content"]
        self.assertEqual(("tool_use", {"city": "Paris"}), (call["type"], call["input"]))
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": '{"temperature": 21, "condition": "sunny"}'}
        turns = [*ASK, {"role": "assistant", "content": whole["content"]}, {"role": "user", "content": [result]}]
        answer = self.daemon.post("/v1/messages", body | {"messages": turns}).json
        self.assertEqual("It is 21 degrees and sunny in Paris.", answer["content"][0]["text"])
        body = {"model": MODEL, "max_tokens": 200, "temperature": 0, "system": SUM[0]["content"], "messages": SUM[1:]}
        thought = self.daemon.post("/v1/messages", body | {"thinking": {"type": "enabled", "budget_tokens": 1024}}).json
        self.assertEqual(["thinking", "text"], [block["type"] for block in thought["content"]])
        self.assertEqual(WORKING, thought["content"][0]["thinking"])
        plain = self.daemon.post("/v1/messages", body).json
        self.assertEqual(["38 + 47 = 85."], [block.get("text") for block in plain["content"]])

    def test_what_the_model_cannot_do_is_refused_before_the_stream(self):
        for stream in (True, False):
            reply = self.daemon.post("/api/chat", native(SUM, think=True) | {"stream": stream})
            self.assertEqual(400, reply.status)
            self.assertEqual('"quire-demo" does not support thinking', reply.json["error"])
        reply = self.daemon.post("/v1/chat/completions", openai(SUM, reasoning_effort="high"))
        self.assertEqual(200, reply.status, "it answers without")

    def test_without_a_choice_no_call_is_made(self):
        choice = self.daemon.post("/v1/chat/completions",
                                  openai(ASK, tools=[WEATHER], tool_choice="none")).json["choices"][0]
        self.assertNotIn("tool_calls", choice["message"])
        self.assertNotEqual("tool_calls", choice["finish_reason"])

    def call_of(self, **fields):
        """The one call of a chat's answer, which is nothing else."""
        choice = self.daemon.post("/v1/chat/completions", openai(ASK, max_tokens=300, **fields)).json["choices"][0]
        self.assertEqual("tool_calls", choice["finish_reason"])
        self.assertFalse(choice["message"]["content"])
        call, = choice["message"]["tool_calls"]
        return call["function"]["name"], json.loads(call["function"]["arguments"])

    def test_a_forced_call_is_valid_in_every_dialect(self):
        one = {"tools": [TRIP, FLAG], "parallel_tool_calls": False}
        name, arguments = self.call_of(**one, tool_choice="required")
        self.assertIn(name, ("book", "set_flag"))
        name, arguments = self.call_of(**one, tool_choice={"type": "function", "function": {"name": "book"}})
        self.assertEqual("book", name)
        self.assertTrip(arguments)

        tools = [{"name": tool["function"]["name"], "input_schema": tool["function"]["parameters"]} for tool in (TRIP, FLAG)]
        message = self.daemon.post("/v1/messages", {
            "model": MODEL, "max_tokens": 300, "messages": ASK, "tools": tools,
            "tool_choice": {"type": "tool", "name": "book", "disable_parallel_tool_use": True}}).json
        self.assertEqual("tool_use", message["stop_reason"])
        block, = message["content"]
        self.assertEqual("book", block["name"])
        self.assertTrip(block["input"])

        tools = [{"type": "function", **tool["function"]} for tool in (TRIP, FLAG)]
        response = self.daemon.post("/v1/responses", {
            "model": MODEL, "max_output_tokens": 300, "input": ASK, "tools": tools, "parallel_tool_calls": False,
            "tool_choice": {"type": "function", "name": "book"}}).json
        item, = response["output"]
        self.assertEqual(("function_call", "book", "completed"), (item["type"], item["name"], item["status"]))
        self.assertTrip(json.loads(item["arguments"]))
        self.assertEqual(tools, response["tools"])

    def assertTrip(self, arguments):
        self.assertEqual({"city", "days", "window"}, set(arguments))
        self.assertIn(arguments["city"], ("Oslo", "Rome"))
        self.assertIn(arguments["days"], range(1, 10))
        self.assertIsInstance(arguments["window"], bool)

    def test_left_to_itself_the_model_obeys_the_schema_of_a_strict_tool(self):
        parameters = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Paris", "Rome"]}}, "required": ["city"]}
        strict = {"type": "function", "function": {**WEATHER["function"], "strict": True, "parameters": parameters}}
        name, arguments = self.call_of(tools=[strict], parallel_tool_calls=False)
        self.assertEqual(("get_weather", ["city"]), (name, list(arguments)))

    def test_responses_go_on_with_a_tool_s_result(self):
        tool = {"type": "function", **WEATHER["function"]}
        body = {"model": MODEL, "temperature": 0, "tools": [tool]}
        first = self.daemon.post("/v1/responses", body | {"input": ASK}).json
        call, = first["output"]
        self.assertEqual(("function_call", "get_weather"), (call["type"], call["name"]))
        result = {"type": "function_call_output", "call_id": call["call_id"],
                  "output": '{"temperature": 21, "condition": "sunny"}'}
        second = self.daemon.post("/v1/responses", body | {"input": [*ASK, call, result]}).json
        self.assertEqual("It is 21 degrees and sunny in Paris.", second["output"][0]["content"][0]["text"])

    def test_a_strict_schema_that_cannot_be_enforced_is_refused(self):
        odd = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
        for stream in (True, False):
            reply = self.daemon.post("/v1/chat/completions", openai(ASK, stream=stream, tools=[
                {"type": "function", "function": {"name": "f", "strict": True, "parameters": odd}}]))
            self.assertEqual(400, reply.status, reply.body)
            self.assertIn("uniqueItems", reply.json["error"]["message"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
