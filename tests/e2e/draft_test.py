#!/usr/bin/env python3
"""Speculative decoding end to end: the bundled draft model, models with a DRAFT, usage and metrics."""
import concurrent.futures
import pathlib
import tempfile
import unittest

from harness import MODEL, ROOT, Daemon

MODELS = ROOT / "packaging/models"
FAMILIES = ROOT / "tests/data/models"
OTHER = ROOT / "tests/data/gguf/lfm2.f16.gguf"  # another vocabulary
LONG = "Write a short story about a lighthouse keeper and a storm, with as many details as you can."


class DraftTest(unittest.TestCase):
    environment = {}

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon(cls.environment).start()

    @classmethod
    def tearDownClass(cls):
        cls.daemon.__exit__(None, None, None)

    def chat(self, model=MODEL, content=LONG, **options):
        reply = self.daemon.post("/api/chat", {
            "model": model, "stream": False, "messages": [{"role": "user", "content": content}],
            "options": {"num_predict": 200, "temperature": 0} | options})
        self.assertEqual(reply.status, 200, reply.text)
        return reply.json


class ForcedDrafts(DraftTest):
    """Every step has drafts. How many an adaptive daemon proposes depends on the machine's speed."""

    environment = {"QUIRE_DRAFT_TOKENS": "5"}

    def counter(self, name):
        text = self.daemon.metrics()
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))

    def test_the_bundled_draft_does_not_change_answers(self):
        for options in ({}, {"temperature": 1, "seed": 5}, {"temperature": 0.7, "seed": 6, "repeat_penalty": 1.2},
                        {"stop": ["the"]}):
            plain = self.chat(draft_num_predict=0, **options)
            self.assertNotIn("draft_count", plain)
            for limit in (-1, 1, 5):
                drafted = self.chat(draft_num_predict=limit, **options)
                for field in ("message", "done_reason", "eval_count"):
                    self.assertEqual(drafted[field], plain[field], (limit, options))
        drafted = self.chat(draft_num_predict=5)
        self.assertGreaterEqual(drafted["draft_count"], 5)
        self.assertGreater(drafted["draft_accepted_count"], 0)
        self.assertLessEqual(drafted["draft_accepted_count"], drafted["draft_count"])
        self.assertEqual(sum(drafted["draft_accepted_by_position"]), drafted["draft_accepted_count"])
        self.assertLessEqual(len(drafted["draft_accepted_by_position"]), 5)

    def test_openai_usage_and_metrics_report_drafts(self):
        before = [self.counter(f"quire_spec_{name}_total") for name in ("draft_tokens", "accepted_tokens")]
        usage = self.daemon.post("/v1/chat/completions", {
            "model": MODEL, "messages": [{"role": "user", "content": LONG}], "max_tokens": 200,
            "temperature": 0}).json["usage"]
        details = usage["completion_tokens_details"]
        self.assertGreater(details["accepted_prediction_tokens"], 0)
        after = [self.counter(f"quire_spec_{name}_total") for name in ("draft_tokens", "accepted_tokens")]
        self.assertEqual(after[1] - before[1], details["accepted_prediction_tokens"])
        self.assertEqual(after[0] - before[0], sum(details.values()))
        self.assertIn('quire_spec_accepted_by_position_total{model="quire-demo:latest",position="1"}',
                      self.daemon.metrics())
        self.assertGreater(self.counter("quire_spec_rollback_seconds_total"), 0)

    def test_verbose_prints_them(self):
        done = self.daemon.cli("run", MODEL, "--verbose", LONG)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"(?m)^draft accepted: +\d+ token\(s\), \d+ %$")
        self.assertRegex(done.stderr, r"(?m)^accepted by position: [\d ]+$")

    def test_a_modelfile_brings_a_draft(self):
        with tempfile.TemporaryDirectory(prefix="quire-draft-") as folder:
            modelfile = pathlib.Path(folder) / "Modelfile"
            modelfile.write_text(f"FROM {MODELS / 'quire-demo-Q8_0.gguf'}\nDRAFT {MODELS / 'quire-demo-draft'}\n")
            made = self.daemon.cli("create", "with-draft", "-f", str(modelfile), "--draft-quantize", "q8_0")
            self.assertEqual(made.returncode, 0, made.stderr)
            modelfile.write_text(f"FROM {MODELS / 'quire-demo-Q8_0.gguf'}\n")
            self.assertEqual(self.daemon.cli("create", "without-draft", "-f", str(modelfile)).returncode, 0)
        drafted = self.chat("with-draft", draft_num_predict=4)
        plain = self.chat("without-draft", draft_num_predict=0)
        self.assertEqual(drafted["message"], plain["message"])
        self.assertGreater(drafted["draft_accepted_count"], 5)
        self.assertRegex(self.daemon.post("/api/show", {"model": "with-draft"}).json["modelfile"], r"(?m)^DRAFT /")

    def test_a_draft_of_another_vocabulary_is_refused_by_name(self):
        with tempfile.TemporaryDirectory(prefix="quire-draft-") as folder:
            modelfile = pathlib.Path(folder) / "Modelfile"
            modelfile.write_text(f"FROM {MODEL}\nDRAFT {OTHER}\n")
            made = self.daemon.cli("create", "misfit", "-f", str(modelfile))
        self.assertNotEqual(made.returncode, 0)
        self.assertIn("vocabulary differs", made.stderr)
        self.assertEqual(self.daemon.post("/api/show", {"model": "misfit"}).status, 404)
        self.assertEqual(self.chat(num_predict=3)["eval_count"], 3)

    def test_a_safetensors_assistant_drafts_for_its_target(self):
        with tempfile.TemporaryDirectory(prefix="quire-draft-") as folder:
            modelfile = pathlib.Path(folder) / "Modelfile"
            modelfile.write_text(f"FROM {FAMILIES / 'gemma4_e'}\n")
            self.assertEqual(self.daemon.cli("create", "target", "-f", str(modelfile)).returncode, 0)
            plain = self.chat("target", draft_num_predict=0, num_predict=40)
            modelfile.write_text(f"FROM {FAMILIES / 'gemma4_e'}\nDRAFT {FAMILIES / 'gemma4_assistant'}\n")
            for arguments in ([], ["--draft-quantize", "q8_0"]):
                made = self.daemon.cli("create", "assisted", "-f", str(modelfile), *arguments)
                self.assertEqual(made.returncode, 0, made.stderr)
                drafted = self.chat("assisted", draft_num_predict=3, num_predict=40)
                self.assertEqual(drafted["message"], plain["message"])
                self.assertGreater(drafted["draft_count"], 0)


class AdaptiveDrafts(DraftTest):
    def test_sixteen_at_once_with_cancels(self):
        questions = [f"{LONG} Number {i}." for i in range(16)]
        expected = [self.chat(content=q, draft_num_predict=0, num_predict=80)["message"] for q in questions]

        def leave(question):
            connection = self.daemon.connect()
            connection.request("POST", "/api/generate", f'{{"model": "{MODEL}", "prompt": "{question}"}}')
            connection.getresponse().readline()
            connection.sock.close()

        with concurrent.futures.ThreadPoolExecutor(24) as pool:
            answers = [pool.submit(self.chat, content=q, num_predict=80) for q in questions]
            for gone in [pool.submit(leave, q) for q in questions[:8]]:
                gone.result()
            self.assertEqual([a.result()["message"] for a in answers], expected)


if __name__ == "__main__":
    unittest.main()
