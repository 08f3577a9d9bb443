#!/usr/bin/env python3
"""The daemon under failing allocations and failing disks: each request fails alone, and the daemon goes on.

Every allocation of an operation fails once, one after the other, until the operation gets through (SQLite's method).
QUIRE_FAULT_STRIDE=N tries every Nth only: 1 is all of them. QUIRE_FAULT_LOG=FILE gets the counts.
"""
import contextlib
import errno
import hashlib
import http.client
import json
import os
import pathlib
import tempfile
import threading
import time
import unittest

import faults
from evil_registry import Evil
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

    def blobs_folder(self):
        return pathlib.Path(self.daemon.environment["OLLAMA_MODELS"]) / "blobs"

    def blobs(self):
        return sorted(path.name for path in self.blobs_folder().iterdir())


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


    def test_uploads(self):
        data = os.urandom(100_000)
        digest = hashlib.sha256(data).hexdigest()
        blob = self.blobs_folder() / f"sha256-{digest}"
        self.fail_all("upload", "POST", f"/api/blobs/sha256:{digest}", data, after=lambda: blob.unlink(missing_ok=True))
        self.assertEqual([], list(self.blobs_folder().glob(".quire-staging-*")))


class Transfers(AllocationFaults):
    """Pulls and pushes, whose threads are neither the I/O thread nor of a pool."""
    environment = {"QUIRE_REGISTRIES": "127.0.0.1"}

    def test_pulls_and_pushes(self):
        def answer(request):  # a push: all blobs are there, and each manifest is welcome
            if request.command == "PUT":
                request.rfile.read(int(request.headers["Content-Length"]))
                return request.reply(201)
            return False

        before = self.blobs()
        with Evil(answer) as registry:
            registry.give_model(os.urandom(50_000))
            model = {"model": f"{registry.host}/x/y", "insecure": True, "stream": False}

            def forget():
                self.daemon.request("DELETE", "/api/delete", model)
                for name in set(self.blobs()) - set(before):
                    (self.blobs_folder() / name).unlink()

            self.fail_all("pull", "POST", "/api/pull", model, after=forget)
            self.assertEqual(200, self.daemon.post("/api/pull", model).status)
            self.fail_all("push", "POST", "/api/push", model)

    def test_a_registry_that_says_nothing(self):
        """A pull that cannot begin leaves, before the registry has said anything, nothing that others wait for."""
        answers = threading.Event()

        def answer(_):
            answers.wait(60)
            return False

        with Evil(answer) as registry:
            pull = json.dumps({"model": f"{registry.host}/x/y", "insecure": True})

            def send():
                answers.clear()
                connection = http.client.HTTPConnection("127.0.0.1", self.daemon.port, timeout=20)
                try:
                    connection.request("POST", "/api/pull", pull)
                    reply = connection.getresponse()
                    reply.readline()
                    self.disarm()
                    self.assertEqual(200, self.get_soon("/livez"))
                    return reply
                finally:
                    connection.close()
                    answers.set()

            points = self.fail_every("allocations", "pull, silent registry", send)
            self.assertGreater(points, 0)
            self.check_chat()

    def get_soon(self, path):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.daemon.port, timeout=20)) as connection:
            connection.request("GET", path)
            return connection.getresponse().status


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
    environment = {"QUIRE_REGISTRIES": "127.0.0.1"}

    def fail_all(self, operation, send, after=lambda: None):
        for error in (errno.EIO, errno.ENOSPC):
            self.faults["file_error"] = error
            points = self.fail_every("file_calls", f"{operation} {errno.errorcode[error]}", send, 1, after)
            self.assertGreater(points, 0)
            self.assertEqual(200, send().status)
            after()
            self.check_chat()

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
        blob = self.blobs_folder() / f"sha256-{digest}"

        def upload():
            reply = self.daemon.request("POST", f"/api/blobs/sha256:{digest}", b"hello world")
            reply.status = {201: 200}.get(reply.status, reply.status)
            self.assertTrue(reply.status != 200 or blob.read_bytes() == b"hello world")
            return reply

        self.fail_all("upload", upload, lambda: blob.unlink(missing_ok=True))
        self.assertEqual([], [name for name in self.blobs() if name not in before and not name.startswith(".")])

    def test_pulls(self):
        """Each call that changes a file fails once. Where there is no room nothing stays; else what is there is of use."""
        before = self.blobs()
        with Evil() as registry:
            registry.give_model(os.urandom(50_000))
            name = f"{registry.host}/x/y"
            of_pull = {digest.replace(":", "-") for digest in registry.blobs}

            def pull():
                reply = self.daemon.post("/api/pull", {"model": name, "insecure": True, "stream": False})
                error = self.faults["file_error"]
                left = set(self.blobs()) - set(before)
                if reply.status != 200:
                    self.assertIn(os.strerror(error), reply.json["error"])
                names = [model["name"] for model in self.daemon.get("/api/tags").json["models"]]
                if reply.status != 200 and f"{name}:latest" in names:
                    self.assertEqual(of_pull, left)  # the last call failed, which makes the name outlive a crash
                elif reply.status != 200 and error == errno.ENOSPC:
                    self.assertEqual(set(), left)
                elif reply.status != 200:
                    self.assertLessEqual({blob.removeprefix(".quire-partial-") for blob in left}, of_pull)
                return reply

            def forget():
                self.disarm()
                self.assertEqual(200, self.daemon.post("/api/pull", {"model": name, "insecure": True}).status)
                self.delete(name)
                self.assertEqual(before, self.blobs())

            self.fail_all("pull", pull, forget)

    def test_a_slow_disk_is_no_chats_business(self):
        self.faults["file_delay_microseconds"] = 200_000
        made = json.dumps({"model": "slow", "from": MODEL, "system": "You are slow.", "stream": False})
        creating = self.daemon.connect()
        creating.request("POST", "/api/create", made)
        for _ in range(3):
            self.check_chat()
        self.assertEqual(200, creating.getresponse().status)
        self.faults["file_delay_microseconds"] = 0

    def test_slow_looks_of_one_client_are_no_others_business(self):
        """Each call that looks at a file, opens or reads it takes 0.1 s, and 64 connections of one address look for models.
        One after the other these looks take 13 s."""
        for path in self.blobs_folder().parent.rglob("*"):
            os.utime(path, (0, 0))  # what has just been written is not kept in memory
        self.check_chat()
        ended, begun = threading.Event(), threading.Event()

        def look():
            while not ended.is_set():
                connection = http.client.HTTPConnection("127.0.0.1", self.daemon.port, timeout=120,
                                                        source_address=("127.0.0.2", 0))
                with contextlib.closing(connection):
                    connection.request("POST", "/api/show", json.dumps({"model": MODEL}))
                    connection.getresponse().read()
                    begun.set()

        threads = [threading.Thread(target=look) for _ in range(64)]
        self.faults["file_read_delay_microseconds"] = 100_000
        for thread in threads:
            thread.start()
        try:
            self.assertTrue(begun.wait(60))
            for what, send in (("chat", self.check_chat), ("livez", lambda: self.daemon.get("/livez")),
                               ("tags", lambda: self.daemon.get("/api/tags")), ("chat again", self.check_chat)):
                start = time.monotonic()
                send()
                seconds = time.monotonic() - start
                record(f"slow looks, {what}", 1, f"{seconds:.2f} s")
                self.assertLess(seconds, 5, what)
        finally:
            ended.set()
            self.faults["file_read_delay_microseconds"] = 0
            for thread in threads:
                thread.join()


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
