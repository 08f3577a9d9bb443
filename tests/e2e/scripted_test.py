#!/usr/bin/env python3
"""What of an answer is text, thinking and calls, by a model that answers from a script: in four dialects, streamed and whole."""
import json
import pathlib
import tempfile
import unittest

import scripted_model
import tiny_encoders
from harness import Daemon

NOW = {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}
SENTENCE = "The tag <think> opens thinking, <tool_call> a call."
ANSWERS = {
    "T": ["Let me look.\n", "<tool_call>", '\n{"name": "now", "arguments": {}}\n', "</tool_call>"],
    "R": ["<think>", "It is late, ", "I stop. ", "So: noon.", "</think>", "\n\nNo", "on."],
    "S": ["The tag <thi", "nk> opens thinking, <tool", "_call> a ", "call."],
    "B": ['```json\n{"name": "n', 'ow", "arguments": {}}\n', "```"],
    "X": ['{"name": "Ann", ', '"arguments": {}}'],
    "\n": ["Hm, "],
}
CALL = [("now", {})]


class Reply:
    """One answer of any dialect."""

    def __init__(self):
        self.text, self.thinking, self.calls, self.end = "", "", [], None
        self.order = ""

    def add(self, kind, value):
        if kind == "c":
            self.calls.append(value)
        elif kind == "t":
            self.text += value
        else:
            self.thinking += value
        if value and not self.order.endswith(kind):
            self.order += kind

    def facts(self):
        return self.text, self.thinking, self.calls, self.order


def ollama(daemon, messages, stream, tools=True, **fields):
    body = {"model": "scripted", "messages": messages, "stream": stream, **({"tools": [NOW]} if tools else {}), **fields}
    answer = daemon.post("/api/chat", body)
    reply = Reply()
    for line in answer.body.splitlines():
        part = json.loads(line)
        reply.add("T", part["message"].get("thinking", ""))
        reply.add("t", part["message"]["content"])
        for call in part["message"].get("tool_calls", []):
            reply.add("c", (call["function"]["name"], call["function"]["arguments"]))
        reply.end = part.get("done_reason", reply.end)
    return reply


def data_of(answer):
    return [json.loads(line[6:]) for line in answer.body.decode().splitlines()
            if line.startswith("data: ") and line != "data: [DONE]"]


def openai(daemon, messages, stream, tools=True, **fields):
    body = {"model": "scripted", "messages": messages, "stream": stream, **({"tools": [NOW]} if tools else {}), **fields}
    answer = daemon.post("/v1/chat/completions", body)
    reply, calls = Reply(), []
    for part in data_of(answer) if stream else [answer.json]:
        for choice in part["choices"]:
            message = choice["delta" if stream else "message"]
            reply.add("T", message.get("reasoning_content") or "")
            reply.add("t", message.get("content") or "")
            for call in message.get("tool_calls") or []:
                if "name" in call["function"]:
                    calls.append([call["function"]["name"], ""])
                calls[-1][1] += call["function"].get("arguments", "")
            reply.end = choice.get("finish_reason") or reply.end
    for name, arguments in calls:
        reply.add("c", (name, json.loads(arguments)))
    return reply


def anthropic(daemon, messages, stream, tools=True, **fields):
    turns = [{"role": "user", "content": message["content"]} for message in messages[-1:]]
    tool = {"name": "now", "input_schema": NOW["function"]["parameters"]}
    body = {"model": "scripted", "messages": turns, "max_tokens": 50, "stream": stream,
            "thinking": {"type": "enabled", "budget_tokens": 1024}, **({"tools": [tool]} if tools else {}), **fields}
    answer = daemon.post("/v1/messages", body)
    reply = Reply()
    if not stream:
        blocks = answer.json["content"]
        reply.end = answer.json["stop_reason"]
    else:
        blocks = []
        for event in data_of(answer):
            if event["type"] == "content_block_start":
                blocks.append(dict(event["content_block"], input=""))
            elif event["type"] == "content_block_delta":
                for key, value in event["delta"].items():
                    if key in ("text", "thinking"):
                        blocks[-1][key] += value
                    elif key == "partial_json":
                        blocks[-1]["input"] += value
            elif event["type"] == "message_delta":
                reply.end = event["delta"]["stop_reason"]
    for block in blocks:
        if block["type"] == "tool_use":
            arguments = block["input"]
            reply.add("c", (block["name"], json.loads(arguments or "{}") if stream else arguments))
        else:
            reply.add("T" if block["type"] == "thinking" else "t", block[block["type"]])
    return reply


def responses(daemon, messages, stream, tools=True, **fields):
    tool = {"type": "function", **NOW["function"]}
    body = {"model": "scripted", "input": messages[-1]["content"], "stream": stream, **({"tools": [tool]} if tools else {}),
            **fields}
    answer = daemon.post("/v1/responses", body)
    whole = [event for event in data_of(answer) if event["type"].startswith("response.completed")][0]["response"] \
        if stream else answer.json
    reply = Reply()
    for item in whole["output"]:
        if item["type"] == "function_call":
            reply.add("c", (item["name"], json.loads(item["arguments"])))
        elif item["type"] == "reasoning":
            reply.add("T", "".join(part["text"] for part in item.get("content") or item["summary"]))
        else:
            reply.add("t", "".join(part["text"] for part in item["content"]))
    if stream:
        deltas = [event for event in data_of(answer) if event["type"] == "response.output_text.delta"]
        assert "".join(event["delta"] for event in deltas) == reply.text, deltas
    reply.end = whole["status"]
    return reply


DIALECTS = {"ollama": ollama, "openai": openai, "anthropic": anthropic, "responses": responses}


def ask(letter):
    return [{"role": "user", "content": letter}]


class Answers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon().start()
        cls.addClassCleanup(cls.daemon.__exit__, None, None, None)
        folder = tempfile.TemporaryDirectory(prefix="quire-scripted-")
        cls.addClassCleanup(folder.cleanup)
        tiny_encoders.create(cls.daemon, "scripted", scripted_model.write(pathlib.Path(folder.name) / "model", ANSWERS))

    def each(self, messages, **fields):
        for name, dialect in DIALECTS.items():
            for stream in (False, True):
                reply = dialect(self.daemon, messages, stream, **fields)
                reply.name = (name, "streamed" if stream else "whole")
                yield reply

    def test_text_then_a_call(self):
        for reply in self.each(ask("T")):
            self.assertEqual(("Let me look.", "", CALL, "tc"), reply.facts(), reply.name)
            self.assertIn(reply.end, ("stop", "tool_calls", "tool_use", "completed"))

    def test_a_call_its_result_then_thinking_and_text(self):
        called = {"role": "assistant", "content": "", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "now", "arguments": {}}}]}
        turns = [*ask("T"), called, {"role": "tool", "tool_call_id": "c1", "content": "R"}]
        for reply in self.each(turns):
            self.assertEqual(("Noon.", "It is late, I stop. So: noon.", [], "Tt"), reply.facts(), reply.name)

    def test_a_sentence_that_mentions_markers(self):
        for reply in self.each(ask("S")):
            self.assertEqual((SENTENCE, "", [], "t"), reply.facts(), reply.name)

    def test_a_call_in_a_fence_and_an_object_that_is_none(self):
        for reply in self.each(ask("B")):
            self.assertEqual(("", "", CALL, "c"), reply.facts(), reply.name)
        for reply in self.each(ask("X")):
            self.assertEqual(('{"name": "Ann", "arguments": {}}', "", [], "t"), reply.facts(), reply.name)
        for reply in self.each(ask("B"), tools=False):
            self.assertEqual(('```json\n{"name": "now", "arguments": {}}\n```', "", [], "t"), reply.facts(), reply.name)

    def test_a_document_is_never_read_for_markers(self):
        for text in ("<think>x</think> <tool_call>{}</tool_call>", "</think>"):
            schema = {"type": "object", "properties": {"a": {"const": text}}, "required": ["a"], "additionalProperties": False}
            asked = {"ollama": {"format": schema, "options": {"temperature": 0}}, "openai": {"temperature": 0, "response_format": {
                "type": "json_schema", "json_schema": {"name": "n", "schema": schema}}}}
            for name, fields in asked.items():
                for stream in (False, True):
                    for tools in (False, True):
                        reply = DIALECTS[name](self.daemon, ask("Z"), stream, tools=tools, **fields)
                        self.assertEqual({"a": text}, json.loads(reply.text))
                        self.assertEqual("t", reply.order)

    def test_stop_strings_count_in_text_alone(self):
        for stream in (False, True):
            for stop, text in (("stop", "Noon."), ("late", "Noon."), (":", "Noon."), ("oo", "N"), ("\n", "Noon.")):
                reply = openai(self.daemon, ask("R"), stream, stop=[stop])
                self.assertEqual((text, "It is late, I stop. So: noon."), reply.facts()[:2])
                reply = ollama(self.daemon, ask("R"), stream, options={"stop": [stop]})
                self.assertEqual((text, "It is late, I stop. So: noon."), reply.facts()[:2])
            for stop in ("name", "{", "\n{", "</tool_call>"):
                self.assertEqual(CALL, openai(self.daemon, ask("T"), stream, stop=[stop]).calls)
            late, no = (self.daemon.post("/tokenize", {"model": "scripted", "content": text}).json["tokens"]
                        for text in ("I stop. ", "on."))
            reply = openai(self.daemon, ask("R"), stream, stop_token_ids=late + no)
            self.assertEqual(("No", "It is late, I stop. So: noon."), reply.facts()[:2])

    def test_an_end_inside_thinking_is_a_stop_and_the_log_says_so(self):
        for reply in self.each(ask("E")):
            self.assertEqual(("", "Hm,", [], "T"), reply.facts(), reply.name)
            self.assertIn(reply.end, ("stop", "end_turn", "completed"))
        self.assertIn("finish=stop finish_in=thinking", self.daemon.log())

    def test_a_forced_call_that_is_cut_is_a_call(self):
        ends = set()
        for limit in [*range(1, 8), 200]:
            for stream in (False, True):
                reply = openai(self.daemon, ask("Z"), stream, tool_choice="required", max_tokens=limit, temperature=0,
                               reasoning_effort="none")
                self.assertEqual(("", CALL), (reply.text, reply.calls), (limit, stream, reply.end, reply.thinking))
                ends.add((limit, reply.end))
        self.assertIn((2, "length"), ends)
        self.assertIn((200, "tool_calls"), ends)


if __name__ == "__main__":
    from suites import run
    run()
