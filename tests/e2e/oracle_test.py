#!/usr/bin/env python3
"""What a client learns about the prompts of others: it tries candidates of a prompt under its own key and a fresh salt, and
compares everything that the daemon then reports. A right candidate must be indistinguishable from a wrong one."""
import json
import pathlib
import random
import re
import subprocess
import time
import unittest

from harness import BIN, MODEL, TIMEOUT_S, Daemon

CANDIDATES = 50  # right ones, and as many wrong ones
WORDS = "fox river stone boat sea moon bread tree wind lamp".split()
# Times, and gauges that follow the clock or the connections of the moment.
VOLATILE = re.compile("_seconds|_rss_bytes|quire_connections|quire_engine_steps|quire_cache_|quire_prefix_snapshot")


def secret(seed):
    """24 words, so that the first 16 tokens are a secret too: the system prompt comes first."""
    rng = random.Random(seed)
    return " ".join(rng.choice(WORDS) for _ in range(24))


def chat(system, salt):
    return {"model": MODEL, "stream": False, "cache_salt": salt,
            "messages": [{"role": "system", "content": system}, {"role": "user", "content": "Hi"}],
            "options": {"temperature": 0, "num_predict": 1}}


def counters(text):
    """The values of a scrape by name, without VOLATILE."""
    values = {}
    for line in text.splitlines():
        if line and not line.startswith("#") and not VOLATILE.search(line):
            name, value = line.rsplit(" ", 1)
            values[name] = float(value)
    return values


class Observer:
    """Asks with one credential, and scrapes with another if keys are configured."""

    def __init__(self, daemon, victim, attacker, scraper):
        self.daemon, self.victim, self.attacker, self.scraper = daemon, victim, attacker, scraper
        self.asked = 0

    def ask(self, system, salt, headers):
        reply = self.daemon.request("POST", "/api/chat", chat(system, salt), headers)
        assert reply.status == 200, reply.text
        self.asked += 1
        return reply.json

    def scrape(self):
        """Counters, once the last request is in them: its line is written a moment after its reply."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            values = counters(self.daemon.request("GET", "/metrics", None, self.scraper).text)
            done = sum(value for name, value in values.items()
                       if name.startswith("quire_requests_total") and "/api/chat" in name)
            if done >= self.asked:
                return {name: value for name, value in values.items() if "/metrics" not in name}
            assert time.monotonic() < deadline, "the request is not counted"
            time.sleep(0.01)

    def now(self):
        """What /quire/now tells the attacker of its last request, without times."""
        last = self.daemon.request("GET", "/quire/now", None, self.attacker).json["recent"][0]
        return {name: value for name, value in last.items()
                if name not in ("id", "tokens_per_second") and not name.endswith("_ms")}

    def seen(self, candidate, salt):
        """All that changes with a candidate: the counts of its reply, what each counter gained, and what the page says."""
        before = self.scrape()
        reply = self.ask(candidate, salt, self.attacker)
        after = self.scrape()
        gained = {name: value - before.get(name, 0) for name, value in after.items() if value != before.get(name, 0)}
        counts = {name: value for name, value in reply.items() if name.endswith("_count")}
        return json.dumps([gained, counts, self.now()], sort_keys=True)


class Prefixes(unittest.TestCase):
    def assert_no_oracle(self, observer):
        observer.ask("", "warm", observer.victim)
        rng = random.Random(7)
        right, wrong = [], []
        for i in range(CANDIDATES):
            observer.ask(secret(i), "", observer.victim)
        for i in rng.sample(range(2 * CANDIDATES), 2 * CANDIDATES):
            is_right = i < CANDIDATES
            candidate = secret(i) if is_right else secret(1000 + i)
            (right if is_right else wrong).append(observer.seen(candidate, f"salt {i}"))
        # The best classifier says "right" for what was seen more often after right candidates.
        correct = sum(max(right.count(view), wrong.count(view)) for view in {*right, *wrong})
        different = {view for view in {*right, *wrong} if right.count(view) != wrong.count(view)}
        print(f"{correct} of {2 * CANDIDATES} candidates classified correctly")
        self.assertEqual(set(), different)
        self.assertEqual(CANDIDATES, correct)

    def test_counters_are_equal_for_right_and_wrong_candidates_without_keys(self):
        with Daemon() as daemon:
            self.assert_no_oracle(Observer(daemon, {}, {}, {}))

    def test_counters_are_equal_for_right_and_wrong_candidates_with_keys(self):
        daemon = Daemon()
        folder = pathlib.Path(daemon.folder.name)
        keys = {}
        for name, *options in [("victim",), ("attacker",), ("boss", "--admin")]:
            made = subprocess.run([BIN / "quire", "key", name, "--append", folder / "keys", *options], text=True,
                                  capture_output=True, check=True)
            keys[name] = {"Authorization": f"Bearer {made.stdout.strip()}"}
        daemon.environment["QUIRE_KEYS"] = str(folder / "keys")
        with daemon:
            refused = daemon.request("GET", "/metrics", None, keys["attacker"])
            self.assertEqual(403, refused.status)
            self.assertNotIn("quire_", refused.text)
            self.assert_no_oracle(Observer(daemon, keys["victim"], keys["attacker"], keys["boss"]))


if __name__ == "__main__":
    unittest.main(verbosity=2)
