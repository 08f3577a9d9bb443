#!/usr/bin/env python3
"""Every numeric field of every endpoint against hostile values: an answer, or 400 with the field's name. Never a 5xx."""
import http.client
import json
import unittest

from harness import MODEL, TIMEOUT_S, Daemon

VALUES = ["-1", "0", "-2147483648", "2147483648", "9223372036854775808", '"NaN"', "3e38", "1e308", '"1"', "null", "[]",
          "{}"]

OPTIONS = ["num_ctx", "num_predict", "num_keep", "temperature", "top_k", "top_p", "min_p", "typical_p", "repeat_last_n",
           "repeat_penalty", "presence_penalty", "frequency_penalty", "seed", "min_tokens", "num_batch", "num_gpu",
           "main_gpu", "num_thread", "draft_num_predict", "mirostat", "mirostat_tau", "mirostat_eta", "tfs_z"]
SAMPLING = ["temperature", "top_p", "seed", "presence_penalty", "frequency_penalty", "top_k", "min_p", "repeat_penalty",
            "min_tokens", "max_tokens", "keep_alive"]
SHORT = {"num_predict": 1, "num_ctx": 64, "temperature": 0}
HELLO = [{"role": "user", "content": "Hello!"}]
CHAT = {"model": MODEL, "messages": HELLO, "max_tokens": 1}

# Path, a body that is answered, where the fields go, the fields.
CASES = [
    ("/api/generate", {"model": MODEL, "prompt": "Hello!", "stream": False, "shift": False, "options": SHORT},
     "options", OPTIONS),
    ("/api/chat", {"model": MODEL, "messages": HELLO, "stream": False, "shift": False, "options": SHORT}, "options",
     OPTIONS),
    ("/api/generate", {"model": MODEL, "prompt": "Hello!", "stream": False, "logprobs": True, "options": SHORT}, "",
     ["keep_alive", "top_logprobs", "context"]),
    ("/api/chat", {"model": MODEL, "messages": HELLO, "stream": False, "logprobs": True, "options": SHORT}, "",
     ["keep_alive", "top_logprobs"]),
    ("/v1/chat/completions", {**CHAT, "logprobs": True, "options": SHORT}, "",
     [*SAMPLING, "max_completion_tokens", "top_logprobs", "n"]),
    ("/v1/chat/completions", {**CHAT, "logit_bias": {}}, "logit_bias", ["5"]),
    ("/v1/chat/completions", {**CHAT, "options": {}}, "options", ["num_ctx"]),
    ("/v1/completions", {"model": MODEL, "prompt": "Hello!", "max_tokens": 1, "options": SHORT}, "",
     [*SAMPLING, "logprobs", "n", "best_of", "prompt"]),
    ("/v1/completions", {"model": MODEL, "prompt": "Hello!", "max_tokens": 1, "logit_bias": {}}, "logit_bias", ["5"]),
    ("/v1/responses", {"model": MODEL, "input": "Hello!", "max_output_tokens": 1, "options": SHORT}, "",
     [*SAMPLING, "max_output_tokens", "input"]),
    *((path, {"model": MODEL, "prompt": "Hello!", "n_predict": 1}, "",
       ["n_predict", "n_probs", "t_max_predict_ms", "n_indent", "id_slot", "n_cmpl", "n_keep"])
      for path in ("/completion", "/infill")),
    ("/tokenize", {"model": MODEL, "content": "Hello!"}, "", ["content"]),
    ("/detokenize", {"model": MODEL, "tokens": [5]}, "", ["tokens"]),
    ("/v1/messages", CHAT, "", ["max_tokens", "temperature", "top_p", "top_k", "keep_alive"]),
    ("/v1/messages", {**CHAT, "thinking": {"type": "enabled"}}, "thinking", ["budget_tokens"]),
    ("/v1/messages/count_tokens", CHAT, "", ["keep_alive"]),
    *(("/api/generate", {"model": MODEL, "prompt": "Hello!", "stream": False, "options": SHORT | {
        "temperature": 1, "num_predict": 8, "mirostat": version}}, "options", OPTIONS) for version in (1, 2)),
    ("/api/embed", {"model": MODEL, "input": "Hello!"}, "", ["dimensions", "keep_alive", "input"]),
    ("/api/embed", {"model": MODEL, "input": "Hello!", "options": SHORT}, "options", OPTIONS),
    ("/api/embeddings", {"model": MODEL, "prompt": "Hello!"}, "", ["keep_alive", "prompt"]),
    ("/v1/embeddings", {"model": MODEL, "input": "Hello!"}, "", ["dimensions", "keep_alive", "input"]),
    ("/api/create", {"model": "made", "from": MODEL, "stream": False, "parameters": {}}, "parameters", OPTIONS),
]


class Numbers(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon().start()
        self.connection = http.client.HTTPConnection("127.0.0.1", self.daemon.port, timeout=TIMEOUT_S)

    def tearDown(self):
        self.connection.close()
        assert self.daemon.stop() == 0
        self.daemon.folder.cleanup()

    def post(self, path, payload):
        self.connection.request("POST", path, payload)
        reply = self.connection.getresponse()
        return reply.status, reply.read().decode()

    def test_every_field_and_value(self):
        for path, body, inside, fields in CASES:
            status, text = self.post(path, json.dumps(body))
            self.assertEqual(200, status, text)
            answered = 0
            for field in fields:
                for value in VALUES:
                    status, text = self.post(path, with_field(body, inside, field, value))
                    what = f"{path} {inside} {field} = {value}: {status} {text[:300]}"
                    self.assertIn(status, (200, 400), what)
                    answered += status == 200
                    if status == 400:
                        self.assertIn(field, message(text), what)
                    if value == "null" and field not in ("max_tokens", "prompt", "5", "input", "content", "tokens"):
                        self.assertEqual(200, status, what)
            self.assertGreater(answered, 0, path)
        # Nothing of it hurt.
        self.assertEqual(200, self.post("/v1/chat/completions", json.dumps(CHAT))[0])


def with_field(body, inside, field, value):
    """The body's JSON with the field set to a value that is JSON text, whatever Python makes of it."""
    changed = {**body, inside: {**body[inside], field: "@"}} if inside else {**body, field: "@"}
    return json.dumps(changed).replace('"@"', value)


def message(text):
    error = json.loads(text)["error"]
    return error if isinstance(error, str) else error["message"]


if __name__ == "__main__":
    unittest.main()
