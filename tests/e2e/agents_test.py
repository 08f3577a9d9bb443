#!/usr/bin/env python3
"""What agents send, with a model that begins a tool call after each user message (tests/clients/agent_model.py)."""
import json
import pathlib
import sys
import unittest

from harness import Daemon

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "clients"))
import agent_model  # noqa: E402

MODEL = "agent"
COMMAND = {"type": "object", "properties": {"command": {"type": "string"}, "background": {"type": "boolean"}},
           "required": ["command"], "additionalProperties": False}
CHAT_TOOLS = [{"type": "function", "function": {"name": name, "description": "d", "parameters": COMMAND}}
              for name in ["Read", "Bash"]]


class Agents(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.daemon.start()
        folder = pathlib.Path(cls.daemon.folder.name)
        agent_model.write(folder / "model", ["Bash"])
        (folder / "Modelfile").write_text(f"FROM {folder}/model\n")
        made = cls.daemon.cli("create", MODEL, "-f", str(folder / "Modelfile"))
        assert made.returncode == 0, made.stderr

    @classmethod
    def tearDownClass(cls):
        cls.daemon.__exit__(None, None, None)

    def ask(self, path, **body):
        reply = self.daemon.post(path, {"model": MODEL, "temperature": 0, **body})
        self.assertEqual(reply.status, 200, reply.text)
        return reply.json

    def chat(self, messages, **body):
        return self.ask("/v1/chat/completions", messages=messages, max_tokens=200, **body)["choices"][0]

    def test_chats_call_offered_tools_of_their_own_choice(self):
        messages = [{"role": "user", "content": "List the files."}]
        choice = self.chat(messages, tools=CHAT_TOOLS)
        self.assertEqual(choice["finish_reason"], "tool_calls")
        call = choice["message"]["tool_calls"][0]
        self.assertEqual(call["function"], {"name": "Bash", "arguments": '{"command":"ls"}'})
        messages += [choice["message"], {"role": "tool", "tool_call_id": call["id"], "content": "README.md"}]
        self.assertEqual(self.chat(messages, tools=CHAT_TOOLS)["message"]["content"], "Done")

    def test_tools_that_are_not_offered_or_not_allowed_are_not_called(self):
        messages = [{"role": "user", "content": "List the files."}]
        only = self.chat(messages, tools=CHAT_TOOLS[:1])["message"]["tool_calls"]
        self.assertEqual(only[0]["function"]["name"], "Read")
        allowed = {"type": "allowed_tools", "allowed_tools": {
            "mode": "auto", "tools": [{"type": "function", "function": {"name": "Read"}}]}}
        calls = self.chat(messages, tools=CHAT_TOOLS, tool_choice=allowed)["message"]["tool_calls"]
        self.assertEqual(calls[0]["function"]["name"], "Read")

    def input_with(self, syntax, definition):
        tool = {"type": "custom", "name": "Bash", "description": "d",
                "format": {"type": "grammar", "syntax": syntax, "definition": definition}}
        call = self.ask("/v1/responses", input="List the files.", tools=[tool])["output"][0]
        self.assertEqual(call["type"], "custom_tool_call")
        return call["input"]

    def test_responses_with_tools_of_every_type(self):
        members = [{"type": "function", "name": "Bash", "parameters": COMMAND, "strict": False}]
        tools = [{"type": "web_search"}, {"type": "namespace", "name": "x", "tools": members}]
        items = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "List the files."}]
        output = self.ask("/v1/responses", input=items, tools=tools)["output"]
        self.assertEqual([item["type"] for item in output], ["function_call"])
        self.assertEqual((output[0]["namespace"], output[0]["name"]), ("x", "Bash"))
        self.assertEqual(list(json.loads(output[0]["arguments"])), ["command"])
        self.assertIn("ignored_options=tools.web_search", self.daemon.log())
        answer = {"type": "function_call_output", "call_id": output[0]["call_id"], "output": "README.md"}
        done = self.ask("/v1/responses", input=items + output + [answer], tools=tools)
        self.assertEqual(done["output"][0]["content"][0]["text"], "Done")
        self.assertGreater(done["usage"]["input_tokens_details"]["cached_tokens"], 0)
        custom = [{"type": "custom", "name": "Bash", "description": "d"}]
        output = self.ask("/v1/responses", input=items, tools=custom)["output"]
        self.assertEqual((output[0]["type"], output[0]["name"], output[0]["input"]), ("custom_tool_call", "Bash", "ls"))
        self.assertIn(self.input_with("lark", 'start: "run " (A | "p")\nA.2: /nope/ -> no\n'), ["run p", "run nope"])
        self.assertRegex(self.input_with("regex", "[0-9]{3}\\n"), "^[0-9]{3}\n$")
        self.assertNotIn("not enforced in all its rules", self.daemon.log())
        self.assertEqual(self.input_with("lark", 'start: start "x" | "y"'), "ls")
        self.assertIn("not enforced in all its rules: x-grammar", self.daemon.log())
        shell = self.ask("/v1/responses", input=items, tools=[{"type": "local_shell"}])["output"][0]
        self.assertEqual((shell["type"], shell["action"]["type"]), ("local_shell_call", "exec"))
        self.assertEqual(shell["action"]["command"][0], "ls")
        forced = self.daemon.post("/v1/responses", {"model": MODEL, "input": items, "tools": tools,
                                                    "tool_choice": {"type": "web_search"}})
        self.assertEqual(forced.status, 400, forced.text)

    def test_messages_call_tools(self):
        tools = [{"name": "Bash", "input_schema": COMMAND}, {"type": "web_search_20250305", "name": "web_search"}]
        messages = [{"role": "user", "content": "List the files."}]
        reply = self.ask("/v1/messages", messages=messages, tools=tools, max_tokens=200)
        self.assertEqual(reply["stop_reason"], "tool_use")
        use = reply["content"][-1]
        self.assertEqual((use["name"], use["input"]), ("Bash", {"command": "ls"}))
        messages += [{"role": "assistant", "content": reply["content"]},
                     {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use["id"], "content": "x"}]}]
        reply = self.ask("/v1/messages", messages=messages, tools=tools, max_tokens=200)
        self.assertEqual(reply["content"][0]["text"], "Done")
        self.assertGreater(reply["usage"]["cache_read_input_tokens"], 0)

    def test_structured_output_has_the_white_space_of_the_model_or_none(self):
        schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"enum": ["yes", "no"]}, "minItems": 2,
                                                         "maxItems": 2}, "b": {"type": "integer"}},
                  "required": ["a", "b"], "additionalProperties": False}
        form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
        for seed in range(5):
            values = []
            for white_space in (True, False):
                text = self.chat([{"role": "user", "content": "x"}], response_format=form, seed=seed, temperature=2,
                                 structured_output_whitespace=white_space)["message"]["content"]
                values.append(json.loads(text))
                self.assertEqual(sorted(values[-1]), ["a", "b"])
            self.assertEqual(text, json.dumps(values[-1], separators=(",", ":"), ensure_ascii=False))
        choice = self.chat([{"role": "user", "content": "x"}],
                           response_format={"type": "json_schema", "json_schema": {"schema": {"enum": ["yes", "no"]}}})
        self.assertIn(choice["message"]["content"], ['"yes"', '"no"'])

    def test_how_the_prompt_ends(self):
        messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "Do"}]
        tokens = {}
        for name, fields in {"auto": {}, "answer": {"continue_final_message": False},
                             "messages": {"add_generation_prompt": False}}.items():
            reply = self.ask("/v1/chat/completions", messages=messages, max_tokens=4, **fields)
            tokens[name] = reply["usage"]["prompt_tokens"]
        self.assertLess(tokens["auto"], tokens["messages"])
        self.assertLess(tokens["messages"], tokens["answer"])


if __name__ == "__main__":
    unittest.main()
