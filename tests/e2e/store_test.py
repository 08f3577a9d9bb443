"""The model store through the API and the command line of the real daemon.

usage: store_test.py [Suite]
"""
import hashlib
import json
import pathlib
import tempfile
import threading
import time
import unittest

from harness import MODEL, ROOT, Daemon
from store_requests import generate, in_shards, upload, wait_for_no_staging

F16 = ROOT / "packaging/models/quire-demo-F16.gguf"
Q8_0 = ROOT / "packaging/models/quire-demo-Q8_0.gguf"
DIRECTORY = ROOT / "packaging/models/quire-demo"
GOLDEN = json.loads((ROOT / "tests/data/quire-demo.golden.json").read_text())


class Create(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon().start()

    @classmethod
    def tearDownClass(cls):
        cls.daemon.__exit__(None, None, None)

    def create(self, **body):
        return self.daemon.post("/api/create", body)

    def test_quantize_gives_weights_of_that_type_that_run(self):
        digest = upload(self.daemon, F16.read_bytes())
        sizes = {}
        for asked, level in (("q8_0", "Q8_0"), ("q4_0", "Q4_0"), ("q4_K_M", "Q4_K_M"), ("Q4_K", "Q4_K_M"),
                             ("q6_K", "Q6_K"), ("bf16", "BF16")):
            reply = self.create(model=f"made-{asked}", files={"model.gguf": digest}, quantize=asked)
            lines = reply.lines
            self.assertEqual(lines[-1], {"status": "success"}, reply.text)
            progress = [line for line in lines if line["status"] == f"quantizing F16 model to {level}"]
            self.assertEqual(progress[-1]["completed"], progress[-1]["total"])
            self.assertEqual(progress[-1]["digest"], digest)
            shown = self.daemon.post("/api/show", {"model": f"made-{asked}"}).json
            self.assertEqual(shown["details"]["quantization_level"], level)
            answer = generate(self.daemon, f"made-{asked}", "What is a prefix cache?")
            self.assertGreater(answer["eval_count"], 0)
            sizes[asked] = next(model["size"] for model in self.daemon.get("/api/tags").json["models"]
                                if model["name"] == f"made-{asked}:latest")
        self.assertLess(sizes["q4_0"], sizes["q6_K"])
        self.assertLess(sizes["q6_K"], sizes["q8_0"])
        self.assertLess(sizes["q8_0"], sizes["bf16"])
        self.assertEqual(wait_for_no_staging(self.daemon), [])

    def test_quantize_the_same_again_changes_nothing(self):
        digest = upload(self.daemon, F16.read_bytes())
        first = self.create(model="twice", files={"m.gguf": digest}, quantize="q8_0").lines
        again = self.create(model="twice", files={"m.gguf": digest}, quantize="q8_0").lines
        layers = lambda lines: [line["status"].split()[-1] for line in lines if " layer " in line["status"]]
        self.assertEqual(layers(first), layers(again))
        self.assertTrue(all(line["status"].startswith("using existing layer") for line in again
                            if " layer " in line["status"]), again)
        plain = self.create(model="plain", files={"m.gguf": digest}, quantize="F16").lines
        self.assertIn(f"using existing layer {digest}", [line["status"] for line in plain])

    def test_what_cannot_be_quantized_is_refused(self):
        digest = upload(self.daemon, F16.read_bytes())
        reply = self.create(model="no", files={"m.gguf": digest}, quantize="q3_x", stream=False)
        self.assertEqual(reply.status, 400)
        self.assertIn("Q3_X", reply.json["error"])
        self.assertEqual(self.create(model="half", files={"m.gguf": digest}, quantize="q8_0").lines[-1]["status"],
                         "success")
        reply = self.create(**{"model": "no", "from": "half", "quantize": "q4_0", "stream": False})
        self.assertEqual(reply.status, 400)
        self.assertIn("already", reply.json["error"])
        self.assertEqual(self.daemon.post("/api/show", {"model": "no"}).status, 404)
        self.assertEqual(wait_for_no_staging(self.daemon), [])

    def test_a_client_that_leaves_ends_the_work_and_leaves_nothing(self):
        digest = upload(self.daemon, F16.read_bytes())
        connection = self.daemon.connect()
        connection.request("POST", "/api/create",
                           json.dumps({"model": "left", "files": {"m.gguf": digest}, "quantize": "q6_K"}))
        reply = connection.getresponse()
        self.assertEqual(json.loads(reply.readline())["status"], "parsing GGUF")
        self.assertIn("quantizing", json.loads(reply.readline())["status"])  # the directory is there
        connection.sock.close()
        reply.close()
        self.assertEqual(wait_for_no_staging(self.daemon), [])

    def test_a_draft_model_and_a_required_version_are_kept(self):
        digest = upload(self.daemon, (F16.parent / "quire-demo-draft-Q8_0.gguf").read_bytes())
        made = self.create(**{"model": "drafted", "from": MODEL, "draft_files": {"d.gguf": digest},
                              "requires": "0.14.0"}).lines
        self.assertIn(f"using existing layer {digest}", [line["status"] for line in made])
        self.assertEqual(self.daemon.post("/api/show", {"model": "drafted"}).json["requires"], "0.14.0")
        answer = generate(self.daemon, "drafted", "What is a prefix cache?")["response"]
        self.assertEqual(answer, generate(self.daemon, MODEL, "What is a prefix cache?")["response"])
        garbage = upload(self.daemon, b"no model")
        reply = self.create(**{"model": "no", "from": MODEL, "draft_files": {"d.gguf": garbage}, "stream": False})
        self.assertEqual(reply.status, 400)

    def test_a_draft_model_is_quantized_and_shown(self):
        source = ROOT / "packaging/models/quire-demo-draft"
        drafts = {path.name: upload(self.daemon, path.read_bytes()) for path in source.iterdir()}
        made = self.create(**{"model": "drafted-q8", "from": MODEL, "draft_files": drafts, "draft_quantize": "q8_0"})
        self.assertEqual(made.lines[-1], {"status": "success"}, made.text)
        self.assertRegex(self.daemon.post("/api/show", {"model": "drafted-q8"}).json["modelfile"],
                         r"(?m)^DRAFT /.*/sha256-[0-9a-f]{64}$")
        refused = self.create(**{"model": "no", "from": MODEL, "draft_quantize": "q8_0", "stream": False})
        self.assertEqual(refused.status, 400)
        self.assertIn("draft_files", refused.json["error"])

    def safetensors(self, **changed):
        files = {path.name: path.read_bytes() for path in DIRECTORY.iterdir()} | changed
        return {name: upload(self.daemon, data) for name, data in files.items() if data is not None}

    def test_safetensors_give_a_model_that_answers_as_its_directory(self):
        files = self.safetensors()
        made = self.create(model="tensors", files=files)
        self.assertEqual(made.lines[-1], {"status": "success"}, made.text)
        for digest in files.values():  # converted: no second copy stays
            self.assertEqual(self.daemon.request("HEAD", f"/api/blobs/{digest}").status, 404)
        self.assertEqual(made.lines[0], {"status": "converting model"})
        shown = self.daemon.post("/api/show", {"model": "tensors"}).json
        self.assertEqual(shown["details"]["quantization_level"], "BF16")
        self.assertIn("tools", shown["capabilities"])
        for case in GOLDEN["chat"][:6]:
            reply = self.daemon.post("/api/chat", {"model": "tensors", "stream": False, "messages": case["messages"],
                                                   "options": {"temperature": 0,
                                                               "num_predict": 200}}).json
            self.assertEqual(reply["prompt_eval_count"], len(case["prompt_ids"]))
            self.assertEqual(reply["message"]["content"].strip(), case["completion"].strip())
        again = self.create(model="tensors", files=self.safetensors()).lines
        self.assertTrue(all(line["status"].startswith("using existing layer") for line in again
                            if " layer " in line["status"]), again)
        self.assertEqual(wait_for_no_staging(self.daemon), [])

    def test_a_vocabulary_in_other_files_gives_the_same_tokens(self):
        folder = ROOT / "tests/data/models/qwen3"
        files = {name: (folder / name).read_bytes() for name in ("config.json", "model.safetensors", "chat_template.jinja")}
        tokenizer = json.loads((folder / "tokenizer.json").read_text())
        config = json.loads((folder / "tokenizer_config.json").read_text())
        merges = [one if isinstance(one, str) else " ".join(one) for one in tokenizer["model"]["merges"]]
        config |= {"tokenizer_class": "Qwen2Tokenizer",
                   "added_tokens_decoder": {str(one.pop("id")): one for one in tokenizer["added_tokens"]}}
        for name, more in (("whole", {"tokenizer.json": (folder / "tokenizer.json").read_bytes(),
                                      "tokenizer_config.json": (folder / "tokenizer_config.json").read_bytes()}),
                           ("pairs", {"vocab.json": json.dumps(tokenizer["model"]["vocab"]).encode(),
                                      "merges.txt": "\n".join(["#version: 0.2", *merges, ""]).encode(),
                                      "tokenizer_config.json": json.dumps(config).encode()})):
            made = self.create(model=name, files={file: upload(self.daemon, data) for file, data in (files | more).items()})
            self.assertEqual(made.lines[-1], {"status": "success"}, made.text)
        for text in ("Hello, world! It's 12 \u00e9.", "<|im_start|>user\nHi<|im_end|>\n"):
            whole, pairs = (self.daemon.post("/tokenize", {"model": name, "content": text, "parse_special": True}).json
                            for name in ("whole", "pairs"))
            self.assertEqual(whole, pairs)
        self.assertEqual(generate(self.daemon, "whole", "the cat")["response"], generate(self.daemon, "pairs", "the cat")["response"])

    def test_safetensors_in_shards_are_quantized_on_the_way(self):
        made = self.create(model="shards", files=self.safetensors(**in_shards(DIRECTORY)), quantize="q8_0")
        self.assertEqual(made.lines[-1], {"status": "success"}, made.text)
        shown = self.daemon.post("/api/show", {"model": "shards"}).json
        self.assertEqual(shown["details"]["quantization_level"], "Q8_0")
        self.assertGreater(generate(self.daemon, "shards", "What is a prefix cache?")["eval_count"], 0)
        self.assertEqual(wait_for_no_staging(self.daemon), [])

    def test_safetensors_that_are_not_whole_are_refused(self):
        for changed, why in (({"config.json": None}, "config.json"), ({"tokenizer.json": None}, "tokenizer"),
                             ({"config.json": b"{"}, "config.json"), ({"model.safetensors": b"x" * 100}, "safetensors"),
                             ({"config.json": b'{"model_type": "nobody_knows"}'}, "nobody_knows")):
            reply = self.create(model="no", files=self.safetensors(**changed), stream=False)
            self.assertEqual(reply.status, 400, reply.text)
            self.assertIn(why, reply.json["error"])
            self.assertNotIn("/", reply.json["error"])
        self.assertEqual(self.daemon.post("/api/show", {"model": "no"}).status, 404)
        self.assertEqual(wait_for_no_staging(self.daemon), [])

    def test_files_that_are_no_model_together_are_refused(self):
        gguf = upload(self.daemon, Q8_0.read_bytes())
        for files in ({"a.gguf": gguf, "b.gguf": gguf}, {"a-00001-of-00002.gguf": gguf, "x/a-00001-of-00002.gguf": gguf}):
            reply = self.create(model="no", files=files, stream=False)
            self.assertEqual(reply.status, 400, reply.text)
        reply = self.create(**{"model": "no", "from": MODEL, "adapters": {"a.gguf": gguf}, "stream": False})
        self.assertEqual(reply.status, 400)
        self.assertIn("adapters", reply.json["error"])

    def test_what_is_built_in_elsewhere_is_kept_and_shown(self):
        self.create(**{"model": "named", "from": MODEL, "template": "{{ .Prompt }}"})
        made = self.create(**{"model": "named", "from": "named", "renderer": "lfm2", "parser": "lfm2-thinking",
                              "info": {"context_length": 7}})
        self.assertEqual(made.lines[-1], {"status": "success"}, made.text)
        shown = self.daemon.post("/api/show", {"model": "named"}).json
        self.assertEqual((shown["renderer"], shown["parser"]), ("lfm2", "lfm2-thinking"))
        # A renderer goes before the template, which in such models says nothing: here the weights' own does.
        self.assertEqual(generate(self.daemon, "named", "the cat")["response"],
                         generate(self.daemon, MODEL, "the cat")["response"])
        # A template of one's own goes before everything.
        self.create(**{"model": "named", "from": "named", "template": "U {{ .Prompt }} A "})
        self.assertEqual(generate(self.daemon, "named", "the cat")["response"],
                         generate(self.daemon, MODEL, "U the cat A ", raw=True)["response"])

    def test_creating_again_leaves_no_blobs_behind(self):
        digest = upload(self.daemon, F16.read_bytes())
        blobs = pathlib.Path(self.daemon.environment["OLLAMA_MODELS"]) / "blobs"
        self.create(model="again", files={"m.gguf": digest}, quantize="q4_0", system="one")
        self.assertEqual(wait_for_no_staging(self.daemon), [])
        before = len(list(blobs.iterdir()))
        for round_number in range(3):
            self.create(model="again", files={"m.gguf": digest}, quantize=["q6_K", "q4_K_S", "q4_0"][round_number],
                        system=f"round {round_number}")
            self.assertEqual(wait_for_no_staging(self.daemon), [])
            self.assertEqual(len(list(blobs.iterdir())), before)
        self.assertEqual(self.daemon.post("/api/show", {"model": "again"}).json["system"], "round 2")

    def test_a_template_of_the_request_takes_the_place_of_the_models(self):
        made = generate(self.daemon, MODEL, "the cat", template="U {{ .Prompt }} A ")
        raw = generate(self.daemon, MODEL, "U the cat A ", raw=True)
        self.assertEqual(made["response"], raw["response"])
        system = generate(self.daemon, MODEL, "q", system="S", template="{{ .System }}|{{ .Prompt }}|")
        self.assertEqual(system["response"], generate(self.daemon, MODEL, "S|q|", raw=True)["response"])
        bad = self.daemon.post("/api/generate", {"model": MODEL, "prompt": "x", "template": "{{ nope }}"})
        self.assertEqual(bad.status, 400)
        self.assertIn("template line 1", bad.json["error"])

    def test_a_template_that_knows_the_suffix_inserts(self):
        self.create(**{"model": "fim", "from": MODEL,
                       "template": "{{ if .Suffix }}P {{ .Prompt }} S {{ .Suffix }} M {{ else }}{{ .Prompt }}{{ end }}"})
        self.assertIn("insert", self.daemon.post("/api/show", {"model": "fim"}).json["capabilities"])
        made = generate(self.daemon, "fim", "def f(", suffix="return 1")
        raw = generate(self.daemon, MODEL, "P def f( S return 1 M ", raw=True)
        self.assertEqual(made["response"], raw["response"])
        long = generate(self.daemon, "fim", "a b c " * 400, suffix="x y z " * 400,
                        options={"num_ctx": 128, "num_predict": 4, "temperature": 0})
        self.assertLess(long["prompt_eval_count"], 128)
        self.assertTrue(long["truncated"])

    def test_a_go_template_takes_the_place_of_the_files_own(self):
        source = "{{ if .System }}SYS {{ .System }} {{ end }}U {{ .Prompt }} A "
        self.assertEqual(self.create(**{"model": "go", "from": MODEL, "template": source}).lines[-1]["status"], "success")
        self.assertEqual(self.daemon.post("/api/show", {"model": "go"}).json["template"], source)
        made = generate(self.daemon, "go", "the cat")
        raw = generate(self.daemon, MODEL, "U the cat A ", raw=True)
        self.assertEqual(made["response"], raw["response"])
        chat = self.daemon.post("/api/chat", {"model": "go", "stream": False,
                                              "messages": [{"role": "user", "content": "the cat"}],
                                              "options": {"temperature": 0, "num_predict": 8}}).json
        self.assertEqual(chat["message"]["content"], made["response"])
        self.assertNotEqual(generate(self.daemon, MODEL, "the cat")["prompt_eval_count"], made["prompt_eval_count"])

    def test_a_bad_go_template_is_refused(self):
        for source, why in (("{{ .Prompt", "line 1: unclosed action"), ("a\n{{ nope }}", "line 2"),
                            ("{{ template \"x\" }}", "not defined")):
            reply = self.create(**{"model": "bad", "from": MODEL, "template": source, "stream": False})
            self.assertEqual(reply.status, 400)
            self.assertIn(why, reply.json["error"])
        self.assertEqual(self.daemon.post("/api/show", {"model": "bad"}).status, 404)

    def test_a_template_that_fails_on_a_request_is_that_requests_error(self):
        source = "{{ .Prompt.Nothing }}"
        self.assertEqual(self.create(**{"model": "fails", "from": MODEL, "template": source}).lines[-1]["status"],
                         "success")
        reply = self.daemon.post("/api/generate", {"model": "fails", "prompt": "x", "stream": False})
        self.assertEqual(reply.status, 400)
        self.assertIn("can't evaluate field Nothing", reply.json["error"])
        self.assertEqual(generate(self.daemon, MODEL, "the cat")["done"], True)


class Facts(unittest.TestCase):
    """What holds for the folder of the store, whoever wrote it and whatever happens meanwhile."""

    @staticmethod
    def files(store):
        return {path.relative_to(store).as_posix() for path in pathlib.Path(store).rglob("*")
                if path.is_file() and not path.name.startswith(".quire-lock")}

    @staticmethod
    def lay_out(store, name, weights, system):
        """A model as Ollama's own programs write it."""
        blobs = store / "blobs"
        blobs.mkdir(parents=True, exist_ok=True)

        def layer(media_type, data):
            digest = hashlib.sha256(data).hexdigest()
            (blobs / f"sha256-{digest}").write_bytes(data)
            return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}

        layers = [layer("application/vnd.ollama.image.model", weights) | {"from": "/somewhere/else"},
                  layer("application/vnd.ollama.image.system", system),
                  layer("application/vnd.ollama.image.params", b'{"temperature":0,"stop":["<|im_end|>"]}\n')]
        config = json.dumps({"model_format": "gguf", "model_family": "lfm2", "model_families": ["lfm2"],
                             "model_type": "5.3M", "file_type": "F16", "architecture": "amd64", "os": "linux",
                             "rootfs": {"type": "layers", "diff_ids": [each["digest"] for each in layers]}}).encode()
        manifest = {"schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
                    "config": layer("application/vnd.docker.container.image.v1+json", config), "layers": layers}
        path = store / "manifests/registry.ollama.ai/library" / name / "latest"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(manifest))
        return {"blobs/" + each["digest"].replace(":", "-") for each in layers + [manifest["config"]]}

    def test_a_store_of_ollama_is_used_as_it_is_and_stays_one(self):
        with tempfile.TemporaryDirectory() as folder:
            store = pathlib.Path(folder)
            theirs = self.lay_out(store, "theirs", Q8_0.read_bytes(), b"Be brief.")
            with Daemon(store=store) as daemon:
                names = [model["name"] for model in daemon.get("/api/tags").json["models"]]
                self.assertIn("theirs:latest", names)
                shown = daemon.post("/api/show", {"model": "theirs"}).json
                self.assertEqual(shown["system"], "Be brief.")
                self.assertGreater(generate(daemon, "theirs", "Hello!")["eval_count"], 0)
                made = daemon.post("/api/create", {"model": "ours", "from": "theirs", "system": "Be kind.",
                                                   "parameters": {"top_k": 7}, "template": "{{ .Prompt }}",
                                                   "license": "MIT", "stream": False})
                self.assertEqual(made.json, {"status": "success"})
                manifest = json.loads((store / "manifests/registry.ollama.ai/library/ours/latest").read_text())
                self.assertEqual(manifest["schemaVersion"], 2)
                self.assertEqual(manifest["mediaType"], "application/vnd.docker.distribution.manifest.v2+json")
                self.assertEqual({layer["mediaType"].rpartition(".")[2] for layer in manifest["layers"]},
                                 {"model", "template", "license", "system", "params"})
                for layer in manifest["layers"] + [manifest["config"]]:
                    data = (store / "blobs" / layer["digest"].replace(":", "-")).read_bytes()
                    self.assertEqual(layer["size"], len(data))
                    self.assertEqual(layer["digest"], "sha256:" + hashlib.sha256(data).hexdigest())
                config = json.loads((store / "blobs" / manifest["config"]["digest"].replace(":", "-")).read_text())
                self.assertEqual(config["rootfs"]["diff_ids"], [layer["digest"] for layer in manifest["layers"]])
                # What both use is there once, and stays while one of them does.
                self.assertEqual(daemon.request("DELETE", "/api/delete", {"model": "theirs"}).status, 200)
                weights = "blobs/" + manifest["layers"][0]["digest"].replace(":", "-")
                self.assertEqual(theirs & self.files(store), {weights})
                self.assertGreater(generate(daemon, "ours", "Hello!")["eval_count"], 0)
                self.assertEqual(daemon.request("DELETE", "/api/delete", {"model": "ours"}).status, 200)
                self.assertNotIn(weights, self.files(store))

    def test_models_come_go_and_run_at_once(self):
        with Daemon({"OLLAMA_MAX_LOADED_MODELS": "2"}) as daemon:
            store = daemon.environment["OLLAMA_MODELS"]
            before = self.files(store)
            bad = []

            def work(number):
                for i in range(12):
                    name = f"many-{(number + i) % 4}"
                    made = daemon.post("/api/create", {"model": name, "from": MODEL, "system": f"{number} {i}",
                                                       "stream": False})
                    if made.status != 200:
                        bad.append(("create", made.text))
                    if i % 3 == 0:
                        reply = daemon.post("/api/generate", {"model": name, "prompt": "Hi", "stream": False,
                                                              "options": {"num_predict": 2}})
                        if reply.status not in (200, 404):
                            bad.append(("generate", reply.text))
                    if i % 2 == 0:
                        gone = daemon.request("DELETE", "/api/delete", {"model": f"many-{(number + i + 1) % 4}"})
                        if gone.status not in (200, 404):
                            bad.append(("delete", gone.text))
                    if daemon.get("/api/tags").status != 200:
                        bad.append(("tags", i))

            threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(bad, [])
            for model in daemon.get("/api/tags").json["models"]:
                self.assertEqual(daemon.post("/api/show", {"model": model["name"]}).status, 200)
                if model["name"].startswith("many-"):
                    self.assertEqual(daemon.request("DELETE", "/api/delete", {"model": model["name"]}).status, 200)
            left = {path for path in self.files(store) - before if path.startswith("manifests/")}
            self.assertEqual(left, set())
            self.assertEqual(wait_for_no_staging(daemon), [])

    def test_a_killed_daemon_leaves_a_usable_store(self):
        with tempfile.TemporaryDirectory() as folder:
            store = pathlib.Path(folder)
            for round_number in range(6):
                daemon = Daemon(store=store).start()
                digest = upload(daemon, F16.read_bytes())
                connection = daemon.connect()
                body = {"model": "killed", "files": {"m.gguf": digest}, "quantize": ["q8_0", "q4_K_M"][round_number % 2],
                        "system": f"round {round_number}"}
                connection.request("POST", "/api/create", json.dumps(body))
                reply = connection.getresponse()
                for _ in range(round_number):
                    if not reply.readline():
                        break
                daemon.process.kill()
                daemon.process.wait()
                connection.close()
                daemon.folder.cleanup()
                with Daemon(store=store) as again:
                    self.assertEqual(wait_for_no_staging(again), [])
                    for model in again.get("/api/tags").json["models"]:
                        self.assertGreater(generate(again, model["name"], "Hello!")["eval_count"], 0)
                    made = again.post("/api/create", {"model": "after", "from": MODEL, "stream": False})
                    self.assertEqual(made.json, {"status": "success"})


class Commands(unittest.TestCase):
    """The commands of `quire` on models."""

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon().start()

    @classmethod
    def tearDownClass(cls):
        cls.daemon.__exit__(None, None, None)

    def cli(self, *arguments, stdin="", code=0):
        done = self.daemon.cli(*arguments, stdin=stdin)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def test_create_from_a_modelfile_and_its_files(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "weights.gguf").write_bytes(F16.read_bytes())
            modelfile = pathlib.Path(folder) / "Modelfile"
            modelfile.write_text('# mine\nfrom ./weights.gguf\nPARAMETER temperature 0.25\nPARAMETER stop "AAA"\n'
                                 'SYSTEM """Be\nkind."""\nTEMPLATE """{{ .System }} U {{ .Prompt }} A """\n'
                                 'MESSAGE user hi\nMESSAGE assistant ho\nLICENSE MIT\n')
            made = self.cli("create", "mine", "-f", str(modelfile), "-q", "q8_0")
            for said in ("gathering model components", "quantizing F16 model to Q8_0",
                         "writing manifest", "success"):
                self.assertIn(said, made.stderr)
            again = self.cli("create", "mine", "-f", str(modelfile), "-q", "q8_0")
            self.assertNotIn("copying file", again.stderr)
        shown = self.daemon.post("/api/show", {"model": "mine"}).json
        self.assertEqual(shown["system"], "Be\nkind.")
        self.assertEqual(shown["template"], "{{ .System }} U {{ .Prompt }} A ")
        self.assertEqual(shown["details"]["quantization_level"], "Q8_0")
        self.assertEqual([message["content"] for message in shown["messages"]], ["hi", "ho"])
        # What is shown makes the same model again.
        text = self.cli("show", "mine", "--modelfile").stdout
        self.cli("create", "again", "-f", "-", stdin=text)
        layers = lambda name: self.daemon.post("/api/show", {"model": name}).json["modelfile"].split("\n\n", 1)[1]
        self.assertEqual(layers("again"), layers("mine"))

    def test_create_says_what_is_wrong(self):
        self.assertEqual(self.cli("create", "x", "-f", "/nowhere/Modelfile", code=1).stderr.splitlines()[-1],
                         "Error: /nowhere/Modelfile: no such file; specify a Modelfile with -f")
        self.assertIn("Error: (line 2): command must be one of",
                      self.cli("create", "x", "-f", "-", stdin="FROM x\nFORM y\n", code=1).stderr)
        self.assertIn("Error: (line 1): ./no.gguf: no such file or directory",
                      self.cli("create", "x", "-f", "-", stdin="FROM ./no.gguf", code=1).stderr)
        self.assertIn("Error: model 'nobody' not found",
                      self.cli("create", "x", "-f", "-", stdin="FROM nobody", code=1).stderr)
        self.assertIn("nonsense", self.cli("create", "x", "-f", "-", stdin=f"FROM {MODEL}\nPARAMETER nonsense 1",
                                           code=1).stderr)

    def test_show_cp_rm_stop(self):
        text = self.cli("show", MODEL).stdout
        self.assertRegex(text, r"(?m)^  Model\n    architecture +lfm2\n    parameters +5\.\dM\n    context length +\d+\n")
        self.assertRegex(text, r"(?m)^  License\n    \S")
        self.assertIn("im_start", self.cli("show", MODEL, "--template").stdout)
        self.assertIn("FROM ", self.cli("show", MODEL, "--modelfile").stdout)
        self.assertIn("token_embd.weight", self.cli("show", "-v", MODEL).stdout)
        self.assertEqual(self.cli("cp", MODEL, "copy").stdout, f"copied '{MODEL}' to 'copy'\n")
        self.cli("run", "copy", "hi")
        self.assertIn("copy:latest", self.cli("ps").stdout)
        self.cli("stop", "copy")
        deadline = time.monotonic() + 60
        while "copy:latest" in self.cli("ps").stdout and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assertNotIn("copy:latest", self.cli("ps").stdout)
        self.assertIn("couldn't find model \"nobody\" to stop", self.cli("stop", "nobody", code=1).stderr)
        self.cli("cp", MODEL, "two")
        self.assertEqual(self.cli("rm", "copy", "two").stdout, "deleted 'copy'\ndeleted 'two'\n")
        self.assertNotIn("copy", self.cli("list").stdout)
        self.assertIn("not found", self.cli("rm", "copy", code=1).stderr)
        self.assertIn("not found", self.cli("show", "nobody", code=1).stderr)
        self.assertIn("excludes", self.cli("show", MODEL, "--system", "--license", code=1).stderr)

    def test_run_takes_input_and_forms(self):
        self.assertIn("Error: ", self.cli("run", MODEL, "hi", "--format", "xml", code=1).stderr)
        verbose = self.cli("run", MODEL, "--verbose", "--nowordwrap", "--keepalive", "1m", stdin="Hello!")
        for what in ("total duration:", "load duration:", "prompt eval count:", "eval rate:"):
            self.assertIn(what, verbose.stderr)
        self.assertIn("Error: unknown command \"rnu\"", self.cli("rnu", MODEL, code=1).stderr)

    def test_every_command_has_help(self):
        overview = self.cli("--help").stdout
        for command in ("serve", "run", "create", "show", "list", "ps", "stop", "cp", "rm", "pull", "push"):
            self.assertRegex(overview, rf"(?m)^  {command}\b")
            self.assertIn("Usage: quire", self.cli(command, "--help").stdout)


if __name__ == "__main__":
    unittest.main()
