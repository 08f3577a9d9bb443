"""A daemon each of whose allocations or calls to change a file can be made to fail, one after the other (faults_test.py)."""
import contextlib
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

import faults
from fault_requests import ANSWERS, Request
from harness import Daemon

# All strides, if set: 1 is every point. Else each operation has its own, which fits the time that CI has.
STRIDE = os.environ.get("QUIRE_FAULT_STRIDE")
# Which of the points between two is tried: another one each day. QUIRE_FAULT_FIRST repeats those of a day.
FIRST = int(os.environ.get("QUIRE_FAULT_FIRST", time.time() // 86400))
FAR = 1 << 40
CHAT = ANSWERS[0]
ENDS = "quired: ends: out of memory"


def record(line):
    print(line, flush=True)
    if path := os.environ.get("QUIRE_FAULT_LOG"):
        with open(path, "a") as log:
            log.write(line + "\n")


class FaultyDaemon(unittest.TestCase):
    environment = {}
    chat_request = CHAT

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="quire-faults-")
        self.addCleanup(self.folder.cleanup)
        self.faults = faults.Faults(self.folder.name, "quired")
        self.runner_faults = faults.Faults(self.folder.name, "quire-runner")
        self.daemon = Daemon({"QUIRE_CACHE_BYTES": "16MiB"} | self.environment | faults.environment(self.folder.name))
        self.prepare(pathlib.Path(self.daemon.folder.name))
        self.daemon.start()
        self.addCleanup(self.end)
        self.expected_chat = self.send(self.chat_request)
        self.assertEqual(200, self.expected_chat.status, self.expected_chat.text)

    def prepare(self, folder):
        """Before the daemon starts."""

    def end(self):
        self.disarm()
        self.assertEqual(0, self.daemon.stop(), self.daemon.log()[-3000:])
        self.daemon.folder.cleanup()

    def disarm(self):
        for control in (self.faults, self.runner_faults):
            for field in ("allocation_countdown", "file_countdown", "allocation_repeats", "file_repeats"):
                control[field] = 0

    def send(self, request):
        return request.send(self.daemon.port)

    def replace_ended(self, what, reply):
        """Whether the daemon has ended as it does where no request ends for an allocation. Another one serves then."""
        if reply.status == 0:  # the thread that ends the daemon may be slower than this one
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.daemon.process.wait(1)
        probe = Request("livez", "/livez").send(self.daemon.port)
        if ENDS not in self.daemon.log():
            self.assertEqual(200, probe.status, f"{what}: the daemon ended:\n{self.daemon.log()[-3000:]}")
            return False
        self.assertEqual(-signal.SIGABRT, self.daemon.process.wait(60), what)
        self.daemon.log_path.write_text("")
        self.daemon.start()
        return True

    def check_chat(self):
        reply = self.send(self.chat_request)
        # A thread beside the request may be slow to end the daemon: it does after the request is looked at.
        if not reply.whole and self.replace_ended("the chat after it", reply):
            reply = self.send(self.chat_request)
        self.assertEqual(200, reply.status, reply.text)
        reply.check(self.expected_chat)

    def points_of(self, control, countdown, send, stride):
        """How many points the operation has this time, the first to try and the distance to the next."""
        control[countdown] = FAR
        send()
        points = FAR - control[countdown]
        self.disarm()
        stride = max(1, min(int(STRIDE or stride), points // 4))  # a few of a short one, whose length is not always the same
        return points, 1 + FIRST % stride, stride

    def fail_every(self, kind, operation, send, check, *, stride=1, before=lambda: None, after=lambda: None, control=None):
        """Fails each point of the operation in turn. `check` names what came back. How often each came."""
        control = control or self.faults
        countdown = {"allocations": "allocation_countdown", "file_calls": "file_countdown"}[kind]
        before()
        points, point, stride = self.points_of(control, countdown, send, stride)
        after()
        outcomes, wrong, failures, tried = {}, [], 0, range(point, 4 * points + 1000, stride)
        for point in tried:
            before()
            failed = control[f"{kind}_failed"]
            control[countdown] = point
            reply = send()
            self.disarm()
            try:
                outcome = "ended" if self.replace_ended(f"{operation} point {point}", reply) else check(reply)
            except AssertionError as error:
                outcome = "wrong"
                wrong.append(f"point {point}: {error}")
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
            got_through = control[f"{kind}_failed"] == failed
            failures += not got_through
            if got_through and point + stride > points:
                record(f"{kind} {operation}: {failures} failed, from {tried.start} by {stride} of {points}: {outcomes}")
                self.assertGreater(failures, 0)
                self.assertFalse(wrong[:3], f"{operation}: {len(wrong)} points")
                return outcomes
            after()
        self.fail(f"{operation} has no end")

    def fail_request(self, request, operation=None, **how):
        """Each allocation for this request fails, one after the other."""
        expected = self.send(request)
        self.assertLess(expected.status, 500, expected.text)
        how.get("after", lambda: None)()
        with self.subTest(request.name):
            return self.fail_every("allocations", operation or request.name, lambda: self.send(request),
                                   lambda reply: reply.check(expected), **how)

    def blobs_folder(self):
        return pathlib.Path(self.daemon.environment["OLLAMA_MODELS"]) / "blobs"

    def blobs(self):
        return sorted(path.name for path in self.blobs_folder().iterdir())
