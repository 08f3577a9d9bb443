#!/usr/bin/env python3
"""The daemon's peak of memory in control groups of 256 to 1,024 MiB, under bodies of every kind at its limit.

A body may be small when it comes and large when it is read: gzip and zstd make megabytes of kilobytes, a byte that is no UTF-8
becomes three, a list of empty strings takes twenty times its text. Prints a table of the peaks (VmHWM) beside the reserve, which
is what --memory leaves of the group for the daemon.
"""
import contextlib
import gzip
import hashlib
import http.client
import json
import os
import pathlib
import struct
import unittest

import suites
from harness import MODEL, TIMEOUT_S, Daemon
from memory_test import CHAT, Group

MIB = 1 << 20
GROUPS_MIB = (256, 512, 640, 1024)
SETTINGS = {"QUIRE_CACHE_BYTES": "16MiB"}


def reserve_of(limit):
    return min(max(limit // 16, 256 * MIB), limit // 4)


def peak(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no VmHWM")


def reset_peak(pid):
    pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")


def around(filler):
    """A chat whose text is the filler."""
    return b'{"model":"%s","stream":false,"messages":[{"role":"user","content":"' % MODEL.encode(), filler, b'"}]}'


def plain(size):
    before, _, after = around(b"")
    return before + b"ab " * ((size - len(before) - len(after)) // 3) + after


def gzipped(size):
    """Bytes that are no UTF-8."""
    before, _, after = around(b"")
    return gzip.compress(before + b"\xff" * (size - len(before) - len(after)) + after, 9)


def zstd(size):
    """The same, in blocks of one repeated byte."""
    def block(kind, length, content, last=0):
        return struct.pack("<I", last | kind << 1 | length << 3)[:3] + content

    before, _, after = around(b"")
    frame = struct.pack("<IBB", 0xFD2FB528, 0, (23 - 10) << 3) + block(0, len(before), before)
    left = size - len(before) - len(after)
    while left > 0:
        frame += block(1, min(left, 128 << 10), b"\xff")
        left -= min(left, 128 << 10)
    return frame + block(0, len(after), after, last=1)


def strings(size):
    """A list of empty strings."""
    before = b'{"model":"%s","stop":[' % MODEL.encode()
    return before + b'"",' * ((size - len(before) - 4) // 3) + b'""]}'


def messages(size):
    one = b'{"role":"user","content":"a"},'
    before = b'{"model":"%s","stream":false,"messages":[' % MODEL.encode()
    return before + one * ((size - len(before) - len(one) - 2) // len(one)) + one[:-1] + b"]}"


def embeddings(size):
    text = "w" * (size // 2048 - 16)
    return json.dumps({"model": MODEL, "input": [text] * 2048}).encode()


BODIES = {
    "plain": ("/api/chat", plain, {}),
    "chunked": ("/v1/chat/completions", lambda size: iter([plain(size)[i:i + MIB] for i in range(0, size, MIB)]), {}),
    "gzip": ("/api/chat", gzipped, {"Content-Encoding": "gzip"}),
    "zstd": ("/api/chat", zstd, {"Content-Encoding": "zstd"}),
    "gzip of text": ("/v1/chat/completions", lambda size: gzip.compress(plain(size), 1), {"Content-Encoding": "gzip"}),
    "empty strings": ("/v1/completions", lambda size: gzip.compress(strings(size)), {"Content-Encoding": "gzip"}),
    "messages": ("/api/chat", lambda size: gzip.compress(messages(size), 1), {"Content-Encoding": "gzip"}),
    "embeddings": ("/v1/embeddings", embeddings, {}),
}


@contextlib.contextmanager
def inside(group):
    """What starts meanwhile is in the group."""
    home = group.folder.parent / "cgroup.procs"
    group.add(os.getpid())
    try:
        yield
    finally:
        home.write_text(str(os.getpid()))


class Peaks(unittest.TestCase):
    def setUp(self):
        self.group = Group.make()
        if self.group is None:
            self.skipTest("no control group with a limit of memory can be made here")
        self.addCleanup(self.group.end)

    @staticmethod
    def send(daemon, path, body, headers):
        connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=TIMEOUT_S)
        try:
            connection.request("POST", path, body, headers)
            reply = connection.getresponse()
            return reply.status, reply.read()
        finally:
            connection.close()

    def check(self, daemon, limit, name, path, body, headers, row):
        reset_peak(daemon.process.pid)
        status, text = self.send(daemon, path, body, headers)
        self.assertIsNone(daemon.process.poll(), "the daemon lives")
        taken = peak(daemon.process.pid)
        row.append(f"{status} {taken // MIB:4}")
        # What a runner needs to prepare a text of 10 MiB is more than a group of 256 MiB has beside it: the
        # kernel takes the runner.
        killed = limit == GROUPS_MIB[0] * MIB and b"killed by signal 9" in text
        self.assertTrue(killed or status in (200, 201, 400, 413, 429), (name, status, text[:200]))
        self.assertLessEqual(taken, reserve_of(limit), (name, status))
        chat = daemon.post("/api/chat", CHAT)
        self.assertEqual(200, chat.status, (name, chat.text))
        self.assertEqual("Hello! How can I help you?", chat.json["message"]["content"], name)
        return status

    def test_the_daemon_stays_within_its_reserve_whatever_is_sent(self):
        columns = [*BODIES, "blob", "60 MiB of ff"]
        print(f"\n{'group':>6} {'reserve':>7} {'start':>6} " + " ".join(f"{column:>13}" for column in columns), flush=True)
        bomb = gzipped(60 * MIB)
        for mebibytes in GROUPS_MIB:
            limit = mebibytes * MIB
            self.group.limit(limit)
            daemon = Daemon(SETTINGS)
            with inside(self.group):
                daemon.start()
            with self.subTest(mebibytes=mebibytes):
                self.addCleanup(daemon.__exit__, None, None, None)
                self.assertEqual(200, daemon.post("/api/chat", CHAT).status)
                row, start, kills = [], peak(daemon.process.pid), self.group.kills()
                size = reserve_of(limit) // 8
                for name, (path, make, headers) in BODIES.items():
                    if mebibytes == 640:  # for the last column
                        row.append("")
                        continue
                    self.check(daemon, limit, name, path, make(size), headers, row)
                content = bytes(64 * MIB)
                digest = hashlib.sha256(content).hexdigest()
                self.assertEqual(201, self.check(daemon, limit, "blob", f"/api/blobs/sha256:{digest}", content, {}, row))
                status = self.check(daemon, limit, "bomb", "/api/chat", bomb, {"Content-Encoding": "gzip"}, row)
                self.assertEqual(413, status)
                print(f"{mebibytes:6} {reserve_of(limit) // MIB:7} {start // MIB:6} " + " ".join(f"{cell:>13}" for cell in row),
                      flush=True)
                if mebibytes > GROUPS_MIB[0]:
                    self.assertEqual(kills, self.group.kills(), "the kernel killed a runner")
            daemon.stop()

    def test_a_small_body_that_becomes_large_takes_a_bounded_part_of_any_reserve(self):
        with Daemon(SETTINGS) as daemon:
            body = gzipped(60 * MIB)
            self.assertLess(len(body), 64 << 10)
            self.send(daemon, "/api/chat", body, {"Content-Encoding": "gzip"})
            taken = peak(daemon.process.pid)
            print(f"\n{taken // MIB} MiB", flush=True)
            self.assertLessEqual(taken, 320 * MIB)


if __name__ == "__main__":
    suites.run()
