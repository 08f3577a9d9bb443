#!/usr/bin/env python3
"""The daemon under failing allocations and failing disks.

Every allocation of an operation fails once, one after the other, until the operation gets through (SQLite's method). Each
reply is whole and as it should be, or a typed error, or the process ends with one line in the log; the next request works.
QUIRE_FAULT_STRIDE=N tries every Nth only: 1 is all of them. Without it each operation has a stride for CI, and which points
are tried changes from day to day; QUIRE_FAULT_FIRST=N repeats those of the day that a failed run has printed.
QUIRE_FAULT_LOG=FILE gets the counts.
"""
import contextlib
import errno
import hashlib
import http.client
import json
import os
import pathlib
import subprocess
import threading
import time
import unittest

import fault_requests
from evil_registry import Evil
from fault_requests import ANSWERS, LISTS, STREAMS, TEXTS, Request
from faulty_daemon import FIRST, FaultyDaemon, record
from harness import BIN, MODEL

CHAT = ANSWERS[0]


class Requests(FaultyDaemon):
    """Allocations of the daemon while a request is served."""
    environment = {"QUIRE_REGISTRIES": "127.0.0.1"}

    def delete(self, name):
        return Request("delete", "/api/delete", {"model": name}, "DELETE")

    def test_lists_and_texts(self):
        for request in (*LISTS, *TEXTS):
            outcomes = self.fail_request(request, stride=29, before=self.check_chat)  # the model is loaded
            if request.name == "show":
                self.assertIn(503, outcomes)

    # The chat after each also forgets that runners died: those that die one after the other wait longer and
    # longer.
    def test_answers(self):
        """A stream that has begun may be cut, so that nobody takes it for whole."""
        for request in (*ANSWERS, *STREAMS):
            self.fail_request(request, stride=41, after=self.check_chat)

    def test_loads(self):
        """What fails leaves nothing behind that keeps the next load out."""
        unload = Request("unload", "/api/chat", {"model": MODEL, "messages": [], "keep_alive": 0})
        self.fail_request(Request("load", CHAT.path, CHAT.body), stride=42, after=lambda: self.send(unload))

    def test_changes_of_the_store(self):
        copy = Request("copy", "/api/copy", {"source": MODEL, "destination": "copy"}, read=len)
        self.fail_request(copy, stride=29, after=lambda: self.send(self.delete("copy")))
        made = {"model": "made", "from": MODEL, "system": "You are brief.", "stream": False}
        self.fail_request(Request("create", "/api/create", made), stride=29)
        data = os.urandom(100_000)
        digest = hashlib.sha256(data).hexdigest()
        blob = self.blobs_folder() / f"sha256-{digest}"
        upload = Request("upload", f"/api/blobs/sha256:{digest}", data, read=len)
        self.fail_request(upload, stride=29, after=lambda: blob.unlink(missing_ok=True))

    def test_pulls(self):
        """Their threads are neither the I/O thread nor of a pool."""
        with Evil() as registry:
            registry.give_model(os.urandom(50_000))
            model = {"model": f"{registry.host}/x/y", "insecure": True, "stream": False}
            forget = Request("delete", "/api/delete", model, "DELETE")
            self.fail_request(Request("pull", "/api/pull", model), stride=41, after=lambda: self.send(forget))


class Keys(FaultyDaemon):
    """A failing allocation admits no wrong key and rejects no right one."""

    def prepare(self, folder):
        self.secrets = {}
        for name, options in (("alice", []), ("admin", ["--admin"])):
            made = subprocess.run([BIN / "quire", "key", name, "--append", folder / "keys", *options], text=True,
                                  capture_output=True, check=True)
            self.secrets[name] = made.stdout.strip()
        self.secrets["nobody"] = "quire-" + "0" * 64
        self.daemon.environment["QUIRE_KEYS"] = str(folder / "keys")
        self.chat_request = CHAT.with_key(self.secrets["admin"], "chat of a key")

    def test_keys(self):
        metrics = next(request for request in LISTS if request.name == "metrics")
        for request, key, status in ((CHAT, "alice", 200), (CHAT, "nobody", 401), (metrics, "alice", 403)):
            request = request.with_key(self.secrets[key], f"{request.name} with the key {key}")
            self.assertEqual(status, self.send(request).status)
            self.fail_request(request, stride=41, after=self.check_chat)


class RunnerAllocations(FaultyDaemon):
    """Allocations of the runner: it dies, and the next one answers the request as if nothing had happened."""

    def fail_in_runner(self, request, stride, before=lambda: None):
        def prepare():
            self.check_chat()  # also forgets that runners died: those that die one after the other wait longer and longer
            before()

        self.fail_request(request, stride=stride, before=prepare, control=self.runner_faults, operation=f"runner, {request.name}")
        self.check_chat()

    def test_answers(self):
        for request, stride in ((ANSWERS[0], 42), (ANSWERS[1], 140), (ANSWERS[2], 140), (TEXTS[1], 140), (STREAMS[1], 140)):
            self.fail_in_runner(request, stride)

    def test_loads(self):
        unload = Request("unload", "/api/chat", {"model": MODEL, "messages": [], "keep_alive": 0})
        self.fail_in_runner(Request("load", CHAT.path, CHAT.body), 840, lambda: self.send(unload))


class Disks(FaultyDaemon):
    environment = {"QUIRE_REGISTRIES": "127.0.0.1"}

    def fail_all(self, operation, send, after=lambda: None):
        for error in (errno.EIO, errno.ENOSPC):
            self.faults["file_error"] = error
            self.fail_every("file_calls", f"{operation} {errno.errorcode[error]}", send, self.check_status, after=after)
            self.assertEqual(200, send().status)
            after()
            self.check_chat()

    def check_status(self, reply):
        """No failing call is one of memory, whose reply could be 503."""
        if reply.status != 200:
            self.assertEqual(500, reply.status, reply.text)
            self.assertTrue(reply.json["error"])
        return reply.status

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
                record(f"slow looks, {what}: {seconds:.2f} s")
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
        reply = self.daemon.post("/api/chat", fault_requests.CHAT | {"messages": messages})
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
    record(f"QUIRE_FAULT_FIRST={FIRST}")
    unittest.main()
