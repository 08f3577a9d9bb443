#!/usr/bin/env python3
"""What the dialects promise beyond a plain answer, seen through the front door with the bundled model."""
import json
import unittest

from harness import MODEL, Daemon


def completion(prompt, max_tokens=8, **fields):
    return {"model": MODEL, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, **fields}


def chat(content, max_tokens=8, **fields):
    return {"model": MODEL, "messages": [{"role": "user", "content": content}], "max_tokens": max_tokens,
            "temperature": 0, **fields}


def events(reply):
    """The JSON of every data line but [DONE]."""
    lines = [line[6:] for line in reply.text.split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


class Dialects(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon().start()

    @classmethod
    def tearDownClass(cls):
        assert cls.daemon.stop() == 0
        cls.daemon.folder.cleanup()

    def post(self, path, body):
        reply = self.daemon.post(path, body)
        self.assertEqual(200, reply.status, reply.text)
        return reply.json


class Completions(Dialects):
    def test_a_completion_is_the_raw_prompt_of_the_native_api(self):
        raw = self.post("/api/generate", {"model": MODEL, "prompt": "Once upon a time", "raw": True, "stream": False,
                                          "options": {"temperature": 0, "top_p": 1, "num_predict": 8}})
        self.assertEqual(raw["response"], self.post("/v1/completions",
                                                    completion("Once upon a time"))["choices"][0]["text"])

    def test_choices_of_a_prompt_share_it_and_a_seed_repeats_them(self):
        prompt = "A long story about a fox. " * 8
        body = completion(prompt, n=4, seed=3) | {"temperature": 1}
        first = self.post("/v1/completions", body)
        texts = [choice["text"] for choice in first["choices"]]
        self.assertEqual(list(range(4)), [choice["index"] for choice in first["choices"]])
        self.assertGreater(len(set(texts)), 1)
        self.assertEqual(texts, [choice["text"] for choice in self.post("/v1/completions", body)["choices"]])
        alone = self.post("/v1/completions", body | {"n": 1, "seed": 5})
        self.assertEqual(texts[2], alone["choices"][0]["text"])

    def test_chat_choices_stream_to_what_they_are_whole(self):
        body = chat("Tell me a story.", n=3, seed=1, logprobs=True) | {"temperature": 1}
        whole = self.post("/v1/chat/completions", body)
        reply = self.daemon.post("/v1/chat/completions",
                                 body | {"stream": True, "stream_options": {"include_usage": True}})
        texts = ["", "", ""]
        for event in events(reply):
            for choice in event["choices"]:
                texts[choice["index"]] += choice["delta"].get("content", "")
        self.assertEqual([choice["message"]["content"] for choice in whole["choices"]], texts)
        usage = events(reply)[-1]["usage"]
        self.assertEqual(whole["usage"]["total_tokens"], usage["total_tokens"])
        self.assertEqual(usage["completion_tokens"], sum(len(choice["logprobs"]["content"])
                                                         for choice in whole["choices"]))

    def test_prompts_of_any_form(self):
        ids = self.post("/api/generate", {"model": MODEL, "prompt": "hi", "stream": False,
                                          "options": {"num_predict": 1}})["context"]
        one = self.post("/v1/completions", completion(ids))
        two = self.post("/v1/completions", completion([ids, ids[:2]]))
        self.assertEqual(one["choices"][0]["text"], two["choices"][0]["text"])
        self.assertEqual(len(ids), one["usage"]["prompt_tokens"])
        self.assertEqual(len(ids) + 2, two["usage"]["prompt_tokens"])
        refused = self.daemon.post("/v1/completions", completion([10 ** 8]))
        self.assertEqual(400, refused.status)
        self.assertEqual("prompt", refused.json["error"]["param"])

    def test_biases_ban_and_force(self):
        answer = self.post("/api/generate", {"model": MODEL, "prompt": "Hello!", "stream": False,
                                             "options": {"temperature": 0, "num_predict": 4}})
        prompt, first = (answer["context"][:answer["prompt_eval_count"]],
                         answer["context"][answer["prompt_eval_count"]])
        base = completion(prompt, 1, logprobs=1)
        free = self.post("/v1/completions", base)["choices"][0]
        self.assertEqual(free["logprobs"]["tokens"][0], free["text"])
        banned = self.post("/v1/completions", base | {"logit_bias": {str(first): -100}})["choices"][0]
        self.assertNotEqual(free["text"], banned["text"])
        # Log-probabilities stay those of the model: what was banned is still its best.
        self.assertIn(free["text"], banned["logprobs"]["top_logprobs"][0])
        forced = self.post("/v1/completions", base | {"max_tokens": 4, "logit_bias": {str(first): 100}})["choices"][0]
        self.assertEqual(free["text"] * 4, forced["text"])
        self.assertEqual("length", forced["finish_reason"])

    def test_the_end_can_be_kept_away(self):
        ends = self.post("/v1/chat/completions", chat("Hello!", 40))
        self.assertEqual("stop", ends["choices"][0]["finish_reason"])
        count = ends["usage"]["completion_tokens"]
        later = self.post("/v1/chat/completions", chat("Hello!", 40, min_tokens=count + 5))
        self.assertGreaterEqual(later["usage"]["completion_tokens"], count + 5)
        never = self.post("/v1/chat/completions", chat("Hello!", 40, ignore_eos=True))
        self.assertEqual(40, never["usage"]["completion_tokens"])
        native = self.post("/api/chat", {"model": MODEL, "messages": [{"role": "user", "content": "Hello!"}],
                                         "stream": False, "options": {"temperature": 0, "num_predict": 30,
                                                                      "ignore_eos": True}})
        self.assertEqual(30, native["eval_count"])

    def test_echo_and_no_tokens(self):
        reply = self.post("/v1/completions", completion("Once upon", 0, echo=True))
        self.assertEqual("Once upon", reply["choices"][0]["text"])
        self.assertEqual(0, reply["usage"]["completion_tokens"])


    def test_every_token_can_have_its_chunk(self):
        body = completion("Once upon a time", 24, ignore_eos=True, seed=5, stream=True,
                          stream_options={"continuous_usage_stats": True}) | {"temperature": 2}
        chunks = events(self.daemon.post("/v1/completions", body))
        counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
        # The last ones: what was held back, and the end.
        self.assertEqual(list(range(1, 24)), counts[:23])
        self.assertEqual(24, counts[-1])

    def test_fill_in_the_middle(self):
        reply = self.post("/v1/completions", completion("def add(a, b):\n", suffix="\nprint(add(1, 2))", logprobs=0))
        native = self.post("/api/generate", {"model": MODEL, "prompt": "def add(a, b):\n", "stream": False,
                                             "suffix": "\nprint(add(1, 2))",
                                             "options": {"temperature": 0, "top_p": 1, "num_predict": 8}})
        self.assertEqual(native["response"], reply["choices"][0]["text"])
        self.assertEqual(native["prompt_eval_count"], reply["usage"]["prompt_tokens"])
        pieces = self.post("/detokenize", {"model": MODEL, "tokens": native["context"][:native["prompt_eval_count"]]})
        self.assertRegex(pieces["content"], r"<\|fim_pre\|>def add\(a, b\):\n<\|fim_suf\|>\nprint.*<\|fim_mid\|>$")


class Responses(Dialects):
    def test_a_response_is_the_chat_of_its_items(self):
        reply = self.post("/v1/responses", {"model": MODEL, "instructions": "Be kind.", "temperature": 0,
                                            "input": [{"role": "user", "content": "Hello!"}],
                                            "max_output_tokens": 16})
        same = self.post("/v1/chat/completions", {"model": MODEL, "temperature": 0, "max_tokens": 16, "messages": [
            {"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello!"}]})
        self.assertEqual(same["choices"][0]["message"]["content"], reply["output"][0]["content"][0]["text"])
        self.assertEqual(same["usage"]["prompt_tokens"], reply["usage"]["input_tokens"])
        stream = self.daemon.post("/v1/responses", {"model": MODEL, "input": "Tell me a story.", "stream": True,
                                                    "max_output_tokens": 8, "temperature": 0})
        received = events(stream)
        self.assertEqual(list(range(len(received))), [event["sequence_number"] for event in received])
        self.assertEqual("response.incomplete", received[-1]["type"])
        text = "".join(event["delta"] for event in received if event["type"] == "response.output_text.delta")
        self.assertEqual(text, received[-1]["response"]["output"][0]["content"][0]["text"])


class LogLikelihoods(Dialects):
    """What lm-evaluation-harness and vLLM's clients ask for."""
    TEXT = "Once upon a time, a fox w\u00f6ke \U0001f600 up."

    def ids(self, text, **fields):
        return self.post("/tokenize", {"model": MODEL, "prompt": text, **fields})["tokens"]

    def test_an_echo_has_the_prompts_logprobs(self):
        ids = self.ids(self.TEXT)
        fields = {"echo": True, "logprobs": 2, "max_tokens": 3}
        by_text = self.post("/v1/completions", completion(self.TEXT, **fields))["choices"][0]
        by_ids = self.post("/v1/completions", completion(ids, **fields))["choices"][0]
        plain = self.post("/v1/completions", completion(ids, max_tokens=3, logprobs=2))["choices"][0]
        self.assertEqual(self.TEXT + plain["text"], by_text["text"])
        self.assertTrue(by_ids["text"].endswith(by_text["text"]), "BOS is one of the tokens")
        for choice in (by_text, by_ids):
            lists = choice["logprobs"]
            self.assertEqual({len(ids) + 3}, {len(values) for values in lists.values()})
            self.assertIsNone(lists["token_logprobs"][0])
            self.assertIsNone(lists["top_logprobs"][0])
            self.assertTrue(all(value <= 0 for value in lists["token_logprobs"][1:]))
            for name in ("tokens", "token_logprobs", "top_logprobs"):
                self.assertEqual(plain["logprobs"][name], lists[name][-3:], name)
            for token, offset in zip(lists["tokens"], lists["text_offset"]):
                if "\ufffd" not in token and token in choice["text"]:
                    self.assertEqual(token, choice["text"][offset:offset + len(token)])
        self.assertEqual(by_text["logprobs"]["token_logprobs"], by_ids["logprobs"]["token_logprobs"])

    def test_no_token_need_be_sampled_and_a_list_is_scored_one_by_one(self):
        texts = [self.TEXT, "The fox.", "Another story about a boat and the moon."]
        fields = {"echo": True, "logprobs": 1, "max_tokens": 0}
        alone = [self.post("/v1/completions", completion(text, **fields))["choices"][0]["logprobs"] for text in texts]
        for prompts in (texts, [self.ids(text) for text in texts]):
            reply = self.post("/v1/completions", completion(prompts, **fields))
            self.assertEqual(0, reply["usage"]["completion_tokens"])
            for one, choice in zip(alone, reply["choices"]):
                self.assertEqual("length", choice["finish_reason"])
                self.assertEqual(one["token_logprobs"], choice["logprobs"]["token_logprobs"])
                self.assertEqual(one["top_logprobs"], choice["logprobs"]["top_logprobs"])
        both = self.post("/v1/completions", completion("The fox.", n=2, **fields))["choices"]
        self.assertEqual([alone[1]] * 2, [choice["logprobs"] for choice in both])
        nothing = self.post("/v1/completions", completion("The fox.", max_tokens=0))
        self.assertEqual(("", "length"), (nothing["choices"][0]["text"], nothing["choices"][0]["finish_reason"]))

    def test_the_token_that_ends_an_answer_has_a_logprob_behind_the_prompts(self):
        # The harness takes the last log-probability off, as that of the one token that it has sampled.
        end = self.ids(self.daemon.get("/tokenizer_info").json["eos_token"], add_special_tokens=False)
        ids = self.ids(self.TEXT)
        fields = {"logprobs": 1, "max_tokens": 1, "logit_bias": {str(end[0]): 100}}
        for stream in (False, True):
            reply = self.daemon.post("/v1/completions", completion(ids, echo=True, stream=stream, **fields))
            choices = [event["choices"][0] for event in events(reply)] if stream else reply.json["choices"]
            lists = [choice["logprobs"]["token_logprobs"] for choice in choices if choice["logprobs"]]
            self.assertEqual(len(ids) + 1, len(sum(lists, [])))
            self.assertEqual("stop", choices[-1]["finish_reason"])
        self.assertIsNone(self.post("/v1/completions", completion(ids, **fields))["choices"][0]["logprobs"])

    def test_a_stream_begins_with_the_prompt(self):
        text = "A long story about a fox that runs through the wood. " * 12
        for prompt in (text, self.ids(text)):
            body = completion(prompt, echo=True, logprobs=1)
            whole = self.post("/v1/completions", body)["choices"][0]
            pieces = [event["choices"][0] for event in events(self.daemon.post("/v1/completions", body | {"stream": True}))]
            self.assertEqual(whole["text"], "".join(piece["text"] for piece in pieces))
            for name, values in whole["logprobs"].items():
                lists = [piece["logprobs"][name] for piece in pieces if piece["logprobs"]]
                self.assertEqual(values, sum(lists, []), name)
        echo = self.post("/v1/completions", completion([1, 5, 300], echo=True, max_tokens=0))["choices"][0]
        self.assertEqual(self.post("/detokenize", {"tokens": [1, 5, 300]})["prompt"], echo["text"])

    def test_prompt_logprobs_in_vllms_shape(self):
        ids = self.ids(self.TEXT)
        echoed = self.post("/v1/completions", completion(ids, 0, echo=True, logprobs=2))["choices"][0]["logprobs"]
        choice = self.post("/v1/completions", completion(ids, 1, prompt_logprobs=2))["choices"][0]
        self.assertIsNone(choice["logprobs"])
        self.assertIsNone(choice["prompt_logprobs"][0])
        for i in range(1, len(ids)):
            entry = choice["prompt_logprobs"][i]
            own = entry[str(ids[i])]
            self.assertEqual(echoed["token_logprobs"][i], own["logprob"])
            self.assertEqual(echoed["tokens"][i], own["decoded_token"])
            self.assertEqual(sorted({1, 2, own["rank"]}), sorted(one["rank"] for one in entry.values()))
        messages = [{"role": "user", "content": "Hello!"}]
        tokens = self.post("/tokenize", {"model": MODEL, "messages": messages})["tokens"]
        reply = self.post("/v1/chat/completions", chat("Hello!", 2, prompt_logprobs=0, n=2))
        self.assertEqual([[str(token)] for token in tokens[1:]], [list(one) for one in reply["prompt_logprobs"][1:]])
        self.assertNotIn("prompt_logprobs", self.post("/v1/chat/completions", chat("Hello!", 2)))

    def test_the_tokenizer_describes_itself(self):
        info = self.daemon.get("/tokenizer_info").json
        self.assertEqual(self.post("/detokenize", {"tokens": self.ids("")})["prompt"], info["bos_token"])
        self.assertIn("{%", info["chat_template"])
        counted = self.post("/tokenize", {"prompt": "The fox", "add_special_tokens": False, "return_token_strs": True})
        self.assertEqual({"count", "max_model_len", "tokens", "token_strs"}, set(counted))
        self.assertEqual((counted["count"], "The fox"), (len(counted["tokens"]), "".join(counted["token_strs"])))
        self.assertGreater(counted["max_model_len"], 0)
        prompt = self.post("/apply-template", {"messages": [{"role": "user", "content": "Hello!"}]})["prompt"]
        rendered = self.ids(prompt, add_special_tokens=False)
        self.assertEqual(rendered, self.post("/tokenize", {"messages": [{"role": "user", "content": "Hello!"}]})["tokens"])
        self.assertEqual(404, self.daemon.get("/tokenizer_info?model=nobody").status)


class Tokens(Dialects):
    TEXT = "Hello, w\u00f6rld \U0001f600 123"

    def test_text_and_tokens_and_back(self):
        tokens = self.post("/tokenize", {"model": MODEL, "content": self.TEXT})["tokens"]
        self.assertEqual(self.TEXT, self.post("/detokenize", {"tokens": tokens})["content"])
        pieces = self.post("/tokenize", {"content": self.TEXT, "with_pieces": True})["tokens"]
        self.assertEqual(tokens, [piece["id"] for piece in pieces])
        joined = b"".join(piece["piece"].encode() if isinstance(piece["piece"], str) else bytes(piece["piece"])
                          for piece in pieces)
        self.assertEqual(self.TEXT, joined.decode())
        self.assertEqual([], self.post("/tokenize", {"content": ""})["tokens"])
        self.assertEqual("", self.post("/detokenize", {"tokens": []})["content"])

    def test_a_completion_of_the_tokens_is_that_of_the_text(self):
        tokens = self.post("/tokenize", {"model": MODEL, "content": "Once upon a time", "add_special": True})["tokens"]
        by_ids = self.post("/v1/completions", completion(tokens))
        by_text = self.post("/v1/completions", completion("Once upon a time"))
        self.assertEqual(by_text["choices"], by_ids["choices"])
        self.assertEqual(len(tokens), by_text["usage"]["prompt_tokens"])

    def test_what_the_server_says_of_itself(self):
        self.post("/tokenize", {"model": MODEL, "content": "x"})
        prompt = self.post("/apply-template", {"messages": [{"role": "user", "content": "Hello!"}]})["prompt"]
        self.assertIn("Hello!", prompt)
        native = self.post("/api/chat", {"model": MODEL, "messages": [{"role": "user", "content": "Hello!"}],
                                         "stream": False, "options": {"num_predict": 1}})
        tokens = self.post("/tokenize", {"model": MODEL, "content": prompt})["tokens"]
        self.assertEqual(native["prompt_eval_count"], len(tokens))
        for path in ("/props", f"/props?model={MODEL}"):
            props = self.daemon.get(path).json
            self.assertEqual(f"{MODEL}:latest", props["model_alias"])
            self.assertGreater(props["default_generation_settings"]["n_ctx"], 0)
            self.assertIn("{%", props["chat_template"])
        self.assertEqual(404, self.daemon.get("/props?model=nobody").status)
        slots = self.daemon.get("/slots").json
        self.assertEqual([False], [slot["is_processing"] for slot in slots])

    def test_ids_that_there_are_not(self):
        reply = self.daemon.post("/detokenize", {"model": MODEL, "tokens": [10 ** 9]})
        self.assertEqual(400, reply.status, reply.text)
        self.assertIn("tokens", reply.json["error"])

    def test_context_goes_round(self):
        options = {"temperature": 0, "num_predict": 6}
        first = self.post("/api/generate", {"model": MODEL, "prompt": "Hello!", "stream": False, "options": options})
        second = self.post("/api/generate", {"model": MODEL, "prompt": "Tell me more.", "stream": False,
                                             "options": options, "context": first["context"]})
        self.assertEqual(first["context"], second["context"][:len(first["context"])])
        self.assertEqual(len(second["context"]), second["prompt_eval_count"] + second["eval_count"]
                         + (1 if second["done_reason"] == "stop" else 0))


class Anthropic(Dialects):
    def test_counting_is_what_is_billed(self):
        body = {"model": MODEL, "system": "Be brief.", "max_tokens": 4,
                "messages": [{"role": "user", "content": [{"type": "text", "text": "Tell me about foxes."}]}]}
        count = self.post("/v1/messages/count_tokens", body)["input_tokens"]
        for _ in range(2):
            usage = self.post("/v1/messages", body)["usage"]
            self.assertEqual(count, usage["input_tokens"] + usage["cache_read_input_tokens"])
        self.assertGreater(usage["cache_read_input_tokens"], 0)
        long = {"model": MODEL, "messages": [{"role": "user", "content": "fox " * 20000}]}
        self.assertGreater(self.post("/v1/messages/count_tokens", long)["input_tokens"], 20000)
        refused = self.daemon.post("/v1/messages", long | {"max_tokens": 1})
        self.assertEqual(400, refused.status)
        # Clients recognize these words and compact the conversation.
        self.assertRegex(refused.json["error"]["message"], r"^prompt is too long: \d+ tokens > \d+ maximum$")

    def test_the_same_conversation_is_the_same_prompt_in_every_dialect(self):
        native = self.post("/api/chat", {"model": MODEL, "stream": False,
                                         "messages": [{"role": "system", "content": "Be kind."},
                                                      {"role": "user", "content": "Hello!"}],
                                         "options": {"temperature": 0, "num_predict": 16, "top_p": 1}})
        anthropic = self.post("/v1/messages", {"model": MODEL, "system": "Be kind.", "max_tokens": 16,
                                               "temperature": 0,
                                               "messages": [{"role": "user", "content": "Hello!"}]})
        self.assertEqual(native["message"]["content"], anthropic["content"][0]["text"])
        usage = anthropic["usage"]
        self.assertEqual(native["prompt_eval_count"], usage["input_tokens"] + usage["cache_read_input_tokens"])


if __name__ == "__main__":
    unittest.main()
