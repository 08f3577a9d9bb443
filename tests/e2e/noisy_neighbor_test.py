#!/usr/bin/env python3
"""A client is served soon, with the same text, while another attacks: the attacks of bench/noisy_neighbor.py, briefly.

Attacker and innocent have no keys and one address, so that nothing tells them apart, or two addresses, or a key each.

Half of the chats must take less than 2 s and each less than 5 s, or 20 and 50 times what they take at rest, where that is more.
On two idle cores half take less than 0.2 s beside any attack, and no chat more than 2 s: the first one beside readers that
stall, or while models take turns. Another process that has the cores for a second delays one chat and not half of them. Before
they were contained, attacks held chats up for 11 s (a model that must unload), 45 s (formats), 51 s (masks) and for as long as
they went on (streams). The bench has the figures.
"""
import collections
import contextlib
import http.client
import json
import pathlib
import statistics
import sys
import threading
import time
import unittest

import faults
from harness import MODEL, TIMEOUT_S, Daemon

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from noisy_neighbor import ADDRESSES, ATTACKS, FIELDS, SCENES, Innocent, give_keys, streams_of_one_address  # noqa: E402
from noisy_scenes import SlowDisk  # noqa: E402

CHATS = 5  # while the attack goes on
TOKENS = 4
MEDIAN_MAX_MS, MEDIAN_MAX = 2000, 20  # the latter times the median at rest
WAIT_MAX_MS, WAIT_MAX = 5000, 50


class Attacks(unittest.TestCase):
    def at_rest(self, daemon, fields=None):
        innocent = Innocent(daemon.port, TOKENS, fields=fields)
        innocent.chat()  # loads the model
        innocent.latencies.clear()
        for _ in range(CHATS):
            innocent.chat()
        return innocent

    def check(self, daemon, attack, alone, address=ADDRESSES["one"], has_begun=lambda seen: True, meanwhile=lambda: None):
        seen, ended = collections.Counter(), threading.Event()
        attacker = threading.Thread(target=attack, args=(daemon.port, seen, ended), daemon=True)
        attacker.start()
        innocent = Innocent(daemon.port, TOKENS, address=address, fields=alone.fields)
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
        self.assertEqual(innocent.texts, alone.texts)
        rest = statistics.median(alone.latencies)
        self.assertLess(statistics.median(innocent.latencies), max(MEDIAN_MAX_MS, MEDIAN_MAX * rest), (innocent.latencies, seen))
        self.assertLess(max(innocent.latencies), max(WAIT_MAX_MS, WAIT_MAX * rest), (innocent.latencies, seen))
        return seen

    def test_nobody_notices(self):
        with Daemon() as daemon:
            alone = self.at_rest(daemon)
            runners = daemon.runner_pids()
            for name in ATTACKS:
                with self.subTest(name):
                    seen = self.check(daemon, ATTACKS[name], alone)
                    self.assertFalse(any(isinstance(status, int) and status >= 500 for status in seen), seen)
                    self.assertEqual(daemon.runner_pids(), runners, "the runner was replaced")

    def test_nobody_notices_as_many_streams_as_places_or_a_full_queue(self):
        """An address that has filled the queue itself is rejected: only others have a share of its places."""
        for streams, status, addresses in ((40, 200, ADDRESSES.values()), (128, 503, [ADDRESSES["two"]])):
            for address in addresses:
                with self.subTest(streams=streams, address=address), Daemon({"OLLAMA_MAX_QUEUE": "64"}) as daemon:
                    alone = self.at_rest(daemon)

                    def load(daemon=daemon, address=address):
                        connection = http.client.HTTPConnection("127.0.0.1", daemon.port, TIMEOUT_S, source_address=(address, 0))
                        with contextlib.closing(connection):
                            connection.request("POST", "/api/generate", json.dumps({"model": MODEL}))
                            self.assertEqual(200, connection.getresponse().status)

                    seen = self.check(daemon, streams_of_one_address(streams), alone, address,
                                      lambda seen, status=status: seen[status] >= 30, load)
                    self.assertGreaterEqual(seen[status], 30, seen)

    def test_nobody_notices_the_streams_of_another_key(self):
        """Of 32 places one key takes 30."""
        daemon = Daemon()
        fields = give_keys(daemon)
        self.addCleanup(FIELDS.clear)
        with daemon:
            alone = self.at_rest(daemon, fields)
            seen = self.check(daemon, streams_of_one_address(32), alone, has_begun=lambda seen: seen[200] >= 30)
            self.assertGreaterEqual(seen[200], 30, seen)

    def test_nobody_notices_models_that_take_turns_stores_disks_logs_or_templates(self):
        for name, (attack, kind, environment, scene) in SCENES.items():
            if kind is SlowDisk and not faults.usable():
                continue
            with self.subTest(name), kind(environment) as daemon, contextlib.ExitStack() as stack:
                alone = self.at_rest(daemon)
                stack.enter_context(scene(daemon))
                self.check(daemon, attack, alone)


if __name__ == "__main__":
    unittest.main()
