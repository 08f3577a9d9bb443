#!/usr/bin/env python3
"""Fields that clients of other servers send, on every OpenAI route of a running daemon: each is honored, refused by its
name, known to change no answer, or logged. The parsers' own table: api/known_fields_test.cc."""
import json
import unittest

from harness import MODEL, Daemon

BODIES = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1},
    "/v1/completions": {"prompt": "Once upon a time", "max_tokens": 1},
    "/v1/responses": {"input": "Hi", "max_output_tokens": 1},
    "/v1/embeddings": {"input": "Hi"},
}
GENERATES = list(BODIES)[:3]
REFUSED = {
    "guided_grammar": "x", "ebnf": "x", "structural_tag": "x", "bad_words": ["x"], "logits_processors": ["x"],
    "allowed_token_ids": [5], "use_beam_search": True, "length_penalty": 0.5, "min_keep": 2,
    "include_stop_str_in_output": True, "skip_special_tokens": False, "documents": [{"text": "x"}], "tfs_z": 0.5,
    "top_a": 0.5, "dynatemp_range": 0.5, "smoothing_factor": 0.5, "typical": 0.5, "ban_eos_token": True,
    "banned_strings": ["x"], "grammar_lazy": True, "post_sampling_probs": True, "lora": [{"id": 0, "scale": 1}],
    "return_token_ids": True, "stop_regex": "x", "stop_sequences": ["x"], "negative_prompt": "x", "transforms": ["x"],
    "plugins": [{"id": "web"}], "models": ["x"], "n_probs": 2, "t_max_predict_ms": 5, "n_indent": 2, "best_of": 3,
    "reasoning_format": "none", "truncate_prompt_tokens": 5, "echo": True, "system": "x", "logprobs": "x",
}
ONLY_REFUSED_AT = {"echo": ["/v1/chat/completions", "/v1/responses"], "system": ["/v1/chat/completions", "/v1/responses"]}
HONORED = {  # a value of a wrong type or range is refused by the field's name
    "typical_p": "x", "repeat_last_n": "x", "repeat_penalty": "x", "repetition_penalty": "x", "min_p": 7, "top_k": "x",
    "dry_multiplier": -1, "xtc_probability": 2, "top_n_sigma": "x", "mirostat": 5, "samplers": "x", "ignore_eos": "x",
    "min_tokens": -1, "stop": 5, "stop_token_ids": "x", "logit_bias": 5, "seed": "x", "n_predict": "x",
    "max_new_tokens": "x", "num_ctx": "x", "response_format": 5, "grammar": 5, "json_schema": 5, "guided_json": 5,
    "guided_regex": 5, "regex": 5, "guided_choice": 5, "structured_outputs": 5, "format": 5, "cache_salt": 5, "keep_alive": [],
}
HARMLESS = {
    "user": "x", "metadata": {"a": "b"}, "store": True, "service_tier": "auto", "safety_identifier": "x",
    "prompt_cache_key": "x", "prediction": {"type": "content", "content": "x"}, "priority": 1, "request_id": "x",
    "cache_prompt": False, "id_slot": 1, "n_keep": 5, "t_max_prompt_ms": 5, "response_fields": [""],
}


class KnownFields(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon().start()

    @classmethod
    def tearDownClass(cls):
        assert cls.daemon.stop() == 0
        cls.daemon.folder.cleanup()

    def send(self, path, **fields):
        return self.daemon.post(path, {"model": MODEL, **BODIES[path], **fields})

    def expect_refused(self, path, name, value):
        reply = self.send(path, **{name: value})
        self.assertEqual(400, reply.status, f"{path} {name}: {reply.text}")
        error = reply.json["error"]
        self.assertEqual(name, error["param"].split(".")[0].split("[")[0], f"{path}: {error}")
        self.assertIn(name, error["message"], path)

    def test_what_cannot_be_honored_is_refused_by_name(self):
        for path in GENERATES:
            for name, value in REFUSED.items():
                if path in ONLY_REFUSED_AT.get(name, GENERATES):
                    self.expect_refused(path, name, value)
        for name in ["instruction", "prompt_name", "truncate_prompt_tokens", "truncate"]:
            self.expect_refused("/v1/embeddings", name, "x")

    def test_what_is_honored_is_read(self):
        for path in GENERATES:
            for name, value in HONORED.items():
                self.expect_refused(path, name, value)

    def test_what_changes_no_answer_is_accepted_and_the_rest_is_logged(self):
        for path in BODIES:
            before = len(self.daemon.log())
            reply = self.send(path, **HARMLESS)
            self.assertEqual(200, reply.status, f"{path}: {reply.text}")
            self.assertNotIn("ignored_options", self.daemon.log()[before:], path)
            reply = self.send(path, temprature=0.5, web_search_options={})
            self.assertEqual(200, reply.status, f"{path}: {reply.text}")
            self.assertIn("ignored_options=temprature,web_search_options", self.daemon.log()[before:], path)

    def answer(self, **fields):
        reply = self.send("/v1/completions", **{"prompt": "a b c d a b c d a b c d a b c", "max_tokens": 24, "seed": 3,
                                                **fields})
        self.assertEqual(200, reply.status, reply.text)
        return reply.json["choices"][0]

    def test_samplers_at_the_top_level_are_those_of_the_options(self):
        cases = [({"typical_p": 0.2}, {}), ({"mirostat": 2, "mirostat_tau": 0.1}, {"temperature": 2}), ({"repeat_last_n": 2}, {"repeat_penalty": 1.8}),
                 ({"dry_multiplier": 2}, {"temperature": 0}), ({"repeat_penalty": 1.8}, {"temperature": 0})]
        for fields, more in cases:
            top = self.answer(**fields, **more)
            self.assertEqual(self.answer(options={**fields, **more}), top, fields)
            self.assertNotEqual(self.answer(**more), top, fields)
        only = self.answer(samplers=["top_k"], top_k=1, temperature=5)
        self.assertEqual(self.answer(temperature=0), only)

    def test_progress_and_timings(self):
        prompt = "A fox runs through the wood. " * 120
        for path in ["/v1/chat/completions", "/v1/completions", "/completion"]:
            body = {"model": MODEL, "stream": True, "return_progress": True, "timings_per_token": True, "max_tokens": 4,
                    "cache_salt": path, "ignore_eos": True,
                    **({"messages": [{"role": "user", "content": prompt}]} if "chat" in path else {"prompt": prompt})}
            lines = self.daemon.post(path, body).text.split("\n")
            events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
            reports = [event["prompt_progress"] for event in events if "prompt_progress" in event]
            self.assertGreater(len(reports), 1, path)
            self.assertEqual(reports[0]["cache"], reports[0]["processed"])
            for before, after in zip(reports, reports[1:]):
                self.assertLess(before["processed"], after["processed"])
                self.assertLess(after["processed"], after["total"])
                self.assertGreaterEqual(after["time_ms"], before["time_ms"])
            rest = events[len(reports):]
            self.assertTrue(all("prompt_progress" not in event for event in rest))
            self.assertEqual(4, rest[-1]["timings"]["predicted_n"], path)
            self.assertGreater(sum("timings" in event for event in rest), 1, path)
        whole = self.send("/v1/completions", timings_per_token=True).json
        self.assertEqual(whole["usage"]["completion_tokens"], whole["timings"]["predicted_n"])

    def test_responses_have_timings(self):
        for path in ["/v1/responses", "/responses"]:
            body = {"model": MODEL, "input": "Hi", "max_output_tokens": 4}
            reply = self.daemon.post(path, body).json
            self.assertEqual(reply["usage"]["output_tokens"], reply["timings"]["predicted_n"])
            stream = self.daemon.post(path, {**body, "stream": True})
            last = json.loads(stream.text.strip().split("\n")[-1][6:])
            self.assertEqual(4, last["response"]["timings"]["predicted_n"])
        reply = self.daemon.post("/v1/responses", {"model": MODEL, "input": "Hi", "max_output_tokens": 4, "truncation": "auto"})
        self.assertEqual("auto", reply.json["truncation"])


if __name__ == "__main__":
    unittest.main()
