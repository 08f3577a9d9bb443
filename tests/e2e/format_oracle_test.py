#!/usr/bin/env python3
"""What a client learns from the clock about the output formats of others: compiled formats are kept, and using one again
is much faster than compiling it.

In each trial the victim uses one of two formats that cost the same to compile; a coin that nobody else sees says which. The
attacker then times both and says that the faster one was there already. Without a leak what it says does not depend on the
coins, however fast, slow or busy the machine is: the number of right answers has the binomial distribution of fair coins.
More than 74 or fewer than 26 of 100 then have a probability below 6e-7. A busy machine can only hide a leak.
"""
import http.client
import json
import pathlib
import secrets
import subprocess
import time
import unittest

from harness import BIN, MODEL, TIMEOUT_S, Daemon

TRIALS = 100
MOST = 74  # P(X > 74) = 2.8e-7 for X ~ Binomial(100, 1/2), and the same for X < 26
ROUNDS = 5  # of the attack with the victim's own key, on a machine that is very busy


def schema(name):
    """A format of its own whose pattern takes some milliseconds to compile."""
    return {"type": "object", "properties": {name: {"type": "string", "pattern": "^(a|b)*a(a|b){9}c$"}}, "required": [name]}


class Client:
    def __init__(self, daemon, headers, salt=""):
        self.connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=TIMEOUT_S)
        daemon.connections.append(self.connection)
        self.headers, self.salt = headers, salt

    def use(self, name):
        """The seconds until the answer."""
        body = {"model": MODEL, "stream": False, "messages": [{"role": "user", "content": "Hi"}], "format": schema(name),
                "cache_salt": self.salt, "options": {"temperature": 0, "num_predict": 1}}
        begin = time.perf_counter()
        self.connection.request("POST", "/api/chat", json.dumps(body), self.headers)
        reply = self.connection.getresponse()
        text = reply.read()
        taken = time.perf_counter() - begin
        assert reply.status == 200, text
        return taken


def count_right(victim, attacker):
    victim.use("first"), attacker.use("first")
    right = 0
    for _ in range(TRIALS):
        names = [secrets.token_hex(6), secrets.token_hex(6)]
        coin = secrets.randbelow(2)
        victim.use(names[coin])
        times = [attacker.use(name) for name in names]
        right += (times[1] < times[0]) == (coin == 1)
    return right


class Formats(unittest.TestCase):
    def assert_chance(self, right):
        print(f"{right} of {TRIALS} formats classified correctly")
        self.assertTrue(TRIALS - MOST <= right <= MOST, f"{right} of {TRIALS}: the attacker learns the victim's formats")

    def assert_seen(self, count_own):
        """With the victim's own key the attack works: so it would with another, if formats were shared."""
        for _ in range(ROUNDS):
            own = count_own()
            print(f"{own} of {TRIALS} formats classified correctly with the victim's key")
            if own > MOST:
                return
        self.fail("the attack does not work with the victim's key: what it says with another shows nothing")

    def test_another_key_is_right_by_chance(self):
        daemon = Daemon()
        folder = pathlib.Path(daemon.folder.name)
        headers = {}
        for name in ("victim", "attacker"):
            made = subprocess.run([BIN / "quire", "key", name, "--append", folder / "keys"], text=True, capture_output=True,
                                  check=True)
            headers[name] = {"Authorization": f"Bearer {made.stdout.strip()}"}
        daemon.environment["QUIRE_KEYS"] = str(folder / "keys")
        with daemon:
            self.assert_chance(count_right(Client(daemon, headers["victim"]), Client(daemon, headers["attacker"])))
            self.assert_seen(lambda: count_right(Client(daemon, headers["victim"]), Client(daemon, headers["victim"])))

    def test_another_salt_is_right_by_chance(self):
        with Daemon() as daemon:
            self.assert_chance(count_right(Client(daemon, {}, "victim"), Client(daemon, {}, "attacker")))


if __name__ == "__main__":
    unittest.main(verbosity=2)
