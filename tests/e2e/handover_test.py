#!/usr/bin/env python3
"""Restarts under load, as quire.socket and quire.service do them: the service manager keeps the listening socket, stops
the old daemon, and starts the new one with the same socket. No request is refused, cut off or answered otherwise.

This file plays the service manager (LISTEN_FDS, LISTEN_PID), so it runs everywhere; tests/system/package_test.py does the
same with the real one. Run alone it prints the figures:

    tests/e2e/handover_test.py [REQUESTS [RESTARTS]]
"""
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from harness import BIN, TIMEOUT_S, greedy

CLIENTS = 8


class Service:
    """A socket unit and its service."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="quire-e2e-")
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.port = self.socket.getsockname()[1]
        home = pathlib.Path(self.folder.name)
        self.log = home / "quired.log"
        self.environment = os.environ | {"HOME": str(home), "OLLAMA_MODELS": str(home / "models"), "LISTEN_FDS": "1",
                                         "QUIRE_SNAPSHOT_BYTES": "0", "QUIRE_BINARY": str(BIN / "quired")}
        self.process = None

    def start(self):
        passed = self.socket.fileno()
        move = "" if passed == 3 else f"exec 3<&{passed} {passed}<&-; "
        command = move + 'export LISTEN_PID=$$; exec "$QUIRE_BINARY"'
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(["sh", "-c", command], env=self.environment, pass_fds=[passed],
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def restart(self):
        """The seconds without a daemon, and the old one's exit status."""
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(TIMEOUT_S)
        self.start()
        return status

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(TIMEOUT_S)
        self.socket.close()
        self.folder.cleanup()


class Load:
    """REQUESTS requests from CLIENTS clients, each with a connection of its own: small ones, answers, streams."""

    def __init__(self, port, requests):
        self.port, self.left, self.lock = port, requests, threading.Lock()
        self.done, self.failures, self.texts, self.longest = 0, [], set(), 0.0
        self.threads = [threading.Thread(target=self.work, args=(i,)) for i in range(CLIENTS)]

    def take(self):
        with self.lock:
            self.left -= 1
            return self.left >= 0

    def work(self, client):
        turn = client
        while self.take():
            begin = time.monotonic()
            try:
                text = self.exchange(turn % 8)
                problem = None
            except (OSError, http.client.HTTPException, ValueError) as error:
                text, problem = None, f"{type(error).__name__}: {error}"
            with self.lock:
                self.done += 1
                self.longest = max(self.longest, time.monotonic() - begin)
                if problem:
                    self.failures.append(problem)
                elif text is not None:
                    self.texts.add(text)
            turn += 1

    def exchange(self, kind):
        """The answer's text, or nothing for a small request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        try:
            if kind > 1:
                connection.request("GET", "/api/version")
            else:
                body = greedy("What is a prefix cache?", num_predict=8) | {"stream": kind == 1}
                connection.request("POST", "/api/chat", json.dumps(body))
            reply = connection.getresponse()
            raw = reply.read()
            if reply.status != 200:
                raise ValueError(f"{reply.status} {raw[:200]}")
            if kind > 1:
                return None
            lines = [json.loads(line) for line in raw.splitlines()]
            if not lines[-1].get("done"):
                raise ValueError("a stream without its end")
            return "".join(line["message"]["content"] for line in lines)
        finally:
            connection.close()


def measure(requests, restarts):
    """The load, and the exit statuses of the daemons that were stopped under it."""
    with Service() as service:
        load = Load(service.port, requests)
        for thread in load.threads:
            thread.start()
        statuses = []
        for i in range(restarts):
            while load.done < requests * (i + 1) // (restarts + 1) and any(thread.is_alive() for thread in load.threads):
                time.sleep(0.01)
            statuses.append(service.restart())
        for thread in load.threads:
            thread.join()
    return load, statuses


class Handover(unittest.TestCase):
    def test_no_request_is_refused_across_restarts(self):
        load, statuses = measure(1000, 4)
        print(f"{len(load.failures)} of {load.done} failed over {len(statuses)} restarts")
        self.assertEqual([], load.failures)
        self.assertEqual(1000, load.done)
        self.assertEqual([0] * 4, statuses)
        self.assertEqual(1, len(load.texts), load.texts)


def main():
    requests, restarts = int(sys.argv[1]), int((sys.argv[2:] or ["4"])[0])
    load, statuses = measure(requests, restarts)
    print(f"{load.done} requests, {len(load.failures)} failed, {len(statuses)} restarts (exit {sorted(set(statuses))}), "
          f"{len(load.texts)} text, longest wait {load.longest:.2f} s")
    for problem in sorted(set(load.failures)):
        print(f"  {load.failures.count(problem)} x {problem}")
    return bool(load.failures)


if __name__ == "__main__":
    sys.exit(main()) if sys.argv[1:] and sys.argv[1].isdigit() else unittest.main(verbosity=2)
