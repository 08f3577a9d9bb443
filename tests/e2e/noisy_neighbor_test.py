#!/usr/bin/env python3
"""A client is served, with the same text, while another attacks: the attacks of bench/noisy_neighbor.py, briefly.

How long it waits is not asserted here; the bench shows that.
"""
import collections
import pathlib
import sys
import threading
import time
import unittest

from harness import TIMEOUT_S, Daemon

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from noisy_neighbor import ATTACKS, Innocent  # noqa: E402

CHATS = 3  # while the attack goes on
TOKENS = 4


class Attacks(unittest.TestCase):
    def check(self, daemon, name, expected):
        seen, ended = collections.Counter(), threading.Event()
        attacker = threading.Thread(target=ATTACKS[name], args=(daemon.port, seen, ended), daemon=True)
        attacker.start()
        innocent = Innocent(daemon.port, TOKENS)
        deadline = time.monotonic() + TIMEOUT_S
        while (len(innocent.latencies) < CHATS or not seen) and time.monotonic() < deadline:
            innocent.chat()
        ended.set()
        attacker.join(TIMEOUT_S)
        self.assertTrue(seen, "the attack did nothing")
        self.assertFalse(innocent.failed)
        self.assertEqual(innocent.texts, expected)
        self.assertFalse(any(isinstance(status, int) and status >= 500 for status in seen), seen)

    def test_nobody_notices(self):
        with Daemon() as daemon:
            alone = Innocent(daemon.port, TOKENS)
            alone.chat()
            runners = daemon.runner_pids()
            for name in ATTACKS:
                with self.subTest(name):
                    self.check(daemon, name, alone.texts)
                    self.assertEqual(daemon.runner_pids(), runners, "the runner was replaced")


if __name__ == "__main__":
    unittest.main()
