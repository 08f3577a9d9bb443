#!/usr/bin/env python3
"""A client is served soon, with the same text, while another attacks: the attacks of bench/noisy_neighbor.py, briefly.

The bound of its wait tells an attack that is contained from one that is not. On two idle cores no chat waits longer than 2 s
beside any attack, and 2 s on cores with ten times as much other work; before they were contained, attacks held chats up
for 11 s (a model that must unload), 45 s (formats) and 51 s (masks). The bench has the figures.
"""
import collections
import contextlib
import pathlib
import sys
import threading
import time
import unittest

from harness import MODEL, TIMEOUT_S, Daemon

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from noisy_neighbor import ATTACKS, SCENES, Innocent, streams_of_one_address  # noqa: E402

CHATS = 3  # while the attack goes on
TOKENS = 4
WAIT_MAX_MS = 10_000


class Attacks(unittest.TestCase):
    def check(self, daemon, attack, expected, has_begun=lambda seen: True, meanwhile=lambda: None):
        seen, ended = collections.Counter(), threading.Event()
        attacker = threading.Thread(target=attack, args=(daemon.port, seen, ended), daemon=True)
        attacker.start()
        innocent = Innocent(daemon.port, TOKENS)
        deadline = time.monotonic() + TIMEOUT_S
        while not has_begun(seen) and time.monotonic() < deadline:
            time.sleep(0.01)
        while (len(innocent.latencies) < CHATS or not seen) and time.monotonic() < deadline:
            innocent.chat()
        meanwhile()
        self.assertTrue(attacker.is_alive(), "the attack ended early")
        ended.set()
        attacker.join(TIMEOUT_S)
        self.assertTrue(seen, "the attack did nothing")
        self.assertFalse(innocent.failed)
        self.assertEqual(innocent.texts, expected)
        self.assertLess(max(innocent.latencies), WAIT_MAX_MS, seen)
        return seen

    def test_nobody_notices(self):
        with Daemon() as daemon:
            alone = Innocent(daemon.port, TOKENS)
            alone.chat()
            runners = daemon.runner_pids()
            for name in ATTACKS:
                with self.subTest(name):
                    seen = self.check(daemon, ATTACKS[name], alone.texts)
                    self.assertFalse(any(isinstance(status, int) and status >= 500 for status in seen), seen)
                    self.assertEqual(daemon.runner_pids(), runners, "the runner was replaced")

    def test_another_address_does_not_notice_a_full_queue(self):
        for streams, status in ((40, 200), (128, 503)):
            with self.subTest(streams), Daemon({"OLLAMA_MAX_QUEUE": "64"}) as daemon:
                alone = Innocent(daemon.port, TOKENS)
                alone.chat()

                def load(daemon=daemon):
                    reply = daemon.request("POST", "/api/generate", {"model": MODEL})
                    self.assertEqual(200, reply.status, reply.text)

                seen = self.check(daemon, streams_of_one_address(streams), alone.texts,
                                  lambda seen, status=status: seen[status] >= 30, load)
                self.assertGreaterEqual(seen[status], 30, seen)

    def test_nobody_notices_where_models_take_turns_the_store_is_locked_or_the_log_unread(self):
        for name, (attack, kind, environment, scene) in SCENES.items():
            with self.subTest(name), kind(environment) as daemon, contextlib.ExitStack() as stack:
                alone = Innocent(daemon.port, TOKENS)
                alone.chat()
                stack.enter_context(scene(daemon))
                self.check(daemon, attack, alone.texts)


if __name__ == "__main__":
    unittest.main()
