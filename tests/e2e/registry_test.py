"""Pull and push against a real registry (Debian's docker-registry) on loopback, plain, with TLS and with accounts; and
against one that misbehaves.

usage: registry_test.py Suite
"""
import base64
import hashlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from evil_registry import Evil
from harness import MODEL, Daemon

ACCOUNT = ("alice", "open sesame")
SKIPPED = 77


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def make_certificate(folder):
    """A certificate for 127.0.0.1, which is its own authority."""
    key, certificate = folder / "key.pem", folder / "cert.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", key, "-out",
                    certificate, "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"],
                   check=True, capture_output=True)
    return key, certificate


class Registry:
    """docker-registry with a folder of its own."""

    def __init__(self, tls=False, account=None):
        self.folder = tempfile.TemporaryDirectory(prefix="quire-registry-")
        path = pathlib.Path(self.folder.name)
        self.port = free_port()
        self.host = f"127.0.0.1:{self.port}"
        self.environment = {}
        config = {"version": 0.1, "log": {"level": "error", "accesslog": {"disabled": True}},
                  "storage": {"filesystem": {"rootdirectory": str(path / "data")}, "delete": {"enabled": True}},
                  "http": {"addr": f"127.0.0.1:{self.port}"}}
        if tls:
            key, certificate = make_certificate(path)
            config["http"]["tls"] = {"certificate": str(certificate), "key": str(key)}
            self.environment["SSL_CERT_FILE"] = str(certificate)
        if account:
            (path / "htpasswd").write_text(subprocess.run(["htpasswd", "-nbB", *account], check=True, text=True,
                                                          capture_output=True).stdout)
            config["auth"] = {"htpasswd": {"realm": "quire", "path": str(path / "htpasswd")}}
            token = base64.b64encode(":".join(account).encode()).decode()
            (path / "config.json").write_text(json.dumps({"auths": {self.host: {"auth": token}}}))
            self.environment["QUIRE_REGISTRY_AUTH"] = str(path / "config.json")
        (path / "config.yml").write_text(json.dumps(config))  # JSON is YAML
        self.log = open(path / "log", "wb")
        self.process = subprocess.Popen(["docker-registry", "serve", path / "config.yml"], stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=self.log)

    def __enter__(self):
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            except OSError:
                assert self.process.poll() is None and time.monotonic() < deadline, "docker-registry does not start"
                time.sleep(0.05)

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.log.close()
        self.folder.cleanup()


def statuses(reply):
    return [line.get("status", line.get("error")) for line in reply.lines]


def models(daemon):
    return {model["name"]: model for model in daemon.get("/api/tags").json["models"]}


def answer(daemon, model):
    return daemon.post("/api/generate", {"model": model, "prompt": "What is a prefix cache?", "stream": False,
                                         "options": {"temperature": 0, "num_predict": 8}}).json["response"]


class RoundTrip(unittest.TestCase):
    def test_run_pulls_what_is_missing(self):
        """A repository as the hub serves it: the weights under Ollama's media type, a config of Docker's."""
        with Registry() as registry:
            name = f"{registry.host}/owner/tiny-gguf:Q8_0"
            environment = {"QUIRE_REGISTRIES": registry.host}
            with Daemon(environment) as first:
                first.post("/api/create", {"model": name, "from": MODEL, "stream": False})
                self.assertEqual(statuses(first.post("/api/push", {"model": name, "insecure": True}))[-1], "success")
            with Daemon(environment) as second:
                ran = second.cli("run", "--insecure", name, "Hello!")
                self.assertEqual(ran.returncode, 0, ran.stderr)
                self.assertTrue(ran.stdout.strip())
                self.assertIn(name, models(second))
                missing = second.cli("run", "--insecure", f"{registry.host}/owner/none:latest", "Hello!")
                self.assertEqual(missing.returncode, 1)

    def there_and_back(self, registry, insecure, environment):
        name = f"{registry.host}/team/demo:v1"
        with Daemon(environment) as first:
            made = first.post("/api/create", {"model": name, "from": MODEL, "system": "Be brief.", "stream": False})
            self.assertEqual(made.json, {"status": "success"})
            pushed = first.post("/api/push", {"model": name, "insecure": insecure})
            said = statuses(pushed)
            self.assertEqual(said[0], "retrieving manifest")
            self.assertEqual(said[-2:], ["pushing manifest", "success"])
            weights = max((line for line in pushed.lines if "total" in line),
                          key=lambda line: (line["total"], line["completed"]))
            self.assertEqual(weights["completed"], weights["total"])
            again = first.post("/api/push", {"model": name, "insecure": insecure, "stream": False})
            self.assertEqual(again.json, {"status": "success"})
            before, said_before = models(first)[name], answer(first, name)
        with Daemon(environment) as second:
            pulled = second.post("/api/pull", {"model": name, "insecure": insecure})
            said = statuses(pulled)
            self.assertEqual(said[0], "pulling manifest")
            self.assertEqual(said[-3:], ["verifying sha256 digest", "writing manifest", "success"])
            after = models(second)[name]
            self.assertEqual((after["digest"], after["size"]), (before["digest"], before["size"]))
            self.assertEqual(answer(second, name), said_before)
            self.assertEqual(second.post("/api/show", {"model": name}).json["system"], "Be brief.")
            self.assertEqual(statuses(second.post("/api/pull", {"model": name, "insecure": insecure}))[-1], "success")
            missing = second.post("/api/pull", {"model": f"{registry.host}/team/other", "insecure": insecure,
                                                "stream": False})
            self.assertEqual(missing.status, 404)
            self.assertIn("file does not exist", missing.json["error"])

    def test_plain_http_is_for_trusted_registries(self):
        with Registry() as registry:
            self.there_and_back(registry, True, {"QUIRE_REGISTRIES": registry.host})
            with Daemon() as daemon:
                reply = daemon.post("/api/pull", {"model": f"{registry.host}/team/demo:v1", "insecure": True,
                                                  "stream": False})
                self.assertEqual(reply.status, 403)
                self.assertIn("--registries", reply.json["error"])

    def test_tls(self):
        with Registry(tls=True) as registry:
            self.there_and_back(registry, False, {"QUIRE_REGISTRIES": "127.0.0.1"} | registry.environment)
            with Daemon({"QUIRE_REGISTRIES": "127.0.0.1"}) as daemon:  # which does not know the authority
                reply = daemon.post("/api/pull", {"model": f"{registry.host}/team/demo:v1", "stream": False})
                self.assertEqual(reply.status, 503)
                self.assertIn("certificate", reply.json["error"])
            with Daemon(registry.environment) as daemon:  # which does not trust the address
                reply = daemon.post("/api/pull", {"model": f"{registry.host}/team/demo:v1", "stream": False})
                self.assertEqual(reply.status, 403)
                self.assertIn("private address", reply.json["error"])

    def test_accounts(self):
        with Registry(tls=True, account=ACCOUNT) as registry:
            trusting = {"QUIRE_REGISTRIES": registry.host}
            self.there_and_back(registry, False, trusting | registry.environment)
            with Daemon(trusting | {"SSL_CERT_FILE": registry.environment["SSL_CERT_FILE"]}) as daemon:
                reply = daemon.post("/api/pull", {"model": f"{registry.host}/team/demo:v1", "stream": False})
                self.assertEqual(reply.status, 403)
                self.assertIn("credentials", reply.json["error"])

    def test_the_command_line(self):
        with Registry() as registry, Daemon({"QUIRE_REGISTRIES": registry.host}) as daemon:
            name = f"{registry.host}/team/cli"
            self.assertEqual(daemon.cli("cp", MODEL, name).returncode, 0)
            pushed = daemon.cli("push", "--insecure", name)
            self.assertEqual(pushed.returncode, 0, pushed.stderr)
            self.assertEqual(daemon.cli("rm", name).stdout, f"deleted '{name}'\n")
            pulled = daemon.cli("pull", "--insecure", name)
            self.assertEqual(pulled.returncode, 0, pulled.stderr)
            self.assertIn("success", pulled.stderr)
            self.assertIn(f"{name}:latest", daemon.cli("list").stdout)
            failed = daemon.cli("pull", "--insecure", f"{registry.host}/team/none")
            self.assertEqual(failed.returncode, 1)
            self.assertIn("Error: pull model manifest: file does not exist", failed.stderr)


class Hostile(unittest.TestCase):
    def pull(self, daemon, registry, **fields):
        body = {"model": f"{registry.host}/x/y", "insecure": True, "stream": False}
        return daemon.post("/api/pull", body | fields)

    def blobs(self, daemon):
        folder = pathlib.Path(daemon.environment["OLLAMA_MODELS"]) / "blobs"
        return {path.name: path.stat().st_size for path in folder.iterdir()}

    def test_a_blob_with_other_bytes_is_not_taken(self):
        with Evil() as registry, Daemon({"QUIRE_REGISTRIES": "127.0.0.1"}) as daemon:
            digest = registry.give_model(b"A" * 5000)
            registry.blobs[digest] = b"B" * 5000
            reply = self.pull(daemon, registry)
            self.assertEqual(reply.status, 500)
            self.assertIn("digest mismatch", reply.json["error"])
            self.assertNotIn(digest.replace(":", "-"), self.blobs(daemon))
            self.assertNotIn(f".quire-partial-{digest.replace(':', '-')}", self.blobs(daemon))
            registry.blobs[digest] = b"A" * 9000  # longer than the manifest says
            self.assertIn("larger", self.pull(daemon, registry).json["error"])
            self.assertEqual(daemon.post("/api/show", {"model": f"{registry.host}/x/y"}).status, 404)

    def test_what_was_cut_short_goes_on_where_it_stopped(self):
        data = os.urandom(300_000)

        def answer(request):
            if digest.partition(":")[2] not in request.path or request.headers.get("Range"):
                return False
            request.send_response(200)
            request.send_header("Content-Length", str(len(data)))
            request.end_headers()
            request.wfile.write(data[:100_000])
            request.close_connection = True
            return True

        with Evil(answer) as registry, Daemon({"QUIRE_REGISTRIES": "127.0.0.1"}) as daemon:
            digest = registry.give_model(data)
            reply = self.pull(daemon, registry)
            self.assertEqual(reply.json, {"status": "success"})
            ranges = [headers["Range"] for _, path, headers in registry.seen if "Range" in headers]
            self.assertEqual(ranges, ["bytes=100000-"])
            self.assertEqual(self.blobs(daemon)[digest.replace(":", "-")], len(data))

    def test_a_push_that_was_cut_short_goes_on_where_it_stopped(self):
        arrived = bytearray()  # of the weights
        uploads = []  # (Content-Range, Content-Length)
        taken = {}

        def answer(request):
            length = int(request.headers.get("Content-Length", 0))
            at = request.path.partition("?")[0]
            place = {"Location": "/v2/x/y/blobs/uploads/1?state=a"}
            if request.command == "HEAD":
                return request.reply(200 if request.path.rpartition("/")[2] in taken else 404)
            if request.command == "POST":
                arrived.clear()
                return request.reply(202, **place)
            if request.command == "GET" and at.endswith("/uploads/1"):
                return request.reply(204, Range=f"0-{len(arrived) - 1}", **place)
            if request.command == "PATCH":
                uploads.append((request.headers["Content-Range"], length))
                if length > 1_000_000 and len(uploads) < 3:  # the weights, not their config
                    arrived.extend(request.rfile.read(1_000_000))
                    request.close_connection = True
                    return True
                arrived.extend(request.rfile.read(length))
                return request.reply(202, **place)
            if request.command == "PUT" and at.endswith("/uploads/1"):
                digest = "sha256:" + hashlib.sha256(arrived).hexdigest()
                self.assertIn("digest=" + digest.replace(":", "%3A"), request.path)
                taken[digest] = len(arrived)
                return request.reply(201)
            if request.command == "PUT":
                taken["manifest"] = json.loads(request.rfile.read(length))
                return request.reply(201)
            return False

        with Evil(answer) as registry, Daemon({"QUIRE_REGISTRIES": "127.0.0.1"}) as daemon:
            name = f"{registry.host}/x/y"
            missing = daemon.post("/api/push", {"model": name, "insecure": True})
            self.assertEqual(missing.status, 404)  # a stream has not begun
            daemon.post("/api/create", {"model": name, "from": MODEL, "stream": False})
            reply = daemon.post("/api/push", {"model": name, "insecure": True, "stream": False})
            self.assertEqual(reply.json, {"status": "success"})
            weights = max(taken["manifest"]["layers"], key=lambda layer: layer["size"])
            self.assertEqual(taken[weights["digest"]], weights["size"])
            begins = [int(span.partition("-")[0]) for span, length in uploads if length > 1_000_000]
            self.assertEqual(begins, [0, 1_000_000, 2_000_000])

    def test_a_model_to_begin_with_is_pulled(self):
        with Evil() as registry, Daemon({"QUIRE_REGISTRIES": "127.0.0.1"}) as daemon:
            for stream in (False, True):  # HTTPS, which it does not speak
                reply = daemon.post("/api/create", {"model": "new", "from": f"{registry.host}/x/y", "stream": stream})
                self.assertEqual(reply.status, 404)
                self.assertIn("not found; cannot pull it", reply.json["error"])
        with Registry(tls=True) as registry:
            name = f"{registry.host}/team/demo"
            environment = {"QUIRE_REGISTRIES": "127.0.0.1"} | registry.environment
            with Daemon(environment) as first:
                first.post("/api/create", {"model": name, "from": MODEL, "system": "Be brief.", "stream": False})
                self.assertEqual(first.post("/api/push", {"model": name, "stream": False}).json, {"status": "success"})
            with Daemon(environment) as second:
                said = statuses(second.post("/api/create", {"model": "new", "from": name, "template": "{{ .Prompt }}"}))
                self.assertEqual(said[0], "pulling manifest")
                self.assertEqual(said[-1], "success")
                self.assertEqual(second.post("/api/show", {"model": "new"}).json["system"], "Be brief.")
                self.assertIn(name + ":latest", models(second))

    def test_a_killed_daemon_goes_on_where_it_stopped(self):
        data = os.urandom(300_000)
        reached = threading.Event()

        def answer(request):
            if digest.partition(":")[2] not in request.path or request.headers.get("Range"):
                return False
            request.send_response(200)
            request.send_header("Content-Length", str(len(data)))
            request.end_headers()
            request.wfile.write(data[:200_000])
            reached.set()
            request.rfile.read(1)  # until the other end is gone
            request.close_connection = True
            return True

        with tempfile.TemporaryDirectory() as store, Evil(answer) as registry:
            digest = registry.give_model(data)
            partial = pathlib.Path(store) / "blobs" / f".quire-partial-{digest.replace(':', '-')}"
            daemon = Daemon({"QUIRE_REGISTRIES": "127.0.0.1"}, store).start()
            connection = daemon.connect()
            connection.request("POST", "/api/pull", json.dumps({"model": f"{registry.host}/x/y", "insecure": True}))
            self.assertTrue(reached.wait(60))
            deadline = time.monotonic() + 60
            while (not partial.exists() or partial.stat().st_size < 200_000) and time.monotonic() < deadline:
                time.sleep(0.02)
            daemon.process.kill()
            daemon.process.wait()
            daemon.folder.cleanup()
            connection.close()
            with Daemon({"QUIRE_REGISTRIES": "127.0.0.1"}, store) as again:
                self.assertNotIn(f"{registry.host}/x/y:latest", models(again))
                self.assertEqual(self.pull(again, registry).json, {"status": "success"})
                self.assertIn(f"{registry.host}/x/y:latest", models(again))
            self.assertEqual([headers["Range"] for *_, headers in registry.seen if "Range" in headers],
                             ["bytes=200000-"])

    def test_a_client_that_leaves_ends_its_pull(self):
        asked, gone = threading.Event(), threading.Event()

        def answer(request):
            if "/blobs/" not in request.path:
                return False
            request.send_response(200)
            request.send_header("Content-Length", "5000")
            request.end_headers()
            request.wfile.write(b"A" * 10)
            asked.set()
            request.rfile.read(1)
            gone.set()
            request.close_connection = True
            return True

        with Evil(answer) as registry, Daemon({"QUIRE_REGISTRIES": "127.0.0.1"}) as daemon:
            registry.give_model(b"A" * 5000)
            connection = daemon.connect()
            connection.request("POST", "/api/pull", json.dumps({"model": f"{registry.host}/x/y", "insecure": True}))
            reply = connection.getresponse()
            self.assertEqual(json.loads(reply.readline()), {"status": "pulling manifest"})
            # One who leaves before may end it before the blob is asked for.
            self.assertTrue(asked.wait(60))
            connection.sock.close()
            reply.close()
            self.assertTrue(gone.wait(60))

    def test_credentials_stay_with_their_registry(self):
        secret = base64.b64encode(b"alice:open sesame").decode()
        with tempfile.TemporaryDirectory() as folder, Evil() as elsewhere, Evil() as registry:
            config = pathlib.Path(folder) / "config.json"
            config.write_text(json.dumps({"auths": {registry.host: {"auth": secret}}}))
            elsewhere.answer = lambda request: request.reply(200, b'{"token":"stolen"}')

            def answer(request):
                if request.headers.get("Authorization", "").startswith("Bearer"):
                    return request.reply(307, Location=f"http://{elsewhere.host}/blob")
                realm = f'Bearer realm="http://{elsewhere.host}/token",service="s"'
                return request.reply(401, WWW_Authenticate=realm)

            registry.answer = answer
            with Daemon({"QUIRE_REGISTRIES": "127.0.0.1", "QUIRE_REGISTRY_AUTH": str(config)}) as daemon:
                self.pull(daemon, registry)
            self.assertEqual([path.partition("?")[0] for _, path, _ in elsewhere.seen], ["/token", "/blob"])
            for _, _, headers in elsewhere.seen:
                self.assertNotIn("Authorization", headers)

    def test_redirects_do_not_lead_into_the_network_of_the_server(self):
        with Evil() as inside, Evil() as registry:
            registry.answer = lambda request: request.reply(
                302, Location=f"http://127.0.0.1:{inside.server_address[1]}/metadata")
            with Daemon({"QUIRE_REGISTRIES": registry.host}) as daemon:
                self.assertEqual(self.pull(daemon, registry).status, 403)
                registry.answer = lambda request: request.reply(302, Location="https://127.0.0.1/metadata")
                reply = self.pull(daemon, registry)
                self.assertEqual(reply.status, 403)
                self.assertIn("private address", reply.json["error"])
                registry.answer = lambda request: request.reply(302, Location="file:///etc/passwd")
                self.assertEqual(self.pull(daemon, registry).status, 400)
                registry.answer = lambda request: request.reply(302, Location=request.path)
                self.assertIn("too many redirects", self.pull(daemon, registry).json["error"])
            self.assertEqual(inside.seen, [])

    def test_digests_and_names_are_no_paths(self):
        with Evil() as registry, Daemon({"QUIRE_REGISTRIES": "127.0.0.1"}) as daemon:
            registry.give_model(b"A" * 100)
            good = json.loads(registry.manifest)
            for digest in ("sha256:../../../../etc/passwd", "../x", "sha256:" + "A" * 64, "md5:" + "a" * 64,
                           "sha256:" + "a" * 63, ""):
                bad = json.loads(registry.manifest)
                bad["layers"][0]["digest"] = digest
                registry.answer = lambda request, bad=bad: request.reply(200, json.dumps(bad).encode())
                reply = self.pull(daemon, registry)
                self.assertEqual(reply.status, 500, digest)
                self.assertIn("invalid manifest", reply.json["error"])
            for body in (b"", b"[]", b"{}", b"\xff", json.dumps(good | {"schemaVersion": 1}).encode(),
                         json.dumps(good | {"layers": [good["layers"][0] | {"size": -1}]}).encode(),
                         json.dumps(good | {"layers": [good["layers"][0]] * 1000}).encode()):
                registry.answer = lambda request, body=body: request.reply(200, body)
                self.assertEqual(self.pull(daemon, registry).status, 500, body[:60])
            for name in ("../x", "a/../b", "x y", "http://x/y", "%2e%2e/x"):
                self.assertEqual(daemon.post("/api/pull", {"model": name, "stream": False}).status, 400, name)
            self.assertEqual(daemon.post("/api/push", {"stream": False}).status, 400)
            self.assertEqual(daemon.post("/api/push", {"model": "nobody", "stream": False}).status, 404)


if __name__ == "__main__":
    if sys.argv[1:2] == ["RoundTrip"]:
        missing = [tool for tool in ("docker-registry", "htpasswd", "openssl") if not shutil.which(tool)]
        if missing:
            print(f"not run: needs {', '.join(missing)}")
            sys.exit(SKIPPED)
    unittest.main()
