#!/usr/bin/env python3
"""What a client learns about the prompts of others: it tries candidates of a prompt under its own key and a fresh salt, and
compares everything that the daemon then reports. A right candidate must be indistinguishable from a wrong one. Pages that a
key without the role admin can read must not depend on what another key asks."""
import contextlib
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
# Times, and gauges that follow the clock or the connections of the moment. Those of the caches are as old as
# the runner's last heartbeat, up to a second: their values of now are read from /quire/cache.
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

    def cached(self):
        """How much the caches hold, as an admin sees it, and as the attacker does."""
        totals = {}
        for name, headers in (("admin", self.scraper), ("attacker", self.attacker)):
            page = self.daemon.request("GET", f"/quire/cache/{MODEL}", None, headers).json
            totals[f"{name} bytes"] = page["bytes"]
            totals[f"{name} nodes"] = len(page["nodes"]) + page["nodes_left_out"]
        return totals

    def seen(self, candidate, salt):
        """All that changes with a candidate: the counts of its reply, what each counter gained, and what the page says."""
        before = self.scrape() | self.cached()
        reply = self.ask(candidate, salt, self.attacker)
        after = self.scrape() | self.cached()
        gained = {name: value - before.get(name, 0) for name, value in after.items() if value != before.get(name, 0)}
        counts = {name: value for name, value in reply.items() if name.endswith("_count")}
        return json.dumps([gained, counts, self.now()], sort_keys=True)


def with_keys():
    """A daemon that is not started yet, and the headers of its keys by name."""
    daemon = Daemon({"QUIRE_CACHE_BYTES": "64MiB"})  # not what the machine has free at the moment
    file = pathlib.Path(daemon.folder.name) / "keys"
    keys = {}
    for name, *options in [("victim",), ("attacker",), ("boss", "--admin")]:
        made = subprocess.run([BIN / "quire", "key", name, "--append", file, *options], text=True, capture_output=True,
                              check=True)
        keys[name] = {"Authorization": f"Bearer {made.stdout.strip()}"}
    daemon.environment["QUIRE_KEYS"] = str(file)
    return daemon, keys


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
        daemon, keys = with_keys()
        with daemon:
            refused = daemon.request("GET", "/metrics", None, keys["attacker"])
            self.assertEqual(403, refused.status)
            self.assertNotIn("quire_", refused.text)
            self.assert_no_oracle(Observer(daemon, keys["victim"], keys["attacker"], keys["boss"]))


PAGES = [f"/quire/cache/{MODEL}", "/quire/now", "/api/ps", f"/props?model={MODEL}", "/slots"]
# On pages: times, and what the viewer's own stream has computed by now.
MOVING = re.compile(r"^(id|.*_ms|expires_at|tokens_per_second|output_tokens|computed_tokens)$")


def without_moving(value):
    """`value` without members that MOVING names. Nodes of a cache keep their ids."""
    if isinstance(value, list):
        return [without_moving(one) for one in value]
    if isinstance(value, dict):
        return {name: without_moving(one) for name, one in value.items()
                if not MOVING.match(name) or (name == "id" and "parent" in value)}
    return value


class Reader:
    """The attacker, who asks a few questions of its own and reads every page that it may."""

    def __init__(self, daemon, keys):
        self.daemon, self.keys = daemon, keys

    def ask(self, who, text, **more):
        reply = self.daemon.request("POST", "/api/chat", chat(text, "") | more, self.keys[who])
        assert reply.status == 200, reply.text

    def pages(self):
        """What the pages say once the attacker's own last request is over."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            now = self.daemon.request("GET", "/quire/now", None, self.keys["attacker"]).json
            if not now["requests"] and now["others"] == {"running": 0, "waiting": 0}:
                break
            assert time.monotonic() < deadline, "requests do not end"
            time.sleep(0.01)
        # Folders differ between daemons, and so does the memory that was granted when the model was loaded.
        granted = str(now["models"][0]["memory_bytes"])
        return {page: self.look(page).replace(self.daemon.folder.name, "FOLDER").replace(granted, "GRANTED") for page in PAGES}

    def look(self, page):
        reply = self.daemon.request("GET", page, None, self.keys["attacker"])
        assert reply.status == 200, (page, reply.text)
        headers = sorted(name for name in reply.headers if name.lower() not in ("date", "x-request-id"))
        return json.dumps([headers, without_moving(reply.json)], sort_keys=True)

    def shares(self):
        """What /quire/now says of the attacker's share beside the victim's, both of whom have a stream."""
        with self.stream("victim"), self.stream("attacker"):
            deadline = time.monotonic() + TIMEOUT_S
            while True:
                now = self.daemon.request("GET", "/quire/now", None, self.keys["attacker"]).json
                own = now["shares"]
                if own and own[0]["running"] == 1 and now["others"]["running"] == 1:
                    return json.dumps([own, without_moving(now["models"])], sort_keys=True)
                assert time.monotonic() < deadline, "the streams do not run"
                time.sleep(0.01)

    @contextlib.contextmanager
    def stream(self, who):
        """While it lasts, an answer of `who` that has begun and does not end."""
        connection = self.daemon.connect()
        connection.request("POST", "/v1/chat/completions", json.dumps({
            "model": MODEL, "stream": True, "ignore_eos": True, "temperature": 0,
            "messages": [{"role": "user", "content": "Tell me a story."}]}), self.keys[who])
        connection.getresponse().readline()
        try:
            yield
        finally:
            connection.close()


class Pages(unittest.TestCase):
    ROUNDS = 6

    def transcript(self, victim_asks):
        """What the attacker reads in each round, with or without requests of the victim before it."""
        daemon, keys = with_keys()
        with daemon:
            reader = Reader(daemon, keys)
            copied = daemon.request("POST", "/api/copy", {"source": MODEL, "destination": "alias"}, keys["boss"])
            self.assertEqual(200, copied.status)
            reader.ask("attacker", secret(99))
            reader.ask("victim", secret(98))
            seen = [reader.pages()]
            for i in range(self.ROUNDS):
                if victim_asks:
                    reader.ask("victim", secret(i), model="alias", options={"num_predict": 1, "temperature": 0, "num_ctx": 300 + i})
                seen.append(reader.pages())
                reader.ask("attacker", secret(100 + i))
                seen.append(reader.pages())
        return seen

    def test_pages_do_not_depend_on_whether_another_key_asked(self):
        busy, idle = self.transcript(True), self.transcript(False)
        for i, (one, other) in enumerate(zip(busy, idle, strict=True)):
            for page in PAGES:
                with self.subTest(page, look=i):
                    self.assertEqual(one[page], other[page])

    def test_a_stream_of_events_says_nothing_while_another_key_asks(self):
        daemon, keys = with_keys()
        with daemon:
            reader = Reader(daemon, keys)
            reader.ask("attacker", secret(99))
            reader.pages()
            connection = daemon.connect()
            connection.request("GET", PAGES[0], headers=keys["attacker"] | {"Accept": "text/event-stream"})
            events = connection.getresponse()
            self.assertTrue(events.readline().startswith(b"data: "))
            for i in range(self.ROUNDS):
                reader.ask("victim", secret(i))
                time.sleep(0.6)  # the stream looks every half second
            reader.ask("attacker", secret(100))
            self.assertEqual(b"\n", events.readline())
            # The next event is that of the attacker's own request: its prefixes have changed once.
            event = json.loads(events.readline().removeprefix(b"data: "))
            self.assertGreater(len(event["nodes"]), 1)
            self.assertEqual(without_moving(event), without_moving(json.loads(daemon.request(
                "GET", PAGES[0], None, keys["attacker"]).text)))
            connection.close()

    def test_a_share_does_not_tell_how_much_another_key_has_computed(self):
        daemon, keys = with_keys()
        with daemon:
            seen = {Reader(daemon, keys).shares() for _ in range(4)}
        self.assertEqual(1, len(seen), seen)


if __name__ == "__main__":
    unittest.main(verbosity=2)
