#!/usr/bin/env python3
"""The daemon under failing allocations and failing disks: each request fails alone, and the daemon goes on.

Every allocation of an operation fails once, one after the other, until the operation gets through (SQLite's method).
QUIRE_FAULT_STRIDE=N tries every Nth only: 1 is all of them. QUIRE_FAULT_LOG=FILE gets the counts.
"""
import errno
import http.client
import json
import os
import pathlib
import tempfile
import time
import unittest

import faults
from harness import MODEL, ROOT, Daemon

STRIDE = int(os.environ.get("QUIRE_FAULT_STRIDE", "7"))
POINTS_MAX = 20000  # of one operation
CHAT = {"model": MODEL, "stream": False, "options": {"temperature": 0, "num_predict": 8},
        "messages": [{"role": "user", "content": "Hello!"}]}
MODELFILE_WEIGHTS = ROOT / "packaging/models/quire-demo-Q8_0.gguf"


def record(operation, points, statuses):
    line = f"{operation}: {points} points, statuses {statuses}\n"
    print(line, end="", flush=True)
    if path := os.environ.get("QUIRE_FAULT_LOG"):
        with open(path, "a") as log:
            log.write(line)


class FaultyDaemon(unittest.TestCase):
    environment = {}

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="quire-faults-")
        self.addCleanup(self.folder.cleanup)
        self.faults = faults.Faults(self.folder.name, "quired")
        self.runner_faults = faults.Faults(self.folder.name, "quire-runner")
        self.daemon = Daemon({"QUIRE_CACHE_BYTES": "16MiB"} | self.environment | faults.environment(self.folder.name))
        self.daemon.start()
        self.addCleanup(self.end)
        self.expected = self.daemon.post("/api/chat", CHAT).json["message"]

    def end(self):
        self.disarm()
        self.assertEqual(0, self.daemon.stop(), self.daemon.log()[-3000:])
        self.daemon.folder.cleanup()

    def disarm(self):
        self.faults["allocation_countdown"] = self.faults["file_countdown"] = 0
        self.faults["allocation_repeats"] = self.faults["file_repeats"] = 0

    def status_of(self, send):
        """The status of the reply; 0 where the connection ended without one."""
        try:
            return send().status
        except (http.client.HTTPException, ConnectionError):
            return 0

    def check_alive(self, what):
        self.assertIsNone(self.daemon.process.poll(), f"{what}: the daemon ended:\n{self.daemon.log()[-3000:]}")

    def fail_every(self, kind, operation, send, stride=1, after=lambda: None):
        """Fails each point of the operation in turn. Returns how many there were."""
        statuses = {}
        points = 0
        for point in range(1, POINTS_MAX, stride):
            failed = self.faults[f"{kind}_failed"]
            self.faults[f"{kind.removesuffix('s').removesuffix('_call')}_countdown"] = point
            status = self.status_of(send)
            self.disarm()
            self.check_alive(f"{operation} point {point}")
            if self.faults[f"{kind}_failed"] == failed:
                record(f"{kind} {operation}", points, statuses)
                self.statuses = set(statuses)
                return points
            points += 1
            statuses[status] = statuses.get(status, 0) + 1
            after()
        self.fail(f"{operation} has no end")

    def check_chat(self):
        reply = self.daemon.post("/api/chat", CHAT)
        self.assertEqual(200, reply.status, reply.text)
        self.assertEqual(self.expected, reply.json["message"])


class AllocationFaults(FaultyDaemon):
    def fail_all(self, operation, method, path, body=None, headers=None, after=lambda: None):
        points = self.fail_every("allocations", operation,
                                 lambda: self.daemon.request(method, path, body, headers), STRIDE, after)
        self.assertGreater(points, 0)
        self.check_chat()


class Replies(AllocationFaults):
    def test_every_failure_has_a_reply(self):
        """Also those of a connection's first allocations, before there is anything that could answer."""
        for path in ("/api/version", "/api/tags"):
            self.fail_every("allocations", path, lambda: self.daemon.request("GET", path))
            # A request whose failing allocation was not its own is answered, which on a loaded machine may be none.
            self.assertEqual({500, 503}, self.statuses - {200}, path)
        self.check_chat()


class Allocations(AllocationFaults):
    def test_lists(self):
        for path in ("/api/tags", "/api/ps", "/v1/models", "/metrics", "/health", "/readyz"):
            self.fail_all(path, "GET", path)
        self.fail_all("show", "POST", "/api/show", {"model": MODEL})

    def test_names(self):
        def forget():
            self.daemon.request("DELETE", "/api/delete", {"model": "copy"})

        self.fail_all("copy", "POST", "/api/copy", {"source": MODEL, "destination": "copy"}, after=forget)
        forget()

        def again():
            self.daemon.post("/api/copy", {"source": MODEL, "destination": "copy"})

        again()
        self.fail_all("delete", "DELETE", "/api/delete", {"model": "copy"}, after=again)
        made = {"model": "made", "from": MODEL, "system": "You are brief.", "stream": False}
        self.fail_all("create", "POST", "/api/create", made)


class Requests(AllocationFaults):
    def test_chats(self):
        for operation, path, body in (
                ("chat", "/api/chat", CHAT),
                ("stream", "/api/chat", CHAT | {"stream": True}),
                ("openai", "/v1/chat/completions", {"model": MODEL, "max_tokens": 8, "messages": CHAT["messages"]}),
                ("anthropic", "/v1/messages", {"model": MODEL, "max_tokens": 8, "messages": CHAT["messages"]}),
                ("responses", "/v1/responses", {"model": MODEL, "input": "Hello!", "max_output_tokens": 8}),
                ("embed", "/api/embed", {"model": MODEL, "input": "Hello!"})):
            # The chat after each also forgets that runners died: those that die one after the other wait longer and longer.
            self.fail_all(operation, "POST", path, body, after=self.check_chat)

    def test_tokenize(self):
        self.fail_all("tokenize", "POST", "/tokenize", {"model": MODEL, "content": "Hello!"})

    def test_loads(self):
        """A load at each point, until one gets through: what fails leaves nothing behind that keeps the next out."""
        def unload():
            self.daemon.post("/api/chat", {"model": MODEL, "messages": [], "keep_alive": 0})

        unload()
        points = self.fail_every("allocations", "load", lambda: self.daemon.post("/api/chat", CHAT), 6 * STRIDE, unload)
        self.assertGreater(points, 0)
        self.check_chat()


class RunnerAllocations(FaultyDaemon):
    """Allocations of the runner: it dies, and the next one answers the request as if nothing had happened."""

    def fail_every_one(self, operation, stride, before=lambda: None):
        points, statuses = 0, {}
        for point in range(1, POINTS_MAX, stride):
            self.check_chat()  # also forgets that runners died: those that die one after the other wait longer and longer
            before()
            failed = self.runner_faults["allocations_failed"]
            self.runner_faults["allocation_countdown"] = point
            reply = self.daemon.post("/api/chat", CHAT)
            self.runner_faults["allocation_countdown"] = 0
            self.check_alive(f"{operation} point {point}")
            if reply.status == 200:
                self.assertEqual(self.expected, reply.json["message"], f"{operation} point {point}")
            else:
                self.assertIn("error", reply.json, reply.text)
            statuses[reply.status] = statuses.get(reply.status, 0) + 1
            if self.runner_faults["allocations_failed"] == failed:
                break
            points += 1
        record(f"runner {operation}", points, statuses)
        self.assertGreater(points, 0)
        self.check_chat()

    def test_answers(self):
        self.fail_every_one("answer", 3 * STRIDE)

    def test_loads(self):
        self.fail_every_one("load", 60 * STRIDE, lambda: self.daemon.post("/api/chat", {"model": MODEL, "messages": [], "keep_alive": 0}))


class Disks(FaultyDaemon):
    def fail_all(self, operation, send, after=lambda: None):
        for error in (errno.EIO, errno.ENOSPC):
            self.faults["file_error"] = error
            points = self.fail_every("file_calls", f"{operation} {errno.errorcode[error]}", send, 1, after)
            self.assertGreater(points, 0)
            self.assertEqual(200, send().status)
            after()
            self.check_chat()

    def blobs(self):
        return sorted(path.name for path in (pathlib.Path(self.daemon.environment["OLLAMA_MODELS"]) / "blobs").iterdir())

    def delete(self, name):
        self.daemon.request("DELETE", "/api/delete", {"model": name})

    def test_names(self):
        before = self.blobs()
        self.fail_all("copy", lambda: self.daemon.post("/api/copy", {"source": MODEL, "destination": "copy"}),
                      lambda: self.delete("copy"))
        made = {"model": "made", "from": MODEL, "system": "You are brief.", "stream": False}
        self.fail_all("create", lambda: self.daemon.post("/api/create", made), lambda: self.delete("made"))
        # A removal that failed leaves a blob that the next one takes away.
        self.assertEqual(200, self.daemon.post("/api/create", made).status)
        self.delete("made")
        self.assertEqual(before, self.blobs())

    def test_uploads(self):
        before = self.blobs()
        digest = "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9"
        blob = pathlib.Path(self.daemon.environment["OLLAMA_MODELS"]) / "blobs" / f"sha256-{digest}"

        def upload():
            reply = self.daemon.request("POST", f"/api/blobs/sha256:{digest}", b"hello world")
            reply.status = {201: 200}.get(reply.status, reply.status)
            self.assertTrue(reply.status != 200 or blob.read_bytes() == b"hello world")
            return reply

        self.fail_all("upload", upload, lambda: blob.unlink(missing_ok=True))
        self.assertEqual([], [name for name in self.blobs() if name not in before and not name.startswith(".")])

    def test_a_slow_disk_is_no_chats_business(self):
        self.faults["file_delay_microseconds"] = 200_000
        made = json.dumps({"model": "slow", "from": MODEL, "system": "You are slow.", "stream": False})
        creating = self.daemon.connect()
        creating.request("POST", "/api/create", made)
        for _ in range(3):
            self.check_chat()
        self.assertEqual(200, creating.getresponse().status)
        self.faults["file_delay_microseconds"] = 0


class Prefixes(FaultyDaemon):
    """The disk tier of computed prefixes (docs/snapshots.md)."""
    environment = {"QUIRE_SNAPSHOT_BYTES": "64MiB", "QUIRE_SNAPSHOT_RETRY_MS": "100"}

    def chat(self, number):
        content = f"Number {number}. " + "Rivers were roads once, and boats carried stone and wine. " * 4
        messages = [{"role": "user", "content": content}]
        reply = self.daemon.post("/api/chat", CHAT | {"messages": messages})
        self.assertEqual(200, reply.status, reply.text)

    def tier(self):
        return self.daemon.get("/quire/prefixes").json

    def wait_writing(self, wanted):
        """Sends chats, each with a prefix of its own, until the tier writes, or no longer does."""
        deadline = time.monotonic() + 120
        number = 1000 * len(self.tier()["prefixes"])
        while self.tier()["writing"] != wanted:
            self.assertLess(time.monotonic(), deadline, self.daemon.log()[-3000:])
            self.chat(number)
            number += 1
            time.sleep(0.05)

    def test_a_failing_disk_switches_writing_off_and_fails_no_request(self):
        for error in (errno.EIO, errno.ENOSPC):
            with self.subTest(errno.errorcode[error]):
                self.faults["file_error"] = error
                self.faults["file_repeats"] = 1 << 40
                self.faults["file_countdown"] = 1
                self.wait_writing(False)
                self.check_chat()
                self.assertIn(os.strerror(error), self.daemon.log())
                self.disarm()
                self.wait_writing(True)
                self.check_chat()
        self.assertEqual(2, self.daemon.log().count("snapshot tier: writing is off"))
        self.assertEqual(2, self.daemon.log().count("snapshot tier: writing is on again"))

    def test_a_slow_disk_is_no_chats_business(self):
        self.faults["file_delay_microseconds"] = 500_000
        for number in range(4):
            self.chat(number)
        self.check_chat()
        self.faults["file_delay_microseconds"] = 0


if __name__ == "__main__":
    unittest.main()
