"""A store that other programs filled, without any setting: models in their published spelling, the context of their trained
length, and what is said of them before they are used.
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
from harness import Daemon  # noqa: E402

PROMPT_TOKENS = 20000
TRAINED = 131072
MODEL = "published-gemma:4b"
REQUEST_BYTES = 192  # of a prompt's text and ids for each of its tokens, which are not in the budget


def peak_bytes(pid):
    """The most memory that a process ever had resident."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"(?m)^VmHWM:\s+(\d+) kB$", status)[1]) << 10


def sanitized(pid):
    """Sanitizers keep memory of their own."""
    program = pathlib.Path(f"/proc/{pid}/exe").read_bytes()
    return b"__asan" in program or b"__tsan" in program


def metric(daemon, start):
    line, = [line for line in daemon.get("/metrics").text.splitlines() if line.startswith(start)]
    return float(line.rsplit(" ", 1)[1])


class PublishedStore(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="quire-published-")))
        subprocess.run([sys.executable, HERE / "publish.py", "gemma3", HERE.parent / "data/gguf", self.folder / "plain.gguf",
                        self.folder / "published.gguf"], check=True)
        (self.folder / "Modelfile").write_text(f"FROM {self.folder}/published.gguf\n")
        self.daemon = self.enterContext(Daemon())
        made = self.cli("create", MODEL, "-f", str(self.folder / "Modelfile"))
        self.assertEqual(made.returncode, 0, made.stderr)

    def cli(self, *arguments):
        return self.daemon.cli(*arguments)

    def show(self, **more):
        reply = self.daemon.post("/api/show", {"model": MODEL, **more})
        self.assertEqual(reply.status, 200, reply.text)
        return reply.json

    def complete(self, text, **more):
        return self.daemon.post("/v1/completions", {"model": MODEL, "prompt": text, "max_tokens": 1, "temperature": 0, **more})

    def test_a_long_prompt_is_answered_without_any_setting(self):
        shown = self.show()
        self.assertEqual(shown["context_length"], TRAINED)
        listed = {model["id"]: model for model in self.daemon.get("/v1/models").json["data"]}[MODEL]
        self.assertEqual((listed["context_length"], listed["max_model_len"]), (TRAINED, TRAINED))
        props = self.daemon.get(f"/props?model={MODEL}").json
        self.assertEqual(props["default_generation_settings"]["n_ctx"], TRAINED)
        text = "the " * (PROMPT_TOKENS // 2)
        while True:
            count = len(self.daemon.post("/tokenize", {"model": MODEL, "content": text}).json["tokens"])
            if count >= PROMPT_TOKENS:
                break
            text += text[:4 * 1000]
        reply = self.complete(text)
        self.assertEqual(reply.status, 200, reply.text)
        self.assertGreaterEqual(reply.json["usage"]["prompt_tokens"], PROMPT_TOKENS)
        self.assertEqual(self.daemon.get("/api/ps").json["models"][0]["context_length"], TRAINED)
        self.assertRegex(self.cli("ps").stdout, rf"{MODEL} .* {TRAINED} ")
        runner, = self.daemon.runner_pids()
        self.assertLessEqual(peak_bytes(runner), metric(self.daemon, "quire_memory_predicted_bytes"))
        self.assertLessEqual(metric(self.daemon, "quire_memory_predicted_bytes"), metric(self.daemon, "quire_memory_budget_bytes"))

    def test_the_context_is_cut_to_what_memory_holds(self):
        least = self.show(check=True)["check"]["memory_min"]
        budget = least + (8 << 20)
        store = self.daemon.environment["OLLAMA_MODELS"]
        with Daemon({"QUIRE_MEMORY": str(budget)}, store=store) as daemon:
            shown = daemon.post("/api/show", {"model": MODEL, "check": True}).json
            self.assertTrue(shown["check"]["loads"], shown["check"])
            expected = shown["context_length"]
            self.assertTrue(1000 < expected < TRAINED, expected)
            self.assertRegex(daemon.cli("show", "--check", MODEL).stdout, rf"(?m)^context {expected} tokens$")

            def complete(words, **more):
                return daemon.post("/v1/completions", {"model": MODEL, "prompt": "the " * words, "max_tokens": 1, **more})
            self.assertEqual(complete(1000).status, 200)
            context = daemon.get("/api/ps").json["models"][0]["context_length"]
            self.assertTrue(abs(context - expected) < expected // 4, (context, expected))
            for refused in (complete(context), complete(context, options={"num_ctx": TRAINED})):
                self.assertEqual(refused.status, 400, refused.text)
                self.assertIn("QUIRE_MEMORY", refused.json["error"]["message"])
            whole = complete(context - 100)  # which fills what the caches have
            self.assertEqual(whole.status, 200, whole.text)
            self.assertGreater(whole.json["usage"]["prompt_tokens"], context - 100)
            runner, = daemon.runner_pids()
            if not sanitized(runner):
                self.assertLessEqual(peak_bytes(runner), budget + REQUEST_BYTES * context)

    def test_a_store_is_checked_without_a_daemon(self):
        self.daemon.stop()
        checked = self.cli("show", "--check", MODEL)
        self.assertEqual(checked.returncode, 0, checked.stderr)
        self.assertRegex(checked.stdout, rf"^will load\nmemory .*\ncontext {TRAINED} tokens\n")
        doctor = self.cli("doctor", "--models")
        self.assertEqual(doctor.returncode, 0, doctor.stdout + doctor.stderr)
        self.assertRegex(doctor.stdout, rf"(?m)^ok    {MODEL}: will load$")
        self.assertEqual(self.cli("show", "--check", "none").returncode, 1)
        self.daemon.environment["QUIRE_MEMORY"] = "much"
        refused = self.cli("doctor", "--models")
        self.assertEqual(refused.returncode, 1)
        self.assertRegex(refused.stderr, "none can be started: .*QUIRE_MEMORY")

    def test_a_prompt_that_does_not_fit_names_the_option(self):
        refused = self.complete("the " * 200, options={"num_ctx": 64})
        self.assertEqual(refused.status, 400, refused.text)
        for part in ("exceeds the available context size (64 tokens)", f"trained for {TRAINED}", "num_ctx",
                     "OLLAMA_CONTEXT_LENGTH"):
            self.assertIn(part, refused.json["error"]["message"])

    def test_repairs_are_shown_and_logged_once(self):
        repairs = self.show()["repairs"]
        self.assertTrue(any("rope.scaling.type: absent" in repair for repair in repairs), repairs)
        text = self.cli("show", MODEL).stdout
        self.assertIn("Read differently", text)
        self.assertIn("tokenizer.ggml.tokens: the last 1 of 513", text)
        self.assertRegex(text, rf"default context +{TRAINED}")
        for _ in range(2):
            self.assertEqual(self.complete("hi").status, 200)
        self.assertEqual(self.daemon.log().count("read differently: gemma3.rope.scaling.type"), 1)

    def test_a_store_is_checked_without_a_request(self):
        good = self.cli("show", "--check", MODEL)
        self.assertEqual(good.returncode, 0, good.stderr)
        self.assertRegex(good.stdout, rf"^will load\nmemory .* GiB, at least .*\ncontext {TRAINED} tokens\nread differently: ")
        check = self.show(check=True)["check"]
        self.assertTrue(check["loads"])
        self.assertGreaterEqual(check["memory"], check["memory_min"])
        self.assertEqual(self.daemon.get("/api/ps").json["models"], [])
        doctor = self.cli("doctor", "--models")
        self.assertEqual(doctor.returncode, 0, doctor.stdout)
        self.assertRegex(doctor.stdout, rf"(?m)^ok    {MODEL}: will load$")
        self.assertRegex(doctor.stdout, r"(?m)^ok    quire-demo:latest: will load$")
        # A file of another kind under the name of a model.
        store = pathlib.Path(self.daemon.environment["OLLAMA_MODELS"])
        size = (self.folder / "published.gguf").stat().st_size
        blob, = [path for path in store.glob("blobs/sha256-*") if path.stat().st_size == size]
        with open(blob, "r+b") as file:
            file.write(b"PK\3\4")
        doctor = self.cli("doctor", "--models")
        self.assertEqual(doctor.returncode, 1, doctor.stdout)
        self.assertRegex(doctor.stdout, rf"(?m)^BAD   {MODEL}: will not load: .")
        self.assertRegex(doctor.stdout, r"(?m)^ok    quire-demo:latest: will load$")
        checked = self.cli("show", "--check", MODEL)
        self.assertEqual(checked.returncode, 1, checked.stdout)

    def test_the_server_and_the_model_rule_over_the_default(self):
        (self.folder / "Small").write_text(f"FROM {MODEL}\nPARAMETER num_ctx 640\n")
        self.assertEqual(self.cli("create", "small", "-f", str(self.folder / "Small")).returncode, 0)
        shown = self.daemon.post("/api/show", {"model": "small"}).json
        self.assertEqual(shown["context_length"], 640)
        self.assertEqual(self.daemon.post("/v1/completions", {"model": "small", "prompt": "hi", "max_tokens": 1}).status, 200)
        self.assertEqual(self.daemon.get("/api/ps").json["models"][0]["context_length"], 640)
        store = self.daemon.environment["OLLAMA_MODELS"]
        with Daemon({"OLLAMA_CONTEXT_LENGTH": "2048"}, store=store) as other:
            self.assertEqual(other.post("/api/show", {"model": MODEL}).json["context_length"], 2048)
            reply = other.post("/api/generate", {"model": MODEL, "prompt": "hi", "stream": False, "options": {"num_predict": 1}})
            self.assertEqual(reply.status, 200, reply.text)
            self.assertEqual(other.get("/api/ps").json["models"][0]["context_length"], 2048)


if __name__ == "__main__":
    unittest.main(verbosity=2)
