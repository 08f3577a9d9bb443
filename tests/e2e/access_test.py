"""Keys, TLS, Unix sockets, reloading and metrics, with the real daemon and the bundled model."""
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import ssl
import subprocess
import time
import unittest

from harness import BIN, MODEL, ROOT, TIMEOUT_S, Daemon


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=TIMEOUT_S)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(TIMEOUT_S)
        self.sock.connect(str(self.path))


def make_key(folder, name, *options):
    """Adds a key to the folder's key file; gives its secret."""
    made = subprocess.run([BIN / "quire", "key", name, "--append", folder / "keys", *options], text=True,
                          capture_output=True, check=True)
    return made.stdout.strip()


def ask(connection, method, path, body=None, key=None, **headers):
    if key:
        headers["Authorization"] = f"Bearer {key}"
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    reply = connection.getresponse()
    return reply.status, reply.read()


CHAT = {"model": MODEL, "stream": False, "options": {"num_predict": 4, "temperature": 0},
        "messages": [{"role": "user", "content": "Hello"}]}


def wait_for(daemon, text, count=1):
    deadline = time.monotonic() + TIMEOUT_S
    while daemon.log().count(text) < count:
        assert time.monotonic() < deadline, daemon.log()
        time.sleep(0.02)


class Keys(unittest.TestCase):
    def test_keys_on_every_way_in(self):
        daemon = Daemon()
        folder = pathlib.Path(daemon.folder.name)
        user, admin = make_key(folder, "user"), make_key(folder, "boss", "--admin")
        self.assertEqual((folder / "keys").stat().st_mode & 0o777, 0o600)
        self.assertNotIn(user, (folder / "keys").read_text())
        daemon.environment |= {"QUIRE_KEYS": str(folder / "keys"), "QUIRE_UNIX_SOCKET": str(folder / "socket")}
        with daemon:
            ways = [daemon.connect, lambda: UnixConnection(folder / "socket")]
            for way in ways:
                self.assertEqual(ask(way(), "GET", "/livez")[0], 200)
                self.assertEqual(ask(way(), "POST", "/api/chat", CHAT)[0], 401)
                self.assertEqual(ask(way(), "POST", "/api/chat", CHAT, "quire-" + "0" * 64)[0], 401)
                self.assertEqual(ask(way(), "POST", "/api/chat", CHAT, user)[0], 200)
                self.assertEqual(ask(way(), "DELETE", "/api/delete", {"model": "none"}, user)[0], 403)
                self.assertEqual(ask(way(), "DELETE", "/api/delete", {"model": "none"}, admin)[0], 404)
            refused = daemon.cli("list")
            self.assertNotEqual(refused.returncode, 0)
            self.assertIn("API key", refused.stderr)
            daemon.environment["QUIRE_API_KEY"] = user
            self.assertIn(MODEL, daemon.cli("list").stdout)
            self.assertIn(" key=user ", daemon.log())
            self.assertNotIn(user, daemon.log())
        self.assertFalse((folder / "socket").exists())

    def test_a_unix_socket_is_for_its_group_and_knows_no_host(self):
        daemon = Daemon()
        path = pathlib.Path(daemon.folder.name) / "socket"
        daemon.environment["QUIRE_UNIX_SOCKET"] = str(path)
        with daemon:
            self.assertEqual(path.stat().st_mode & 0o777, 0o660)
            self.assertEqual(ask(UnixConnection(path), "GET", "/api/tags", Host="evil.example")[0], 200)
            self.assertEqual(ask(daemon.connect(), "GET", "/api/tags", Host="evil.example")[0], 403)
            self.assertIn(f"client=unix:{os.getuid()}", daemon.log())
            second = subprocess.run([BIN / "quired"], env=daemon.environment | {"OLLAMA_HOST": "127.0.0.1:0"},
                                    text=True, capture_output=True, timeout=TIMEOUT_S)
            self.assertEqual(second.returncode, 1)
            self.assertIn("another program is listening", second.stderr)
            # One that was killed leaves its socket behind, and that stops nobody.
            self.assertLess(daemon.stop(signal.SIGKILL), 0)
            self.assertTrue(path.exists())
            daemon.environment["OLLAMA_HOST"] = "127.0.0.1:0"
            daemon.log_path.unlink()
            daemon.start()
            self.assertEqual(ask(UnixConnection(path), "GET", "/livez")[0], 200)

    def test_beyond_this_machine_only_with_keys(self):
        daemon = Daemon({"OLLAMA_HOST": "0.0.0.0:0"})
        folder = pathlib.Path(daemon.folder.name)
        refused = subprocess.run([BIN / "quired", "--host", "192.0.2.1:0"], env=daemon.environment, text=True,
                                 capture_output=True, timeout=TIMEOUT_S)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("QUIRE_KEYS=FILE", refused.stderr)
        process = subprocess.Popen([BIN / "quired"], env=daemon.environment, text=True, stderr=subprocess.PIPE)
        try:
            self.assertTrue(any("listening address=127.0.0.1:" in line for line in process.stderr))
        finally:
            process.kill()
            process.communicate()
        (folder / "empty").write_text("# nobody\n")
        empty = subprocess.run([BIN / "quired", "--keys", folder / "empty"], env=daemon.environment, text=True,
                               capture_output=True, timeout=TIMEOUT_S)
        self.assertEqual(empty.returncode, 1)
        self.assertIn("no keys", empty.stderr)
        make_key(folder, "user")
        process = subprocess.Popen([BIN / "quired", "--keys", folder / "keys"], env=daemon.environment, text=True,
                                   stderr=subprocess.PIPE)
        try:
            self.assertTrue(any("listening address=0.0.0.0:" in line for line in process.stderr))
        finally:
            process.kill()
            process.communicate()
        daemon.folder.cleanup()


class Reload(unittest.TestCase):
    def test_a_hangup_takes_new_settings_if_all_are_valid(self):
        daemon = Daemon()
        folder = pathlib.Path(daemon.folder.name)
        first = make_key(folder, "first")
        config = folder / "quire.conf"
        config.write_text(f'# settings\nQUIRE_KEYS={folder}/keys\nOLLAMA_ORIGINS="https://a.example"\n')
        daemon.environment["QUIRE_CONFIG"] = str(config)
        with daemon:
            def tags(key, origin=None):
                return ask(daemon.connect(), "GET", "/api/tags", None, key, **({"Origin": origin} if origin else {}))[0]

            self.assertEqual(tags(first, "https://a.example"), 200)
            self.assertEqual(tags(first, "https://b.example"), 403)
            second = make_key(folder, "second")
            config.write_text(f"QUIRE_KEYS={folder}/keys\nOLLAMA_ORIGINS=https://b.example\nQUIRE_MAX_BODY=1KiB\n"
                              "OLLAMA_DEBUG=1\nOLLAMA_MAX_QUEUE=9\n")
            self.assertEqual(tags(second), 401)
            daemon.process.send_signal(signal.SIGHUP)
            wait_for(daemon, "reloaded keys=2")
            self.assertEqual(tags(second, "https://b.example"), 200)
            self.assertEqual(tags(first, "https://a.example"), 403)
            self.assertIn("restart required: OLLAMA_MAX_QUEUE", daemon.log())
            long = CHAT | {"messages": [{"role": "user", "content": "x" * 2000}]}
            self.assertEqual(ask(daemon.connect(), "POST", "/api/chat", long, first)[0], 413)

            # Whatever is wrong, all stays as it was.
            good_keys = (folder / "keys").read_text()
            for keys, settings in [("nonsense\n", ""), ("# none\n", ""), (good_keys, "QUIRE_MAX_BODY=much\n"),
                                   (good_keys, "NO_SUCH_SETTING=1\n"), (good_keys, "QUIRE_KEYS=\n")]:
                (folder / "keys").write_text(keys)
                config.write_text(f"QUIRE_KEYS={folder}/keys\n" + settings)
                before = daemon.log().count("reload failed")
                daemon.process.send_signal(signal.SIGHUP)
                wait_for(daemon, "reload failed", before + 1)
                self.assertEqual(tags(second, "https://b.example"), 200)
                self.assertEqual(tags(None), 401)
            self.assertNotIn("nonsense", daemon.log())

            # A file that takes long to read holds nobody up.
            config.unlink()
            os.mkfifo(config)
            daemon.process.send_signal(signal.SIGHUP)
            with open(config, "w") as slow:  # opened once the daemon reads it
                self.assertEqual(tags(second, "https://b.example"), 200)
                (folder / "keys").write_text(good_keys)
                slow.write(f"QUIRE_KEYS={folder}/keys\nOLLAMA_ORIGINS=https://c.example\n")
            wait_for(daemon, "reloaded keys=2", 2)
            self.assertEqual(tags(second, "https://c.example"), 200)

    def test_a_removed_key_is_out_with_what_it_has_begun(self):
        daemon = Daemon()
        folder = pathlib.Path(daemon.folder.name)
        lost, kept = make_key(folder, "lost"), make_key(folder, "kept")
        daemon.environment["QUIRE_KEYS"] = str(folder / "keys")

        def remove(name):
            return daemon.cli("key", name, "--remove", folder / "keys")

        with daemon:
            streams = {}
            for key in (lost, kept):
                connection = daemon.connect()
                connection.request("GET", "/quire/now", headers={"Authorization": f"Bearer {key}", "Accept": "text/event-stream"})
                streams[key] = connection.getresponse()
                self.assertEqual(streams[key].read(5), b"data:")
            self.assertIn("Removed lost", remove("lost").stdout)
            self.assertIn("no key named lost", remove("lost").stderr)
            self.assertIn("kept is the only key", remove("kept").stderr)
            daemon.process.send_signal(signal.SIGHUP)
            wait_for(daemon, "reloaded keys=1")
            with self.assertRaises((http.client.HTTPException, OSError)):
                while streams[lost].read(1):
                    pass
            wait_for(daemon, "key removed")
            self.assertEqual(ask(daemon.connect(), "GET", "/api/tags", None, lost)[0], 401)
            self.assertEqual(ask(daemon.connect(), "GET", "/api/tags", None, kept)[0], 200)
            self.assertTrue(streams[kept].read(1))


class Tls(unittest.TestCase):
    @staticmethod
    def certificate(folder, name="cert"):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1",
                        "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem"],
                       check=True, capture_output=True)

    def test_serves_https_and_takes_a_new_certificate(self):
        daemon = Daemon()
        folder = pathlib.Path(daemon.folder.name)
        self.certificate(folder)
        daemon.environment |= {"QUIRE_TLS_HOST": "127.0.0.1:0", "QUIRE_TLS_CERT": str(folder / "cert.pem"),
                               "QUIRE_TLS_KEY": str(folder / "cert.key")}
        log = {}
        with self.plain_and_tls(daemon, log):
            port = log["tls"]

            def connect(name):
                context = ssl.create_default_context(cafile=folder / f"{name}.pem")
                return http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=TIMEOUT_S)

            connection = connect("cert")
            self.assertEqual(ask(connection, "POST", "/api/chat", CHAT)[0], 200)
            streamed = ask(connection, "POST", "/api/chat", CHAT | {"stream": True})
            self.assertEqual(streamed[0], 200)  # on the same connection
            self.assertTrue(json.loads(streamed[1].splitlines()[-1])["done"])
            big = CHAT | {"messages": [{"role": "user", "content": "word " * 60000}],
                          "options": {"num_predict": 1, "num_ctx": 64}}
            self.assertIn(ask(connection, "POST", "/api/chat", big)[0], (200, 400))

            # The command line, by the same certificate.
            listed = subprocess.run([BIN / "quire", "list"], text=True, capture_output=True, timeout=TIMEOUT_S, env=os.environ | {
                "OLLAMA_HOST": f"https://127.0.0.1:{port}", "SSL_CERT_FILE": str(folder / "cert.pem")})
            self.assertIn(MODEL, listed.stdout, listed.stderr)

            # Neither plain HTTP nor silence holds the listener up.
            with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as plain:
                plain.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                self.assertNotIn(b"200 OK", plain.recv(1000))
            with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as silent:
                self.assertEqual(silent.recv(1), b"")  # closed after the header timeout
            old = ssl.create_default_context(cafile=folder / "cert.pem")
            old.maximum_version = ssl.TLSVersion.TLSv1_1
            with self.assertRaises((ssl.SSLError, ConnectionError)):
                old.wrap_socket(socket.create_connection(("127.0.0.1", port), TIMEOUT_S), server_hostname="127.0.0.1")

            # A client that leaves in the middle of a stream ends its work.
            leaving = connect("cert")
            endless = CHAT | {"stream": True, "options": {"num_predict": 100000, "temperature": 1, "seed": 1}}
            leaving.request("POST", "/api/generate", json.dumps(
                {"model": MODEL, "prompt": "Once", "raw": True, "options": endless["options"]}))
            leaving.getresponse().read(100)
            leaving.sock.close()
            leaving.close()
            wait_for(daemon, 'error="client gone"')

            self.certificate(folder, "next")
            os.replace(folder / "next.key", folder / "cert.key")
            daemon.process.send_signal(signal.SIGHUP)
            wait_for(daemon, "reload failed")  # a key without its certificate
            self.assertEqual(ask(connect("cert"), "GET", "/livez")[0], 200)
            (folder / "cert.pem").write_text((folder / "next.pem").read_text())
            daemon.process.send_signal(signal.SIGHUP)
            wait_for(daemon, " reloaded keys")
            self.assertEqual(ask(connect("next"), "GET", "/livez")[0], 200)
            connection.close()

    def plain_and_tls(self, daemon, log):
        class Started:
            def __enter__(self):
                with open(daemon.log_path, "ab") as out:
                    daemon.process = subprocess.Popen([BIN / "quired"], env=daemon.environment,
                                                      stdin=subprocess.DEVNULL, stdout=out, stderr=out)
                wait_for(daemon, " models=")
                found = re.search(r"address=127\.0\.0\.1:(\d+),tls:127\.0\.0\.1:(\d+) ", daemon.log())
                daemon.port, log["tls"] = int(found[1]), int(found[2])

            def __exit__(self, *error):
                daemon.__exit__(*error)
        return Started()


class Metrics(unittest.TestCase):
    def test_a_scrape_counts_what_was_asked(self):
        with Daemon({"QUIRE_METRICS_COMPAT": "vllm"}) as daemon:
            for _ in range(2):
                self.assertEqual(daemon.post("/api/chat", CHAT).status, 200)
            self.assertEqual(daemon.get("/no/such/path").status, 404)
            daemon.metrics()  # all are counted
            reply = daemon.get("/metrics")
            self.assertEqual(reply.status, 200)
            self.assertTrue(reply.headers["Content-Type"].startswith("text/plain; version=0.0.4"))
            values = {}
            for line in reply.body.decode().splitlines():
                if line and not line.startswith("#"):
                    name, value = line.rsplit(" ", 1)
                    self.assertNotIn(name, values)
                    values[name] = float(value)
            model = f'model="{MODEL}:latest"'
            self.assertEqual(values[f'quire_requests_total{{code="200",endpoint="/api/chat",{model}}}'], 2)
            self.assertEqual(values['quire_requests_total{code="404",endpoint="other",model=""}'], 1)
            self.assertEqual(values[f"quire_time_to_first_token_seconds_count{{{model}}}"], 2)
            self.assertEqual(values[f"quire_generation_tokens_total{{{model}}}"], 8)
            self.assertEqual(values[f"quire_inter_token_latency_seconds_count{{{model}}}"], 6)
            self.assertGreater(values[f'quire_prompt_tokens_total{{{model},source="cached"}}'], 0)
            self.assertEqual(values[f"quire_runner_up{{{model}}}"], 1)
            self.assertGreater(values[f'quire_memory_rss_bytes{{process="runner:{MODEL}:latest"}}'], 1 << 20)
            self.assertGreater(values['quire_memory_rss_bytes{process="quired"}'], 1 << 20)
            self.assertEqual(daemon.get("/readyz").status, 200)

    def test_dashboard_and_alerts_ask_for_what_there_is(self):
        there = set(re.findall(r'"(quire_[a-z_]+)"', (ROOT / "server/routes/metrics.cc").read_text()))
        for name in ("grafana-dashboard.json", "alerts.yml"):
            asked = set(re.findall(r"quire_[a-z_]+", (ROOT / "packaging/monitoring" / name).read_text()))
            self.assertTrue(asked)
            self.assertFalse({re.sub("_bucket$", "", metric) for metric in asked} - there)
        json.loads((ROOT / "packaging/monitoring/grafana-dashboard.json").read_text())


if __name__ == "__main__":
    unittest.main(verbosity=2)
