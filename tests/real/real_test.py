#!/usr/bin/env python3
"""Published models through the front door, compared with references of transformers and sentence-transformers.

usage: real_test.py SmolLM2|Gemma3|Qwen25Coder|MiniLM...

fetch.sh gets the models. A suite whose model is not there is not run: exit code 77.
"""
import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
from harness import Daemon  # noqa: E402

CACHE = pathlib.Path(os.environ.get("QUIRE_REAL") or
                     pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "quire-real")
FILES = {"SmolLM2": "smollm2.gguf", "Gemma3": "gemma3.gguf", "Qwen25Coder": "qwen25coder.gguf", "MiniLM": "minilm"}
MODEL = "published"
STORY = ("Rivers were roads once, and boats carried stone and wine and bread to the sea. In the evening the boatmen sat "
         "by their fires and told each other where the water was shallow and where it was deep. ")


class Case(unittest.TestCase):
    """A daemon for all cases of a class, with the model of that class."""

    @classmethod
    def setUpClass(cls):
        cls.file = FILES[cls.__name__]
        cls.folder = tempfile.TemporaryDirectory(prefix="quire-real-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.daemon = Daemon(store=pathlib.Path(cls.folder.name) / "models").start()
        cls.addClassCleanup(lambda: cls.daemon.__exit__(None, None, None))
        modelfile = pathlib.Path(cls.folder.name) / "Modelfile"
        modelfile.write_text(f"FROM {CACHE / cls.file}\n")
        made = cls.daemon.cli("create", MODEL, "-f", str(modelfile))
        assert made.returncode == 0, made.stderr

    @classmethod
    def reference(cls):
        return HERE / f"{pathlib.Path(cls.file).stem}.json"

    def post(self, path, body, daemon=None):
        reply = (daemon or self.daemon).post(path, {"model": MODEL, **body})
        self.assertEqual(200, reply.status, reply.text)
        return reply.json


class Decoder:
    def test_tokens_log_probabilities_and_greedy_answers_are_the_references(self):
        url = f"http://127.0.0.1:{self.daemon.port}"
        done = subprocess.run([sys.executable, HERE / "check.py", url, MODEL, self.reference()], text=True,
                              capture_output=True)
        print(done.stdout, flush=True)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)

    def test_tokens_become_their_text_again(self):
        wrong = []
        for text, tokens in json.loads(self.reference().read_text())["tokenize"]:
            content = self.post("/detokenize", {"tokens": tokens})["content"]
            if content != text:
                wrong.append((text, content))
        self.assertEqual([], wrong)

    def test_prompts_of_text_are_the_references_tokens(self):
        for greedy in json.loads(self.reference().read_text())["greedy"]:
            ids = self.post("/tokenize", {"content": greedy["prompt"], "add_special": True})["tokens"]
            self.assertEqual(greedy["prompt_ids"], ids, greedy["prompt"])
            of_text, of_ids = (self.post("/completion", {"prompt": prompt, "n_predict": 4, "temperature": 0, "return_tokens": True})
                               for prompt in (greedy["prompt"], ids))
            self.assertEqual(of_ids["tokens"], of_text["tokens"], greedy["prompt"])
            self.assertEqual(len(ids), of_text["tokens_evaluated"], greedy["prompt"])


class Gemma3(Decoder, Case):
    pass


class Qwen25Coder(Decoder, Case):
    pass


def chat(content, num_predict=24, **options):
    """What /api/chat is sent, with log-probabilities: two answers are equal only if they are bit-identical."""
    messages = content if isinstance(content, list) else [{"role": "user", "content": content}]
    return {"stream": False, "logprobs": True, "messages": messages,
            "options": {"temperature": 0, "num_predict": num_predict, "ignore_eos": True, **options}}


def tokens(reply):
    return [(token["token"], token["logprob"]) for token in reply["logprobs"]]


class SmolLM2(Decoder, Case):
    def ask(self, content, salt, daemon=None, **options):
        """A salt that is new shares nothing with other requests."""
        return self.post("/api/chat", chat(content, **options) | {"cache_salt": salt}, daemon)

    def test_answers_are_the_same_alone_cached_and_in_a_crowd(self):
        questions = [STORY * (1 + i % 3) + f"What does sentence {i} say?" for i in range(8)]
        alone = [self.ask(question, f"alone {i}") for i, question in enumerate(questions)]
        self.assertEqual([0] * 8, [reply["prompt_eval_cached_count"] for reply in alone])
        cached = [self.ask(question, f"alone {i}") for i, question in enumerate(questions)]
        self.assertNotIn(0, [reply["prompt_eval_cached_count"] for reply in cached])
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            crowd = list(pool.map(lambda i: self.ask(questions[i % 8], "crowd"), range(16)))
        expected = [tokens(reply) for reply in alone]
        self.assertEqual(expected, [tokens(reply) for reply in cached])
        self.assertEqual(expected * 2, [tokens(reply) for reply in crowd])

    def test_answers_are_the_same_with_and_without_drafts(self):
        with Daemon({"QUIRE_DRAFT_TOKENS": "5"}, store=self.daemon.environment["OLLAMA_MODELS"]) as forced:
            accepted = 0
            for options in ({}, {"temperature": 0.8, "seed": 5}):
                question = "Repeat this text word for word: " + STORY
                plain = self.ask(question, "plain", num_predict=80, draft_num_predict=0, **options)
                self.assertNotIn("draft_count", plain)
                adaptive = self.ask(question, "adaptive", num_predict=80, **options)
                drafted = self.ask(question, "drafted", forced, num_predict=80, **options)
                self.assertEqual(tokens(plain), tokens(adaptive))
                self.assertEqual(tokens(plain), tokens(drafted))
                accepted += drafted["draft_accepted_count"]
            self.assertGreater(accepted, 0)

    def test_a_stream_is_resumed_when_its_runner_is_killed(self):
        body = {"model": MODEL, "prompt": STORY, "raw": True, "logprobs": True,
                "options": {"num_predict": 200, "temperature": 0.9, "seed": 3, "ignore_eos": True}}
        expected = self.daemon.post("/api/generate", body).lines
        connection = self.daemon.connect()
        connection.request("POST", "/api/generate", json.dumps(body))
        reply = connection.getresponse()
        lines = [json.loads(reply.readline()) for _ in range(5)]
        resumed = self.daemon.log().count(" resumed model=")
        for pid in self.daemon.runner_pids():
            os.kill(pid, signal.SIGKILL)
        lines += [json.loads(line) for line in reply]
        self.assertEqual(resumed + 1, self.daemon.log().count(" resumed model="), self.daemon.log()[-2000:])
        self.assertEqual(self.stream(expected), self.stream(lines))

    @staticmethod
    def stream(lines):
        return [(line["response"], line.get("logprobs"), line.get("error")) for line in lines]

    def test_a_restarted_daemon_restores_the_conversation_from_disk(self):
        messages = [{"role": "user", "content": STORY * 4}]
        with tempfile.TemporaryDirectory(prefix="quire-real-prefixes-") as folder:
            with self.storing_daemon(folder) as daemon:
                first = self.ask(messages, "restart", daemon)
                self.wait_stored(daemon, first["prompt_eval_count"])
            messages += [first["message"], {"role": "user", "content": "And then?"}]
            with self.storing_daemon(folder) as daemon:
                restored = self.ask(messages, "restart", daemon)
        self.assertGreaterEqual(restored["prompt_eval_cached_count"], first["prompt_eval_count"] - 1)
        cold = self.ask(messages, "cold")
        self.assertEqual(0, cold["prompt_eval_cached_count"])
        self.assertEqual(tokens(cold), tokens(restored))

    def storing_daemon(self, folder):
        return Daemon({"QUIRE_SNAPSHOT_BYTES": "256MiB", "QUIRE_SNAPSHOT_DIR": folder, "QUIRE_SNAPSHOT_ALWAYS_FETCH": "1"},
                      store=self.daemon.environment["OLLAMA_MODELS"])

    def wait_stored(self, daemon, count):
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            if any(prefix["tokens"] >= count for prefix in daemon.get("/quire/prefixes").json["prefixes"]):
                return
            time.sleep(0.05)
        self.fail(f"no prefix of {count} tokens was stored")


class MiniLM(Case):
    def test_vectors_are_the_references(self):
        stored = json.loads(self.reference().read_text())
        together = self.post("/api/embed", {"input": stored["texts"]})["embeddings"]
        alone = [self.post("/api/embed", {"input": text})["embeddings"][0] for text in stored["texts"]]
        self.assertEqual(alone, together)
        differences = [max(abs(a - b) for a, b in zip(got, expected, strict=True))
                       for got, expected in zip(together, stored["vectors"], strict=True)]
        print(f"vectors: {len(differences)}, greatest difference {max(differences):.1e}", flush=True)
        self.assertLessEqual(max(differences), 1e-5)


if __name__ == "__main__":
    files = [CACHE / FILES[suite.partition(".")[0]] for suite in sys.argv[1:]]
    missing = [file for file in files if not file.exists()]
    if missing:
        print(f"skipped: no {missing[0]}; tests/real/fetch.sh fetches it")
        sys.exit(77)
    unittest.main(verbosity=2)
