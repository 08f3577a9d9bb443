"""Starts the real quired on a free loopback port with a model store of its own, and speaks HTTP to it.

QUIRE_BIN names the folder of the binaries (ctest sets it).
"""
import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import ssl
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("QUIRE_BIN", ROOT / "build/release/bin")).resolve()
MODEL = "quire-demo"
TIMEOUT_S = 120  # of one exchange; generous, since sanitizer builds are slow


class Daemon:
    def __init__(self, environment=None, store=None):
        self.folder = tempfile.TemporaryDirectory(prefix="quire-e2e-")
        self.port = 0  # a free one, known once it has started
        self.log_path = pathlib.Path(self.folder.name) / "quired.log"
        self.environment = os.environ | {
            "HOME": self.folder.name,
            "OLLAMA_HOST": "127.0.0.1:0",
            "OLLAMA_MODELS": str(store or pathlib.Path(self.folder.name) / "models"),
            "QUIRE_SNAPSHOT_BYTES": "0",  # what a test computes ends with its runner, unless it says otherwise
        } | (environment or {})
        self.process = None
        self.connections = []  # closed at the end, whatever a test left open

    def start(self):
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen([BIN / "quired"], env=self.environment, stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while True:
            if self.process.poll() is not None:
                raise RuntimeError(f"quired ended with {self.process.returncode}:\n{self.log()}")
            if listening := re.search(r" listening address=127\.0\.0\.1:(\d+)[ ,]", self.log()):
                self.port = int(listening[1])
                self.environment["OLLAMA_HOST"] = f"127.0.0.1:{self.port}"
                return self
            if time.monotonic() > deadline:
                self.stop(signal.SIGKILL)
                raise RuntimeError(f"quired does not listen:\n{self.log()}")
            time.sleep(0.02)

    def stop(self, sig=signal.SIGTERM):
        """The exit code. A sanitizer's report makes it non-zero."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(sig)
        code = self.process.wait(TIMEOUT_S)
        return code

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, value, traceback):
        for connection in self.connections:
            connection.close()
        if self.process.poll() is None:
            code = self.stop()
            assert kind is not None or code == 0, f"quired ended with {code}:\n{self.log()}"
        self.folder.cleanup()

    def log(self):
        return self.log_path.read_text(errors="replace")

    def connect(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        self.connections.append(connection)
        return connection

    def request(self, method, path, body=None, headers=None):
        connection = self.connect()
        try:
            payload = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
            connection.request(method, path, payload, headers or {})
            reply = connection.getresponse()
            return Reply(reply.status, reply.headers, reply.read())
        finally:
            connection.close()

    def get(self, path):
        return self.request("GET", path)

    def post(self, path, body):
        return self.request("POST", path, body)

    def metrics(self):
        """The scrape that counts all requests before it: they are counted once their reply is sent and their connection goes."""
        deadline = time.monotonic() + TIMEOUT_S
        while "\nquire_connections 1\n" not in (text := self.get("/metrics").text):  # the one that asks
            assert time.monotonic() < deadline, "connections are left open"
            time.sleep(0.02)
        return text

    def runner_pids(self):
        """Processes called quire-runner whose parent is this daemon."""
        pids = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                fields = (entry / "stat").read_text()
            except OSError:
                continue
            name = fields[fields.index("(") + 1:fields.rindex(")")]
            state, parent = fields[fields.rindex(")") + 2:].split()[:2]
            if name == "quire-runner" and int(parent) == self.process.pid and state != "Z":
                pids.append(int(entry.name))
        return pids

    def cli(self, *arguments, stdin=""):
        return subprocess.run([BIN / "quire", *arguments], env=self.environment, input=stdin, text=True,
                              capture_output=True, timeout=TIMEOUT_S)


class UnreadDaemon(Daemon):
    """Its log is a pipe, read up to the line that names the port and no further."""

    def start(self):
        self.process = subprocess.Popen([BIN / "quired"], env=self.environment, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        lines = b""
        while not (found := re.search(rb"address=127\.0\.0\.1:(\d+) ", lines)):
            lines += os.read(self.process.stderr.fileno(), 4096)
        self.port = int(found[1])
        return self

    def __exit__(self, kind, value, traceback):
        self.process.kill()
        self.process.wait()
        super().__exit__(kind, value, traceback)
        self.process.stderr.close()


class TlsDaemon(Daemon):
    """Serves TLS, too, on `tls_port`; its key is the slowest that is in use, with which one signature takes milliseconds."""

    def __init__(self, environment=None):
        super().__init__(environment)
        self.tls_port = 0
        folder = pathlib.Path(self.folder.name)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:4096", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
                        "-keyout", folder / "tls.key", "-out", folder / "tls.pem"], check=True, capture_output=True)
        self.environment |= {"QUIRE_TLS_HOST": "127.0.0.1:0", "QUIRE_TLS_CERT": str(folder / "tls.pem"),
                             "QUIRE_TLS_KEY": str(folder / "tls.key")}

    def start(self):
        super().start()
        self.tls_port = int(re.search(r",tls:127\.0\.0\.1:(\d+)", self.log())[1])
        return self


def client_hello():
    """The first flight of a TLS handshake, which may be sent on any number of connections."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


class Reply:
    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def text(self):
        return self.body.decode()

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def lines(self):
        """NDJSON, one object a line, newline-terminated."""
        assert self.body.endswith(b"\n"), self.body[-200:]
        return [json.loads(line) for line in self.body[:-1].split(b"\n")]


def greedy(content, **options):
    return {"model": MODEL, "messages": [{"role": "user", "content": content}],
            "options": {"temperature": 0, **options}}
