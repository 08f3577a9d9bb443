"""A registry on loopback that does as a test tells it (registry_test.py, hub_test.py)."""
import hashlib
import http.server
import json
import threading


class LoopbackServer(http.server.ThreadingHTTPServer):
    """Serves while its block runs."""
    daemon_threads = True

    def __init__(self, handler, host="127.0.0.1"):
        super().__init__((host, 0), handler)
        self.seen = []  # (method, path, headers)
        self.thread = threading.Thread(target=self.serve_forever, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.thread.join()
        self.server_close()

    def handle_error(self, *_):
        pass  # clients that leave are part of the tests


class QuietHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def write(self, body):
        self.wfile.write(body)

    def reply(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.write(body)
        return True


class Evil(LoopbackServer):
    """A registry that does as a test tells it: `answer(request) -> True` when it has dealt with it."""

    def __init__(self, answer=None):
        super().__init__(Handler)
        self.answer = answer
        self.blobs = {}
        self.manifest = b""

    @property
    def host(self):
        return f"127.0.0.1:{self.server_address[1]}"

    def give(self, data):
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        self.blobs[digest] = data
        return digest

    def give_model(self, weights):
        config = json.dumps({"model_format": "gguf", "model_family": "x"}).encode()
        layer = {"mediaType": "application/vnd.ollama.image.model", "digest": self.give(weights), "size": len(weights)}
        self.manifest = json.dumps({
            "schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
            "config": {"mediaType": "x", "digest": self.give(config), "size": len(config)}, "layers": [layer]}).encode()
        return layer["digest"]


class Handler(QuietHandler):
    def do_GET(self):
        self.server.seen.append((self.command, self.path, dict(self.headers)))
        if self.server.answer and self.server.answer(self):
            return
        if "/manifests/" in self.path:
            self.reply(200, self.server.manifest)
        elif (blob := self.server.blobs.get(self.path.rpartition("/")[2])) is not None:
            begin = int(self.headers.get("Range", "bytes=0-")[6:-1])
            if begin:
                self.reply(206, blob[begin:], Content_Range=f"bytes {begin}-{len(blob) - 1}/{len(blob)}")
            else:
                self.reply(200, blob)
        else:
            self.reply(404)

    do_HEAD = do_POST = do_PUT = do_PATCH = do_GET
