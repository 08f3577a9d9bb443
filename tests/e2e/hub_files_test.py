"""Models of a hub, by its lists of files: hf.co/OWNER/REPO[:QUANT] and modelscope.cn/OWNER/REPO[:QUANT], single and split GGUF
files, projectors, safetensors, tokens, mirrors, resumption and hashes. Against a stand-in hub on loopback (standin_hub.py).
"""
import http.server
import json
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

import suites
from harness import ROOT, Daemon
from registry_test import free_port, statuses
from standin_hub import Hub, make_certificate, sha256, split_gguf

MODELS = ROOT / "packaging/models"
WEIGHTS = (MODELS / "quire-demo-Q8_0.gguf").read_bytes()
TRUSTED = {"QUIRE_REGISTRIES": "127.0.0.1,localhost"}
PROMPT = {"prompt": "Once upon a time", "stream": False, "options": {"temperature": 0, "num_predict": 8}}


def safetensors():
    return {path.name: path.read_bytes() for path in (MODELS / "quire-demo").iterdir()}


def repositories():
    projector = b"GGUF" + b"\3\0\0\0" + b"\0" * 16 + b"a projector"
    return {
        "owner/demo-GGUF": {"README.md": b"# demo", "demo-Q4_K_M.gguf": b"not it", "demo-Q8_0.gguf": WEIGHTS},
        "owner/split-GGUF": {f"Q8_0/{name}": data for name, data in split_gguf(WEIGHTS, "demo-Q8_0").items()},
        "owner/seen-GGUF": {"mmproj-F32.gguf": projector + b"32", "mmproj-demo-f16.gguf": projector, "demo-Q8_0.gguf": WEIGHTS},
        "owner/plain": safetensors() | {"README.md": b"# demo", "training/optimizer.safetensors": b"no"},
    }


def blobs(daemon):
    return pathlib.Path(daemon.environment["OLLAMA_MODELS"]) / "blobs"


def pull(daemon, model, **fields):
    return daemon.post("/api/pull", {"model": model, "stream": False, **fields})


class Files(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.hub = cls.enterClassContext(Hub(repositories()))
        cls.daemon = cls.enterClassContext(Daemon(TRUSTED | {"HF_ENDPOINT": cls.hub.endpoint}))
        cls.answer = cls.daemon.post("/api/generate", PROMPT | {"model": "quire-demo"}).json["response"]

    def generate(self, model):
        return self.daemon.post("/api/generate", PROMPT | {"model": model}).json["response"]

    def layers(self, model):
        manifest = json.loads((blobs(self.daemon).parent / "manifests" / model.replace(":", "/")).read_text())
        return {layer["mediaType"].rpartition(".")[2]: layer for layer in manifest["layers"]}

    def test_a_quantization_by_name(self):
        self.hub.repositories["owner/fresh-GGUF"] = {"fresh-Q4_K_M.gguf": b"not it", "fresh-Q8_0.gguf": WEIGHTS}
        said = statuses(self.daemon.post("/api/pull", {"model": "hf.co/owner/fresh-GGUF:q8_0"}))
        self.assertEqual(said[-1], "success")
        self.assertIn("pulling fresh-Q8_0.gguf", said)
        self.assertTrue(self.generate("hf.co/owner/fresh-GGUF:q8_0"))
        self.assertTrue((blobs(self.daemon) / f"sha256-{sha256(WEIGHTS)}").exists())
        shown = self.daemon.post("/api/show", {"model": "hf.co/owner/fresh-GGUF:q8_0"}).json
        self.assertEqual(shown["details"]["quantization_level"], "Q8_0")
        fetched = len(self.hub.paths("/signed/"))
        self.assertEqual(pull(self.daemon, "hf.co/owner/fresh-GGUF:Q8_0").status, 200)
        self.assertEqual(len(self.hub.paths("/signed/")), fetched)  # it has the bytes

    def test_an_unknown_quantization_names_those_that_there_are(self):
        reply = pull(self.daemon, "hf.co/owner/demo-GGUF:Q2_K")
        self.assertEqual(reply.status, 404, reply.text)
        self.assertIn("Q4_K_M, Q8_0", reply.json["error"])
        reply = pull(self.daemon, "hf.co/owner/absent")
        self.assertEqual(reply.status, 404, reply.text)
        self.assertIn("owner/absent", reply.json["error"])

    def test_the_parts_of_a_split_file_become_one_model(self):
        reply = pull(self.daemon, "huggingface.co/owner/split-GGUF")
        self.assertEqual(reply.status, 200, reply.text)
        self.assertEqual(self.generate("huggingface.co/owner/split-GGUF"), self.generate_whole())
        for data in self.hub.repositories["owner/split-GGUF"].values():
            self.assertFalse((blobs(self.daemon) / f"sha256-{sha256(data)}").exists())
        fetched = len(self.hub.paths("/signed/"))
        self.assertEqual(pull(self.daemon, "huggingface.co/owner/split-GGUF").status, 200)
        self.assertEqual(len(self.hub.paths("/signed/")), fetched)  # the parts are gone, and the model is of them

    def generate_whole(self):
        self.assertEqual(pull(self.daemon, "hf.co/owner/demo-GGUF:Q8_0").status, 200)
        return self.generate("hf.co/owner/demo-GGUF:Q8_0")

    def test_a_part_that_is_missing_is_named(self):
        whole = split_gguf(WEIGHTS, "demo-Q8_0")
        first = min(whole)
        self.hub.repositories["owner/half-GGUF"] = {first: whole[first]}
        reply = pull(self.daemon, "hf.co/owner/half-GGUF")
        self.assertEqual(reply.status, 404, reply.text)
        self.assertIn("demo-Q8_0-00002-of-00002.gguf", reply.json["error"])

    def test_what_is_no_model_is_refused_and_removed(self):
        data = b"this is no GGUF file"
        self.hub.repositories["owner/bad-GGUF"] = {"bad-Q8_0.gguf": data}
        reply = pull(self.daemon, "hf.co/owner/bad-GGUF")
        self.assertEqual(reply.status, 400, reply.text)
        self.assertIn("not a GGUF file", reply.json["error"])
        self.assertFalse((blobs(self.daemon) / f"sha256-{sha256(data)}").exists())

    def test_a_projector_beside_the_model_is_taken_along(self):
        reply = pull(self.daemon, "hf.co/owner/seen-GGUF:Q8_0")
        self.assertEqual(reply.status, 200, reply.text)
        projector = self.hub.repositories["owner/seen-GGUF"]["mmproj-demo-f16.gguf"]
        self.assertEqual(self.layers("hf.co/owner/seen-GGUF:Q8_0")["projector"]["digest"], "sha256:" + sha256(projector))
        self.assertEqual((blobs(self.daemon) / f"sha256-{sha256(projector)}").read_bytes(), projector)
        self.assertTrue(self.generate("hf.co/owner/seen-GGUF:Q8_0"))
        self.assertFalse(any("mmproj-F32" in path for path in self.hub.paths("/owner/seen-GGUF/")))

    def test_a_repository_of_safetensors(self):
        reply = pull(self.daemon, "hf.co/owner/plain")
        self.assertEqual(reply.status, 200, reply.text)
        self.assertEqual(self.generate("hf.co/owner/plain"), self.answer)
        self.assertFalse(any("optimizer" in path for path in self.hub.paths("/owner/plain/")))

    def test_a_model_is_made_from_one_of_the_hub(self):
        modelfile = "FROM hf.co/owner/demo-GGUF:Q8_0\nSYSTEM You are brief.\n"
        made = self.daemon.cli("create", "brief", "-f", "-", stdin=modelfile)
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertEqual(self.daemon.post("/api/show", {"model": "brief"}).json["system"], "You are brief.")


class Tokens(unittest.TestCase):
    def test_a_token_goes_to_the_hub_alone(self):
        with Hub(repositories(), token="hf_secret") as hub, Daemon(TRUSTED | {"HF_ENDPOINT": hub.endpoint}) as daemon:
            refused = pull(daemon, "hf.co/owner/demo-GGUF:Q8_0")
            self.assertEqual(refused.status, 403, refused.text)
            self.assertIn("HF_TOKEN", refused.json["error"])
            wrong = pull(daemon, "hf.co/owner/demo-GGUF:Q8_0", hub_token="hf_other")
            self.assertEqual(wrong.status, 403, wrong.text)
            self.assertNotIn("hf_other", wrong.text + daemon.log())
            given = pull(daemon, "hf.co/owner/demo-GGUF:Q8_0", hub_token="hf_secret")
            self.assertEqual(given.status, 200, given.text)
            for _, path, headers in hub.seen:
                if path.startswith("/signed/"):
                    self.assertNotIn("Authorization", headers)
            self.assertTrue(hub.paths("/signed/"))

    def test_the_command_line_brings_the_token_of_its_user(self):
        for place in ("HF_TOKEN", "HF_TOKEN_PATH", "HF_HOME", "HOME"):
            with Hub(repositories(), token="hf_secret") as hub, Daemon(TRUSTED | {"HF_ENDPOINT": hub.endpoint}) as daemon, \
                    tempfile.TemporaryDirectory() as folder, self.subTest(place):
                path = pathlib.Path(folder) / {"HOME": ".cache/huggingface/token"}.get(place, "token")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("hf_secret\n")
                value = {"HF_TOKEN": "hf_secret", "HF_TOKEN_PATH": str(path)}.get(place, folder)
                daemon.environment |= {place: value}
                pulled = daemon.cli("pull", "hf.co/owner/demo-GGUF:Q8_0")
                self.assertEqual(pulled.returncode, 0, pulled.stderr)

    def test_a_token_is_not_sent_to_another_machine_without_tls(self):
        bodies = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                bodies.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b'{"status": "success"}\n')

            def log_message(self, *_):
                pass

        name = socket.gethostname()  # as a name of another machine has, it says nothing of where that is
        try:
            server = http.server.HTTPServer((socket.gethostbyname(name), 0), Handler)
        except OSError as error:
            self.skipTest(f"{name}: {error}")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        daemon = Daemon({"HF_TOKEN": "hf_secret"})
        for host, sent in ((name, False), (server.server_address[0], server.server_address[0].startswith("127."))):
            daemon.environment["OLLAMA_HOST"] = f"http://{host}:{server.server_port}"
            pulled = daemon.cli("pull", "hf.co/owner/demo-GGUF")
            self.assertEqual(pulled.returncode, 0, pulled.stderr)
            self.assertEqual("hf_secret" in bodies[-1], sent)
            self.assertEqual("token is not sent" in pulled.stderr, not sent)
        server.shutdown()
        server.server_close()
        daemon.folder.cleanup()

    def test_the_daemons_own_token_is_for_its_own_hub(self):
        with Hub(repositories(), token="hf_own") as hub, Hub(repositories(), token="hf_own") as other, \
                Daemon(TRUSTED | {"HF_ENDPOINT": hub.endpoint, "HF_TOKEN": "hf_own"}) as daemon:
            self.assertEqual(pull(daemon, "hf.co/owner/demo-GGUF:Q8_0").status, 200)
            elsewhere = pull(daemon, "hf.co/owner/seen-GGUF:Q8_0", hub_endpoint=other.endpoint)
            self.assertEqual(elsewhere.status, 403, elsewhere.text)
            self.assertFalse(any("Authorization" in headers for _, _, headers in other.seen))


class Mirrors(unittest.TestCase):
    def test_a_mirror_that_the_command_line_names(self):
        with Hub(repositories()) as hub, Daemon(TRUSTED | {"HF_ENDPOINT": "http://127.0.0.1:9"}) as daemon:
            daemon.environment["HF_ENDPOINT"] = hub.endpoint + "/"
            pulled = daemon.cli("pull", "hf.co/owner/demo-GGUF:Q8_0")
            self.assertEqual(pulled.returncode, 0, pulled.stderr)

    def test_a_private_address_that_the_operator_does_not_trust_is_refused(self):
        with Hub(repositories()) as hub, Daemon() as daemon:
            for endpoint in (hub.endpoint, hub.endpoint.replace("http:", "https:")):
                reply = pull(daemon, "hf.co/owner/demo-GGUF:Q8_0", hub_endpoint=endpoint)
                self.assertEqual(reply.status, 403, reply.text)
            self.assertEqual(hub.seen, [])
            self.assertEqual(pull(daemon, "hf.co/owner/demo-GGUF", hub_endpoint="file:///etc").status, 400)

    def test_modelscope(self):
        with tempfile.TemporaryDirectory() as folder:
            key, certificate = make_certificate(pathlib.Path(folder), "127.0.0.1", "localhost")
            with Hub(repositories(), certificate=(key, certificate)) as hub, \
                    Daemon(TRUSTED | {"MODELSCOPE_DOMAIN": hub.host, "SSL_CERT_FILE": str(certificate),
                                      "HF_TOKEN": "hf_secret"}) as daemon:
                for model in ("modelscope.cn/owner/demo-GGUF:Q8_0", "modelscope.cn/owner/split-GGUF", "modelscope.cn/owner/plain"):
                    reply = pull(daemon, model)
                    self.assertEqual(reply.status, 200, reply.text)
                    self.assertTrue(daemon.post("/api/generate", PROMPT | {"model": model}).json["response"])
                self.assertFalse(any("Authorization" in headers for _, _, headers in hub.seen))


class Trust(unittest.TestCase):
    def test_what_a_killed_daemon_has_fetched_is_not_fetched_again(self):
        with Hub(repositories()) as hub, tempfile.TemporaryDirectory() as store:
            hub.stop_after = len(WEIGHTS) // 2
            environment = TRUSTED | {"HF_ENDPOINT": hub.endpoint}
            first = Daemon(environment, store=store)
            first.start()
            connection = first.connect()
            connection.request("POST", "/api/pull", json.dumps({"model": "hf.co/owner/demo-GGUF:Q8_0"}))
            part = blobs(first) / f".quire-partial-sha256-{sha256(WEIGHTS)}"
            deadline = time.monotonic() + 60
            while not part.exists() or part.stat().st_size < hub.stop_after:
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.02)
            first.stop(signal.SIGKILL)
            connection.close()
            first.folder.cleanup()
            half, hub.stop_after = hub.stop_after, None
            with Daemon(environment, store=store) as second:
                reply = pull(second, "hf.co/owner/demo-GGUF:Q8_0")
                self.assertEqual(reply.status, 200, reply.text)
                ranges = [headers.get("Range") for _, path, headers in hub.seen if path.startswith("/signed/")]
                self.assertEqual(ranges[-1], f"bytes={half}-")

    def test_a_file_of_another_hash_is_refused_by_name(self):
        with Hub(repositories()) as hub, Daemon(TRUSTED | {"HF_ENDPOINT": hub.endpoint}) as daemon:
            hub.wrong = {"demo-Q8_0.gguf", "config.json"}
            for model, file in (("hf.co/owner/demo-GGUF:Q8_0", "demo-Q8_0.gguf"), ("hf.co/owner/plain", "config.json")):
                reply = pull(daemon, model)
                self.assertEqual(reply.status, 500, reply.text)
                self.assertIn(file, reply.json["error"])
                self.assertIn("digest mismatch", reply.json["error"])
                self.assertEqual(daemon.post("/api/show", {"model": model}).status, 404)
            self.assertFalse((blobs(daemon) / f"sha256-{sha256(WEIGHTS)}").exists())


@unittest.skipUnless(shutil.which("tinyproxy"), "tinyproxy is not installed")
class Proxies(unittest.TestCase):
    """Through tinyproxy. What is on this machine is not asked of a proxy, but the address 0.0.0.0, which leads here too."""

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.port = free_port()
        self.log = self.folder / "log"
        (self.folder / "conf").write_text(f"Port {self.port}\nListen 127.0.0.1\nTimeout 60\nMaxClients 20\nLogLevel Connect\n"
                                          f'LogFile "{self.log}"\nAllow 127.0.0.1\n')
        self.process = subprocess.Popen(["tinyproxy", "-d", "-c", self.folder / "conf"], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while True:
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", self.port)) == 0:
                    break
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)

    def tearDown(self):
        self.process.terminate()
        self.process.wait()

    def connected(self):
        return [line for line in self.log.read_text().splitlines() if "): CONNECT " in line]

    def daemon(self, hub, certificate, **environment):
        return Daemon({"HF_ENDPOINT": hub.endpoint, "SSL_CERT_FILE": str(certificate), "QUIRE_REGISTRIES": "0.0.0.0,localhost",
                       "HTTPS_PROXY": f"http://127.0.0.1:{self.port}"} | environment)

    def test_a_pull_goes_through_the_proxy(self):
        key, certificate = make_certificate(self.folder, "0.0.0.0", "localhost")
        with Hub(repositories(), certificate=(key, certificate), host="0.0.0.0") as hub:
            with self.daemon(hub, certificate) as daemon:
                reply = pull(daemon, "hf.co/owner/demo-GGUF:Q8_0")
                self.assertEqual(reply.status, 200, reply.text)
            self.assertIn(f"CONNECT {hub.host} HTTP/1.1", "\n".join(self.connected()))
            before = len(self.connected())
            with self.daemon(hub, certificate, NO_PROXY="0.0.0.0") as daemon:
                reply = pull(daemon, "hf.co/owner/demo-GGUF:Q8_0")
                self.assertEqual(reply.status, 200, reply.text)
            self.assertEqual(len(self.connected()), before)

    def test_private_addresses_are_not_asked_of_the_proxy(self):
        key, certificate = make_certificate(self.folder, "0.0.0.0", "localhost")
        with Hub(repositories(), certificate=(key, certificate), host="0.0.0.0") as hub, \
                self.daemon(hub, certificate, QUIRE_REGISTRIES="localhost", HF_ENDPOINT="https://192.0.2.1") as daemon:
            for endpoint in (hub.endpoint, "https://169.254.169.254", "https://10.0.0.1"):
                reply = pull(daemon, "hf.co/owner/demo-GGUF:Q8_0", hub_endpoint=endpoint)
                self.assertEqual(reply.status, 403, reply.text)
            self.assertEqual(self.connected(), [])


class CommandLine(unittest.TestCase):
    """What the command line puts into the store of a daemon of the same user, and what it finds on the hub."""

    def pull_with_cache(self, hub, data):
        """What a pull says whose user has `data` as the file's in the hub's cache; whether it is a link to that."""
        with Daemon(TRUSTED | {"HF_ENDPOINT": hub.endpoint}) as daemon:
            cache = pathlib.Path(daemon.folder.name) / "cache"
            repository = cache / "models--owner--demo-GGUF"
            blob = repository / "blobs" / sha256(WEIGHTS)
            snapshot = repository / "snapshots/abc"
            for folder in (blob.parent, snapshot, repository / "refs"):
                folder.mkdir(parents=True)
            (repository / "refs/main").write_text("abc")
            blob.write_bytes(data)
            (snapshot / "demo-Q8_0.gguf").symlink_to(f"../../blobs/{blob.name}")
            daemon.environment["HF_HUB_CACHE"] = str(cache)
            pulled = daemon.cli("pull", "hf.co/owner/demo-GGUF:Q8_0")
            self.assertEqual(pulled.returncode, 0, pulled.stderr)
            stored = blobs(daemon) / f"sha256-{blob.name}"
            linked = stored.stat().st_ino == blob.stat().st_ino
            self.assertEqual(daemon.cli("rm", "hf.co/owner/demo-GGUF:Q8_0").returncode, 0)
            self.assertFalse(stored.exists())
            return pulled.stderr, linked

    def test_a_file_of_the_hubs_cache_is_linked_and_not_fetched(self):
        with Hub(repositories()) as hub:
            said, linked = self.pull_with_cache(hub, WEIGHTS)
            self.assertIn("linked demo-Q8_0.gguf from", said)
            self.assertTrue(linked)
            self.assertEqual(hub.paths("/signed/"), [])
            said, linked = self.pull_with_cache(hub, WEIGHTS[::-1])
            self.assertIn("not the file that its name says", said)
            self.assertFalse(linked)
            self.assertEqual(len(hub.paths("/signed/")), 1)

    def test_a_search_lists_repositories_with_gguf_files_first(self):
        with Hub(repositories()) as hub, Daemon() as daemon:
            daemon.environment["HF_ENDPOINT"] = hub.endpoint
            found = daemon.cli("search", "OWNER")
            self.assertEqual(found.returncode, 0, found.stderr)
            rows = [line.split() for line in found.stdout.splitlines()[1:]]
            self.assertEqual(rows[-1][:2], ["hf.co/owner/plain", "safetensors"])
            self.assertIn(["hf.co/owner/demo-GGUF", "gguf", "1234", "5", "2026-01-02"], rows)
            none = daemon.cli("search", "nothing like it")
            self.assertEqual(none.returncode, 1)
            self.assertIn("nothing like it", none.stderr)


if __name__ == "__main__":
    suites.run()
