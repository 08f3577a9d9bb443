#!/usr/bin/env python3
"""Models whose files bring no chat template: the format that they get, what is said about it, and what is refused."""
import hashlib
import json
import pathlib
import sys
import tempfile
import unittest

from harness import ROOT, Daemon

sys.path.append(str(ROOT / "tests/published"))
import gguf_file  # noqa: E402

F16 = ROOT / "packaging/models/quire-demo-F16.gguf"
MESSAGES = [{"role": "user", "content": "Hi"}]
CHATS = [("/api/chat", {"messages": MESSAGES, "stream": False}), ("/v1/chat/completions", {"messages": MESSAGES}),
         ("/v1/messages", {"messages": MESSAGES, "max_tokens": 4}), ("/v1/responses", {"input": "Hi"}),
         ("/apply-template", {"messages": MESSAGES})]


class PromptFormats(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="quire-formats-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.bare = pathlib.Path(cls.folder.name) / "bare.gguf"
        cls.plain = pathlib.Path(cls.folder.name) / "plain.gguf"
        model = gguf_file.Gguf(F16)
        del model.keys["tokenizer.chat_template"]
        model.keys["general.name"] = (gguf_file.TEXT, "Something")
        model.write(cls.bare)
        tokens = model.keys["tokenizer.ggml.tokens"][1]
        tokens[tokens.index("<|im_start|>")] = "<|other|>"
        model.write(cls.plain)
        cls.daemon = Daemon()
        cls.daemon.__enter__()
        cls.addClassCleanup(cls.daemon.__exit__, None, None, None)

    def create(self, name, weights, *lines):
        modelfile = pathlib.Path(self.folder.name) / "Modelfile"
        modelfile.write_text("\n".join((f"FROM {weights}", *lines)) + "\n")
        made = self.daemon.cli("create", name, "-f", str(modelfile))
        self.assertEqual(0, made.returncode, made.stderr)
        return self.daemon.post("/api/show", {"model": name}).json

    def prompt(self, name):
        return self.daemon.post("/apply-template", {"model": name, "messages": MESSAGES}).json["prompt"]

    def test_a_family_gets_its_format_and_says_so(self):
        shown = self.create("family", self.bare)
        self.assertEqual(self.prompt("family"), "<|startoftext|><|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
        self.assertEqual(len(shown["repairs"]), 1)
        self.assertIn("LFM2", shown["repairs"][0])
        self.assertIn("guessed", shown["repairs"][0])
        self.assertIn("tools", shown["capabilities"])
        self.assertIn("Read differently", self.daemon.cli("show", "family").stdout)
        self.daemon.post("/api/chat", {"model": "family", "messages": MESSAGES, "stream": False, "options": {"num_predict": 1}})
        self.assertIn("read differently: no chat template", self.daemon.log())

    def test_a_renderer_and_a_parser_name_the_format(self):
        shown = self.create("named", self.bare, "TEMPLATE {{ .Prompt }}", "RENDERER qwen3-coder", "PARSER qwen3-coder")
        self.assertEqual(self.prompt("named"), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
        self.assertIn("tools", shown["capabilities"])
        self.assertIn("RENDERER qwen3-coder", shown["repairs"][0])

    def test_documents_go_to_a_template_that_shows_them(self):
        shows = pathlib.Path(self.folder.name) / "documents.gguf"
        model = gguf_file.Gguf(F16)
        source = ("{% for d in documents or [] %}<|im_start|>tool\n{{ d | tojson }}<|im_end|>\n{% endfor %}"
                  "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
                  "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
        model.keys["tokenizer.chat_template"] = (gguf_file.TEXT, source)
        model.write(shows)
        self.create("documents", shows)
        self.create("no-documents", self.bare)
        body = {"messages": MESSAGES, "max_tokens": 1, "temperature": 0}
        documents = [{"id": "a", "data": {"title": "Aare", "text": "288 \"km\"\n"}}, "The Reuss."]

        def tokens(name, **more):
            reply = self.daemon.post("/v2/chat", {"model": name, **body, **more})
            self.assertEqual(200, reply.status, reply.text)
            return reply.json["usage"]["tokens"]["input_tokens"]

        shown = ('<|im_start|>tool\n{"title": "Aare", "text": "288 \\"km\\"\\n", "doc_id": "a"}<|im_end|>\n'
                 '<|im_start|>tool\n{"text": "The Reuss."}<|im_end|>\n')
        count = len(self.daemon.post("/tokenize", {"model": "documents", "content": shown, "parse_special": True}).json["tokens"])
        self.assertEqual(tokens("documents", documents=documents), tokens("documents") + count)
        self.assertEqual(tokens("documents", documents=[]), tokens("documents"))
        refused = self.daemon.post("/v2/chat", {"model": "no-documents", **body, "documents": documents})
        self.assertEqual(400, refused.status, refused.text)
        self.assertIn("documents[0]", refused.json["message"])

    def test_a_template_is_the_users_wish(self):
        shown = self.create("wish", self.bare, "TEMPLATE {{ .Prompt }}")
        self.assertEqual(self.prompt("wish"), "Hi")
        self.assertFalse([note for note in shown.get("repairs", []) if note.startswith("no chat template")])

    def test_a_template_that_cannot_be_read_costs_the_chats_alone(self):
        self.create("unread", self.bare, "TEMPLATE {{ .Prompt }}")
        store = pathlib.Path(self.daemon.folder.name) / "models"
        path = store / "manifests/registry.ollama.ai/library/unread/latest"
        manifest = json.loads(path.read_text())
        text = b"{{ unknown .Prompt }}"  # as a later version of Ollama may have
        digest = hashlib.sha256(text).hexdigest()
        (store / f"blobs/sha256-{digest}").write_bytes(text)
        for layer in manifest["layers"]:
            if layer["mediaType"].endswith(".template"):
                layer.update(digest=f"sha256:{digest}", size=len(text))
        path.write_text(json.dumps(manifest))
        self.assertTrue(any("chats are refused" in note
                            for note in self.daemon.post("/api/show", {"model": "unread"}).json["repairs"]))
        self.check_completes_only("unread", "cannot be read")

    def check_completes_only(self, name, reason):
        for path, body in CHATS:
            reply = self.daemon.post(path, {"model": name, **body})
            self.assertEqual(reply.status, 400, (path, reply.text))
            self.assertIn(reason, reply.text, path)
            self.assertIn("TEMPLATE", reply.text, path)
        options = {"num_predict": 8, "temperature": 0}
        texts = {"system": "Once", "prompt": "upon a time"}
        joined = self.daemon.post("/api/generate", {"model": name, **texts, "options": options, "stream": False}).json
        raw = self.daemon.post("/api/generate", {"model": name, "prompt": "Once\n\nupon a time", "raw": True,
                                                 "options": options, "stream": False}).json
        self.assertEqual((joined["response"], joined["prompt_eval_count"]), (raw["response"], raw["prompt_eval_count"]))
        again = self.daemon.post("/api/generate", {"model": name, "prompt": "x", "context": joined["context"],
                                                   "options": options, "stream": False})
        self.assertEqual(again.status, 200, again.text)
        completed = self.daemon.post("/v1/completions", {"model": name, "prompt": "upon", "max_tokens": 2})
        self.assertEqual(completed.status, 200, completed.text)
        run = self.daemon.cli("run", name, "upon a time")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(len(run.stderr.splitlines()), 1, run.stderr)
        self.assertIn("completing", run.stderr)
        self.assertNotEqual(run.stdout.strip(), "")

    def test_an_unknown_renderer_is_refused_by_name(self):
        shown = self.create("unknown", self.bare, "RENDERER nobody-9", "PARSER nobody-8")
        self.assertEqual(shown["template"], "")
        self.assertIn("RENDERER nobody-9", shown["repairs"][0])
        self.assertIn("PARSER nobody-8", shown["repairs"][1])
        self.check_completes_only("unknown", "nobody-9")

    def test_a_vocabulary_without_the_tokens_has_no_chat(self):
        shown = self.create("tokenless", self.plain)
        self.assertIn("chats are refused", shown["repairs"][0])
        self.check_completes_only("tokenless", "no chat template")


if __name__ == "__main__":
    unittest.main()
