#!/usr/bin/env python3
"""Clients that send garbage, halves, floods and resets, and others beside them that must not notice."""
import json
import os
import pathlib
import random
import socket
import struct
import threading
import time
import unittest

from harness import MODEL, TIMEOUT_S, Daemon, greedy

HOST = b"Host: localhost\r\n"
BODY = json.dumps(greedy("Tell me a story.", num_predict=200)).encode()
VALID = b"POST /api/chat HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
CHUNKED = b"POST /api/chat HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
KINDS = 8
EACH = 25  # connections of every kind


def bytes_of(kind, choose):
    """What one bad client sends."""
    if kind == 0:
        return choose.randbytes(choose.randrange(1, 2000))
    if kind == 1:
        return VALID[:choose.randrange(len(VALID))]
    if kind == 2:
        changed = bytearray(VALID)
        for _ in range(3):
            changed[choose.randrange(len(changed))] = choose.randrange(256)
        return bytes(changed)
    if kind == 3:
        return VALID * 10
    if kind == 4:
        return CHUNKED + b"%x\r\n" % len(BODY) + BODY + b"\r\n0\r\n\r\n"
    if kind == 5:
        return b"GET / HTTP/1.1\r\nX: " + b"y" * 100_000
    if kind == 6:
        return CHUNKED + b"ffff\r\n" + b"{" * 30_000
    return b"POST /api/generate HTTP/1.1\r\n" + HOST + b"Content-Length: 2\r\n\r\n{]"


def abuse(port, kind):
    choose = random.Random(kind)
    for i in range(EACH):
        with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as s:
            try:
                s.sendall(bytes_of(kind, choose))
                if i % 3 == 0:
                    s.settimeout(0.01)
                    s.recv(100)
                if i % 2 == 0:  # close with a reset
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            except OSError:
                pass


class Abuse(unittest.TestCase):
    def test_others_do_not_notice(self):
        with Daemon() as daemon:
            expected = daemon.post("/api/chat", greedy("Hello!") | {"stream": False}).json["message"]["content"]
            runners = daemon.runner_pids()
            open_before = self.open_files(daemon)
            bad = [threading.Thread(target=abuse, args=(daemon.port, kind)) for kind in range(KINDS)]
            for thread in bad:
                thread.start()
            answers = []
            while any(thread.is_alive() for thread in bad) or len(answers) < 20:
                reply = daemon.post("/api/chat", greedy("Hello!") | {"stream": False})
                answers.append((reply.status, reply.json["message"]["content"]))
            for thread in bad:
                thread.join()
            self.assertEqual({(200, expected)}, set(answers))
            self.assertEqual(runners, daemon.runner_pids())
            deadline = time.monotonic() + TIMEOUT_S
            while self.open_files(daemon) > open_before and time.monotonic() < deadline:
                time.sleep(0.1)
            self.assertLessEqual(self.open_files(daemon), open_before)

    @staticmethod
    def open_files(daemon):
        return len(os.listdir(pathlib.Path("/proc") / str(daemon.process.pid) / "fd"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
