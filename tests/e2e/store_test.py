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

F16 = ROOT / "packaging/models/quire-demo-F16.gguf"
Q8_0 = ROOT / "packaging/models/quire-demo-Q8_0.gguf"


def upload(daemon, data):
    digest = "sha256:" + hashlib.sha256(data).hexdigest()
    if daemon.request("HEAD", f"/api/blobs/{digest}").status == 200:
        return digest
    reply = daemon.request("POST", f"/api/blobs/{digest}", data)
    assert reply.status in (200, 201), reply.text
    return digest


def generate(daemon, model, prompt, **fields):
    body = {"model": model, "prompt": prompt, "stream": False, "options": {"temperature": 0, "num_predict": 8}}
    return daemon.post("/api/generate", body | fields).json


def staging(daemon):
    blobs = pathlib.Path(daemon.environment["OLLAMA_MODELS"]) / "blobs"
    return [path.name for path in blobs.iterdir() if path.name.startswith(".quire-staging")]


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
                                                   "parameters": {"top_k": 7}, "license": "MIT", "stream": False})
                self.assertEqual(made.json, {"status": "success"})
                manifest = json.loads((store / "manifests/registry.ollama.ai/library/ours/latest").read_text())
                self.assertEqual(manifest["schemaVersion"], 2)
                self.assertEqual(manifest["mediaType"], "application/vnd.docker.distribution.manifest.v2+json")
                self.assertEqual({layer["mediaType"].rpartition(".")[2] for layer in manifest["layers"]},
                                 {"model", "license", "system", "params"})
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
            self.assertEqual(staging(daemon), [])

    def test_a_killed_daemon_leaves_a_usable_store(self):
        with tempfile.TemporaryDirectory() as folder:
            store = pathlib.Path(folder)
            for round_number in range(6):
                daemon = Daemon(store=store).start()
                digest = upload(daemon, Q8_0.read_bytes())
                connection = daemon.connect()
                body = {"model": "killed", "files": {"m.gguf": digest}, "system": f"round {round_number}"}
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
                    self.assertEqual(staging(again), [])
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
            (pathlib.Path(folder) / "weights.gguf").write_bytes(Q8_0.read_bytes())
            modelfile = pathlib.Path(folder) / "Modelfile"
            modelfile.write_text('# mine\nfrom ./weights.gguf\nPARAMETER temperature 0.25\nPARAMETER stop "AAA"\n'
                                 'SYSTEM """Be\nkind."""\n'
                                 'MESSAGE user hi\nMESSAGE assistant ho\nLICENSE MIT\n')
            made = self.cli("create", "mine", "-f", str(modelfile))
            for said in ("gathering model components", "copying file sha256:", "writing manifest", "success"):
                self.assertIn(said, made.stderr)
            again = self.cli("create", "mine", "-f", str(modelfile))
            self.assertNotIn("copying file", again.stderr)
        shown = self.daemon.post("/api/show", {"model": "mine"}).json
        self.assertEqual(shown["system"], "Be\nkind.")
        self.assertEqual([message["content"] for message in shown["messages"]], ["hi", "ho"])
        # What is shown makes the same model again.
        text = self.cli("show", "mine", "--modelfile").stdout
        self.cli("create", "again", "-f", "-", stdin=text)
        layers = lambda name: self.daemon.post("/api/show", {"model": name}).json["modelfile"].split("\n\n", 1)[1]
        self.assertEqual(layers("again"), layers("mine"))

    def test_create_says_what_is_wrong(self):
        self.assertEqual(self.cli("create", "x", "-f", "/nowhere/Modelfile", code=1).stderr.splitlines()[-1],
                         "Error: /nowhere/Modelfile: no such file; name a Modelfile with -f")
        self.assertIn("Error: (line 2): command must be one of",
                      self.cli("create", "x", "-f", "-", stdin="FROM x\nFORM y\n", code=1).stderr)
        self.assertIn("Error: (line 1): ./no.gguf: no such file or directory",
                      self.cli("create", "x", "-f", "-", stdin="FROM ./no.gguf", code=1).stderr)
        self.assertIn('Error: model "nobody:latest" not found',
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
        for command in ("serve", "run", "create", "show", "list", "ps", "stop", "cp", "rm"):
            self.assertRegex(overview, rf"(?m)^  {command}\b")
            self.assertIn("Usage: quire", self.cli(command, "--help").stdout)


if __name__ == "__main__":
    unittest.main()
