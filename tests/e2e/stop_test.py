#!/usr/bin/env python3
"""SIGTERM ends the daemon soon after its drain, whatever its other threads do, and a second one ends it at once."""
import contextlib
import fcntl
import http.client
import os
import pathlib
import re
import signal
import tempfile
import threading
import time
import unittest

import faults
from harness import MODEL, TIMEOUT_S, Daemon

DRAIN_S = 1
END_S = 20  # the drain, 10 s for what is under way, and time for a busy machine; what is waited for takes a minute and more
SLOW_MICROSECONDS = 100_000_000
STOPPED = " stopped connections_left="
EXPIRED = "stopping with work that does not end"
TIER_ON, TIER_LEFT = "snapshot tier: on", "snapshot tier: it does not answer, and is left behind"


class StopTest(unittest.TestCase):
    environment = {}

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="quire-faults-")
        self.addCleanup(folder.cleanup)
        self.faults = faults.Faults(folder.name, "quired")
        self.started = 0
        self.daemon = Daemon({"QUIRE_DRAIN_TIMEOUT": f"{DRAIN_S}s"} | self.environment | faults.environment(folder.name)).start()
        self.addCleanup(self.daemon.folder.cleanup)
        self.addCleanup(self.daemon.process.kill)

    def wait_for(self, condition):
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            self.assertLess(time.monotonic(), deadline, self.daemon.log())
            time.sleep(0.02)

    def start_request(self, path, body):
        """It is being answered when this returns."""
        def send():
            with contextlib.suppress(OSError, http.client.HTTPException):
                self.daemon.post(path, body)

        threading.Thread(target=send, daemon=True).start()
        self.started += 1
        line = f"\nquire_connections {self.started + 1}\n"  # with the one that asks
        self.wait_for(lambda: line in self.daemon.get("/metrics").text)
        time.sleep(0.5)

    def check_end(self):
        begin = time.monotonic()
        self.assertEqual(0, self.daemon.stop(), self.daemon.log())
        self.assertLess(time.monotonic() - begin, END_S, self.daemon.log())


class Stop(StopTest):
    def test_a_wait_for_the_lock_of_the_store_ends(self):
        with open(pathlib.Path(self.daemon.environment["OLLAMA_MODELS"]) / ".quire-lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for name in ("one", "two"):
                self.start_request("/api/copy", {"source": MODEL, "destination": name})
            self.check_end()
        self.assertNotIn(EXPIRED, self.daemon.log())

    def hashed_bytes(self):
        """Of a converted model, where one is being hashed."""
        proc = pathlib.Path("/proc") / str(self.daemon.process.pid)
        for file in proc.glob("fd/*"):
            with contextlib.suppress(OSError):
                if re.search(r"/\.quire-staging-.*\.gguf$", os.readlink(file)):
                    return int(re.search(r"pos:\s+(\d+)", (proc / "fdinfo" / file.name).read_text())[1])
        return 0

    def test_hashing_a_large_file_ends(self):
        blobs = pathlib.Path(self.daemon.environment["OLLAMA_MODELS"]) / "blobs"
        before = set(blobs.glob("sha256-*"))
        self.faults["file_read_delay_microseconds"] = 1_000_000  # for each MiB that is hashed
        self.start_request("/api/create", {"model": "made", "from": MODEL, "quantize": "q8_0"})
        self.wait_for(lambda: self.hashed_bytes() > 0)
        self.check_end()
        self.assertEqual(before, set(blobs.glob("sha256-*")), "it was hashed to its end")

    def test_a_disk_that_does_not_answer_is_not_waited_for(self):
        self.faults["file_delay_microseconds"] = SLOW_MICROSECONDS
        self.start_request("/api/copy", {"source": MODEL, "destination": "copy"})
        self.check_end()
        self.assertIn(EXPIRED, self.daemon.log())

    def test_a_second_signal_ends_at_once(self):
        self.faults["file_delay_microseconds"] = SLOW_MICROSECONDS
        self.start_request("/api/copy", {"source": MODEL, "destination": "copy"})
        self.daemon.process.send_signal(signal.SIGTERM)
        self.wait_for(lambda: STOPPED in self.daemon.log())  # nothing but that work is left
        self.check_end()
        self.assertNotIn(EXPIRED, self.daemon.log())


class StopWithPrefixes(StopTest):
    environment = {"QUIRE_SNAPSHOT_BYTES": "64MiB"}

    def chat(self, text):
        message = {"role": "user", "content": text * 40}
        reply = self.daemon.post("/api/chat", {"model": MODEL, "messages": [message], "stream": False,
                                               "options": {"num_predict": 2}})
        self.assertEqual(200, reply.status, reply.text)

    def files(self):
        return list(pathlib.Path(self.daemon.folder.name).rglob("*.quire-*"))

    def test_a_tier_that_does_not_answer_is_not_waited_for(self):
        self.wait_for(lambda: TIER_ON in self.daemon.log())
        self.chat("Rivers were roads. ")
        self.wait_for(self.files)
        self.faults["file_delay_microseconds"] = SLOW_MICROSECONDS
        self.chat("Boats carried stone. ")
        begin = time.monotonic()
        self.daemon.post("/api/chat", {"model": MODEL, "keep_alive": 0})
        self.wait_for(lambda: not self.daemon.runner_pids())
        print(f"unload: {time.monotonic() - begin:.2f} s", flush=True)
        begin = time.monotonic()
        self.check_end()
        print(f"end: {time.monotonic() - begin:.2f} s", flush=True)
        self.assertIn(TIER_LEFT, self.daemon.log())
        self.assertNotIn(EXPIRED, self.daemon.log())


if __name__ == "__main__":
    unittest.main(verbosity=2)
