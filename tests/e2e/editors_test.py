#!/usr/bin/env python3
"""The requests of llama.vim and llama.vscode, as they send them, with the bundled model."""
import json
import unittest

from harness import MODEL, Daemon

# llama.vim names them one by one; llama.vscode takes the same.
TIMINGS = [f"timings/{part}_{figure}" for part in ("prompt", "predicted")
           for figure in ("n", "ms", "per_token_ms", "per_second")]
FIELDS = ["content", *TIMINGS, "truncated", "tokens_cached"]
EXTRA = [{"text": "int add(int a, int b);\nint sub(int a, int b);\n", "time": 1731, "filename": "add.h"},
         {"text": "#include \"add.h\"\n", "time": 1732, "filename": "main.c"}]
PREFIX, LINE, SUFFIX = "#include \"add.h\"\n\nint add(int a, int b) {\n", "    return ", "\n}\n"


def vim_fim(**fields):
    return {"id_slot": 0, "input_prefix": PREFIX, "input_suffix": SUFFIX, "input_extra": EXTRA, "prompt": LINE,
            "n_predict": 24, "stop": [], "n_indent": 4, "top_k": 40, "top_p": 0.90, "stream": False,
            "samplers": ["top_k", "top_p", "infill"], "cache_prompt": True, "t_max_prompt_ms": 500,
            "t_max_predict_ms": 60000, "response_fields": FIELDS, **fields}


def vim_warm_up(extra):
    return {"id_slot": 0, "input_prefix": "", "input_suffix": "", "input_extra": extra, "prompt": "", "n_predict": 0,
            "temperature": 0.0, "stream": False, "samplers": [], "cache_prompt": True, "t_max_prompt_ms": 1,
            "t_max_predict_ms": 1, "response_fields": [""]}


def vscode_fim(**fields):
    return {"id_slot": 0, "input_prefix": PREFIX, "input_suffix": SUFFIX, "input_extra": EXTRA, "prompt": LINE,
            "n_predict": 24, "top_k": 40, "top_p": 0.99, "stream": False, "n_indent": 4,
            "samplers": ["top_k", "top_p", "infill"], "cache_prompt": True, "t_max_prompt_ms": 500,
            "t_max_predict_ms": 60000, "response_fields": FIELDS, **fields}


class Editors(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon().start()

    @classmethod
    def tearDownClass(cls):
        assert cls.daemon.stop() == 0
        cls.daemon.folder.cleanup()

    def post(self, path, body):
        reply = self.daemon.request("POST", path, body, {"Content-Type": "application/json", "Authorization": "Bearer x"})
        self.assertEqual(200, reply.status, reply.text)
        return reply.json

    def test_vim_and_vscode_fill_in(self):
        for body in (vim_fim(seed=1), vscode_fim(seed=1)):
            reply = self.post("/infill", body)
            self.assertEqual(set(FIELDS), set(reply))
            self.assertGreater(reply["timings/predicted_n"], 0)
            self.assertLessEqual(reply["timings/predicted_n"], 24)
            self.assertGreater(reply["timings/prompt_ms"], 0)
            self.assertFalse(reply["truncated"])
            for line in reply["content"].split("\n")[1:-1]:
                self.assertEqual("    ", line[:4].replace("\t", " "), reply["content"])
            # The editor sends the same place again: the prompt is cached, the answer is the same.
            again = self.post("/infill", body)
            self.assertEqual(reply["content"], again["content"])
            self.assertGreater(again["tokens_cached"], 0)
            self.assertLess(again["timings/prompt_n"], 8)

    def test_a_warm_up_computes_the_context_of_the_next_request(self):
        extra = [{"text": f"void f{i}(int number);\n" * 8, "time": i, "filename": f"f{i}.h"} for i in range(4)]
        self.assertEqual({}, self.post("/infill", vim_warm_up(extra)))
        warm = self.post("/infill", vim_fim(input_extra=extra))
        self.assertGreater(warm["tokens_cached"], 100)
        # One file leaves the ring, another comes.
        self.assertEqual({}, self.post("/infill", vim_warm_up(extra[1:] + EXTRA)))

    def test_a_limit_of_time_only_cuts_the_answer(self):
        body = vim_fim(n_predict=100, n_indent=0, prompt="", seed=1)
        whole = self.post("/infill", {**body, "t_max_predict_ms": 0})["content"]
        cut = self.post("/infill", {**body, "t_max_predict_ms": 1})["content"]
        self.assertTrue(whole.startswith(cut), (whole, cut))

    def test_samplers_that_are_not_listed_are_off(self):
        quiet = self.post("/infill", vim_fim(seed=1))["content"]
        loud = {"dry_multiplier": 5, "xtc_probability": 1, "top_n_sigma": 0.1, "min_p": 0.9, "typical_p": 0.1,
                "repeat_penalty": 3, "presence_penalty": 5}
        self.assertEqual(quiet, self.post("/infill", vim_fim(seed=1, **loud))["content"])

    def test_vim_instructs(self):
        messages = [{"role": "system", "content": "You are a text-editing assistant."},
                    {"role": "user", "content": "Make it shorter: one two three"}]
        warm = {"id_slot": 0, "model": MODEL, "messages": messages, "samplers": [], "n_predict": 0, "stream": False,
                "cache_prompt": True, "response_fields": [""]}
        self.assertEqual(0, self.post("/v1/chat/completions", warm)["usage"]["completion_tokens"])
        body = {"id_slot": 0, "model": MODEL, "messages": messages, "min_p": 0.1, "temperature": 0.1,
                "samplers": ["min_p", "temperature"], "stream": True, "cache_prompt": True, "max_tokens": 12}
        # Prefixes are shared by requests of the same key.
        reply = self.daemon.request("POST", "/v1/chat/completions", {**body, "stream_options": {"include_usage": True}},
                                    {"Authorization": "Bearer x"})
        self.assertEqual(200, reply.status, reply.text)
        events = [json.loads(line[6:]) for line in reply.text.split("\n") if line.startswith("data: {")]
        self.assertGreater(events[-1]["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
        self.assertTrue("".join(event["choices"][0]["delta"].get("content") or "" for event in events[:-1]))

    def test_vscode_looks_before_it_asks(self):
        self.assertEqual("ok", self.daemon.get("/health").json["status"])
        self.assertIn(f"{MODEL}:latest", [model["id"] for model in self.daemon.get("/v1/models").json["data"]])
        self.assertGreater(self.daemon.get("/props").json["default_generation_settings"]["n_ctx"], 0)
        chat = self.post("/v1/chat/completions", {"model": MODEL, "stream": False, "temperature": 0.8, "top_p": 0.95,
                                                  "max_tokens": 4, "messages": [{"role": "user", "content": "Hi"}]})
        self.assertEqual(1, len(chat["choices"]))


if __name__ == "__main__":
    unittest.main()
