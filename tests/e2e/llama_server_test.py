#!/usr/bin/env python3
"""llama.cpp's routes as its clients and editors use them, through the front door with the bundled model."""
import json
import re
import unittest

from harness import MODEL, Daemon

PROMPT = "Once upon a time"


class LlamaServer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon().start()

    @classmethod
    def tearDownClass(cls):
        assert cls.daemon.stop() == 0
        cls.daemon.folder.cleanup()

    def post(self, path, body, status=200):
        reply = self.daemon.post(path, body)
        self.assertEqual(status, reply.status, reply.text)
        return reply.json

    def complete(self, prompt, **fields):
        return self.post("/completion", {"prompt": prompt, "temperature": 0, "n_predict": 12, **fields})

    def test_a_completion_needs_no_model_and_is_that_of_the_native_api(self):
        native = self.post("/api/generate", {"model": MODEL, "prompt": PROMPT, "raw": True, "stream": False,
                                             "options": {"temperature": 0, "num_predict": 12}})
        whole = self.complete(PROMPT, return_tokens=True)
        self.assertEqual(native["response"], whole["content"])
        self.assertEqual(f"{MODEL}:latest", whole["model"])
        self.assertEqual(native["eval_count"], whole["tokens_predicted"])
        self.assertEqual({"length": "limit", "stop": "eos"}[native["done_reason"]], whole["stop_type"])
        self.assertEqual(native["eval_count"], whole["timings"]["predicted_n"])
        self.assertEqual(native["prompt_eval_count"], whole["timings"]["prompt_n"] + whole["timings"]["cache_n"])
        back = self.post("/detokenize", {"tokens": whole["tokens"]})
        self.assertEqual(whole["content"], back["content"])
        reply = self.daemon.post("/completion", {"prompt": PROMPT, "temperature": 0, "n_predict": 12, "stream": True})
        events = [json.loads(line[6:]) for line in reply.text.split("\n") if line.startswith("data: ")]
        self.assertEqual(whole["content"], "".join(event["content"] for event in events))
        self.assertEqual([False] * (len(events) - 1) + [True], [event["stop"] for event in events])

    def test_prompts_of_texts_and_ids_are_one_prompt(self):
        ids = self.post("/tokenize", {"content": " a time"})["tokens"]
        first = self.post("/tokenize", {"content": "Once upon", "add_special": True})["tokens"]
        self.assertEqual(self.complete(first + ids)["content"], self.complete(["Once upon", *ids])["content"])
        both = self.complete([PROMPT, ["Once upon", *ids]])
        self.assertEqual([0, 1], [one["index"] for one in both])
        self.assertEqual(self.complete(PROMPT)["content"], both[0]["content"])

    def test_grammars_and_schemas_constrain(self):
        grammar = 'root ::= "[" [0-9]{2} ("," [0-9]{2}){1,3} "]"'
        for path, body in (("/completion", {"prompt": PROMPT}),
                           ("/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]})):
            for seed in range(4):
                reply = self.post(path, {**body, "grammar": grammar, "temperature": 1, "seed": seed})
                text = reply["content"] if "content" in reply else reply["choices"][0]["message"]["content"]
                self.assertRegex(text, r"^\[[0-9]{2}(,[0-9]{2}){1,3}\]$")
        document = self.complete(PROMPT, n_predict=200, json_schema={"type": "array", "items": {"enum": ["a", "b"]},
                                                                     "minItems": 2, "maxItems": 2})
        self.assertEqual(2, len(json.loads(document["content"])))
        broken = self.post("/completion", {"prompt": PROMPT, "grammar": "root ::= item"}, status=400)
        self.assertIn("grammar: line 1", broken["error"]["message"])

    def test_an_editor_fills_in(self):
        extra = [{"text": "int add(int a, int b);\n", "time": 1, "filename": "add.h"}]
        warm = self.post("/infill", {"input_prefix": "", "input_suffix": "", "input_extra": extra, "prompt": "",
                                     "n_predict": 0, "temperature": 0.0, "stream": False, "samplers": [],
                                     "cache_prompt": True, "t_max_prompt_ms": 1, "t_max_predict_ms": 1,
                                     "response_fields": [""]})
        self.assertEqual({}, warm)
        filled = self.post("/infill", {
            "input_prefix": "int add(int a, int b) {\n", "input_suffix": "}\n", "input_extra": extra, "prompt": "  ",
            "n_predict": 16, "n_indent": 2, "top_k": 40, "top_p": 0.99, "stream": False, "seed": 1,
            "samplers": ["top_k", "top_p", "infill"], "cache_prompt": True, "t_max_prompt_ms": 500,
            "t_max_predict_ms": 60000,
            "response_fields": ["content", "timings/prompt_n", "timings/predicted_ms", "truncated", "tokens_cached"]})
        self.assertEqual({"content", "timings/prompt_n", "timings/predicted_ms", "truncated", "tokens_cached"},
                         set(filled))
        for line in filled["content"].split("\n")[1:-1]:
            self.assertTrue(re.match(r"[ \t]{2}", line), filled["content"])

    def test_many_alternatives_of_a_token(self):
        reply = self.post("/completion", {"prompt": PROMPT, "n_predict": 2, "n_probs": 300, "temperature": 0})
        for token in reply["completion_probabilities"]:
            best = [candidate["logprob"] for candidate in token["top_logprobs"]]
            self.assertEqual(300, len(best))
            self.assertEqual(sorted(best, reverse=True), best)
            self.assertEqual(token["id"], token["top_logprobs"][0]["id"])
        refused = self.post("/completion", {"prompt": PROMPT, "n_probs": 1001}, status=400)
        self.assertIn("n_probs", refused["error"]["message"])

    def test_a_saved_slot_is_restored(self):
        prompt = "A long story about a fox that runs through the wood. " * 8
        first = self.complete(prompt, id_slot=1)
        saved = self.post("/slots/1?action=save", {"filename": "fox"})
        # All but the last token, which is EOS or was not computed.
        tokens = first["tokens_evaluated"] + first["tokens_predicted"]
        self.assertEqual(tokens - (first["stop_type"] == "limit"), saved["n_saved"])
        self.assertEqual(saved["n_saved"], self.post("/slots/1?action=erase", {})["n_erased"])
        restored = self.post("/slots/1?action=restore", {"filename": "fox"})
        self.assertEqual(saved["n_saved"], restored["n_restored"])
        again = self.complete(prompt, id_slot=1)
        self.assertEqual(first["content"], again["content"])
        self.assertGreater(again["tokens_cached"], 0)
        self.post("/slots/0?action=restore", {"filename": "nothing"}, status=404)

    def test_chats_without_version_have_timings(self):
        body = {"messages": [{"role": "user", "content": "Hi"}], "temperature": 0, "max_tokens": 8}
        with_version = self.post("/v1/chat/completions", {"model": MODEL, **body})
        without = self.post("/chat/completions", body)
        self.assertEqual(with_version["choices"], without["choices"])
        self.assertEqual(without["usage"]["completion_tokens"], without["timings"]["predicted_n"])
        self.assertNotIn("timings", with_version)
        self.post("/v1/chat/completions", body, status=400)
        vectors = self.post("/embeddings", {"content": ["a", "b"]})
        native = self.post("/api/embed", {"model": MODEL, "input": ["a", "b"]})["embeddings"]
        self.assertEqual([[vector] for vector in native], [entry["embedding"] for entry in vectors])
        self.assertEqual(self.daemon.get("/v1/models").json, self.daemon.get("/models").json)


if __name__ == "__main__":
    unittest.main()
