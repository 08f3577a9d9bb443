#!/usr/bin/env python3
"""Prefixes that machines share through Redis: two daemons with a folder each and a real redis-server."""
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import suites
from harness import MODEL, Daemon

SERVER = shutil.which("redis-server")
STORY = "Rivers were roads once, and boats carried stone and wine and bread to the sea. " * 5


def chat(messages, **fields):
    return {"model": MODEL, "stream": False, "logprobs": True, "messages": messages,
            "options": {"temperature": 0, "num_predict": 12}, **fields}


def logprobs(reply):
    return [token["logprob"] for token in reply["logprobs"]]


class Redis(unittest.TestCase):
    def setUp(self):
        if not SERVER:
            self.skipTest("redis-server is not installed")
        self.temporary = tempfile.TemporaryDirectory(prefix="quire-e2e-redis-")
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name)
        self.socket = self.folder / "redis.sock"
        (self.folder / "secret").write_text("the secret of this cluster\n")
        self.server = None
        self.start()
        self.addCleanup(self.stop)

    def start(self, *more):
        log = open(self.folder / "redis.log", "ab")
        self.addCleanup(log.close)
        self.server = subprocess.Popen([SERVER, "--port", "0", "--unixsocket", self.socket, "--save", "", "--dir",
                                        self.folder, *more], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.wait(self.socket.exists, "redis-server does not listen")

    def stop(self):
        if self.server:
            self.server.send_signal(signal.SIGCONT)
            self.server.kill()
            self.server.wait(60)
        self.server = None
        self.socket.unlink(missing_ok=True)

    def wait(self, holds, why):
        deadline = time.monotonic() + 120
        while not holds():
            self.assertLess(time.monotonic(), deadline, why)
            time.sleep(0.05)

    def daemon(self, name, always=True, **environment):
        if always:
            environment |= {"QUIRE_SNAPSHOT_ALWAYS_FETCH": "1"}
        return Daemon({"QUIRE_SNAPSHOT_BYTES": "256MiB", "QUIRE_SNAPSHOT_DIR": str(self.folder / name),
                       "QUIRE_SNAPSHOT_REDIS": f"unix://{self.socket}",
                       "QUIRE_SNAPSHOT_REDIS_SECRET": str(self.folder / "secret"), **environment})

    def metric(self, daemon, name):
        found = re.search(rf"^quire_snapshot_redis_{name} (\S+)$", daemon.get("/metrics").text, re.MULTILINE)
        return float(found[1]) if found else 0

    def wait_connected(self, daemon):
        self.wait(lambda: self.metric(daemon, "connected") == 1, "Redis is not asked")

    def first_turn(self, daemon):
        messages = [{"role": "user", "content": STORY}]
        reply = daemon.post("/api/chat", chat(messages)).json
        messages += [reply["message"], {"role": "user", "content": "And then?"}]
        return messages, reply["prompt_eval_count"]

    def wait_sent(self, daemon, tokens):
        """Until the whole prefix is on disk, and all of it in Redis."""
        def sent():
            tier = daemon.get("/quire/prefixes").json
            stored = any(prefix["tokens"] >= tokens for prefix in tier["prefixes"])
            return stored and self.metric(daemon, "writes_total") >= tier["files"]
        self.wait(sent, "the prefix was not sent")

    def cold(self, messages):
        with Daemon({"QUIRE_PREFIX_CACHE": "false"}) as alone:
            return logprobs(alone.post("/api/chat", chat(messages)).json)

    def test_a_prefix_is_restored_on_another_machine(self):
        with self.daemon("one") as one:
            self.wait_connected(one)
            messages, tokens = self.first_turn(one)
            self.wait_sent(one, tokens)
        cold = self.cold(messages)
        with self.daemon("two") as two:
            self.wait_connected(two)
            reply = two.post("/api/chat", chat(messages)).json
            self.assertEqual(cold, logprobs(reply))
            self.assertGreaterEqual(reply["prompt_eval_cached_count"], tokens - 1)
            self.assertGreater(self.metric(two, "reads_total"), 0)
            salted = two.post("/api/chat", chat(messages, cache_salt="another")).json
            self.assertEqual(cold, logprobs(salted))
        (self.folder / "secret").write_text("another cluster's secret\n")
        with self.daemon("three") as three:
            self.wait_connected(three)
            stranger = three.post("/api/chat", chat(messages)).json
            self.assertEqual(cold, logprobs(stranger))
            self.assertEqual(0, stranger["prompt_eval_cached_count"])

    def test_requests_do_without_a_redis_that_is_stopped_slow_or_full(self):
        with self.daemon("one") as one:
            self.wait_connected(one)
            messages, _ = self.first_turn(one)
        cold = self.cold(messages)
        ways = {"stopped": lambda: self.server.send_signal(signal.SIGSTOP), "killed": self.stop}
        for name, fail in ways.items():
            with self.subTest(name), self.daemon(name, always=False) as daemon:
                self.wait_connected(daemon)
                fail()
                reply = daemon.post("/api/chat", chat(messages)).json
                self.assertEqual(cold, logprobs(reply))
                if self.server:
                    self.server.send_signal(signal.SIGCONT)
        self.start("--maxmemory", "1mb", "--maxmemory-policy", "noeviction")
        with self.daemon("full") as full:
            self.wait_connected(full)
            self.assertEqual(cold, logprobs(full.post("/api/chat", chat(messages)).json))
            self.wait(lambda: self.metric(full, "failures_total") > 0, "Redis refused nothing")

    def test_a_url_without_a_secret_is_refused(self):
        with self.assertRaisesRegex(RuntimeError, "QUIRE_SNAPSHOT_REDIS_SECRET"):
            self.daemon("one", QUIRE_SNAPSHOT_REDIS_SECRET="").start()


if __name__ == "__main__":
    suites.run()
