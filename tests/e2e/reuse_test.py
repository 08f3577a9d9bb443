#!/usr/bin/env python3
"""What requests reuse of each other, seen through the front door: bit-identical answers, true counts, and no more sharing
than allowed."""
import json
import random
import re
import threading
import time
import unittest

from harness import MODEL, Daemon

WORDS = "fox river stone boat sea moon bread tree wind lamp".split()


def text(seed, count):
    rng = random.Random(seed)
    return " ".join(rng.choice(WORDS) for _ in range(count))


def chat(messages, num_predict=16, **fields):
    return {"model": MODEL, "stream": False, "logprobs": True, "messages": messages,
            "options": {"temperature": 0, "num_predict": num_predict}, **fields}


def logprobs(reply):
    return [token["logprob"] for token in reply["logprobs"]]


def conversations():
    """64 bodies that share, branch and repeat."""
    bodies = []
    for i in range(64):
        rng = random.Random(i)
        messages = [{"role": "system", "content": text(i % 3, 60)}]
        for turn in range(rng.randrange(3)):
            messages.append({"role": "user", "content": text(100 + 7 * (i % 5) + turn, 20)})
            messages.append({"role": "assistant", "content": text(200 + 7 * (i % 4) + turn, 15)})
        messages.append({"role": "user", "content": "Tell me about the " + text(i % 16, 1 + rng.randrange(40))})
        bodies.append(chat(messages, 4 + rng.randrange(20)))
    return bodies


class SameBits(unittest.TestCase):
    def test_random_arrival_cancel_and_cache_pressure_change_no_bit(self):
        bodies = conversations()
        with Daemon({"QUIRE_PREFIX_CACHE": "false", "QUIRE_THREADS": "1"}) as alone:
            expected = [logprobs(alone.post("/api/chat", body).json) for body in bodies]
        # Room for a few of them at once.
        with Daemon({"QUIRE_CACHE_BYTES": "12MiB", "QUIRE_CHECK_INVARIANTS": "16"}) as daemon:
            got = [None] * len(bodies)

            def ask(i):
                rng = random.Random(1000 + i)
                time.sleep(rng.random() * 2)
                if i % 4 == 0:  # somebody who gives up on the same prompt
                    connection = daemon.connect()
                    connection.request("POST", "/api/chat", json.dumps(bodies[i]))
                    time.sleep(rng.random() / 20)
                    connection.close()
                got[i] = daemon.post("/api/chat", bodies[i]).json

            threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(bodies))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            differing = [i for i, reply in enumerate(got) if logprobs(reply) != expected[i]]
            self.assertEqual([], differing)
            self.assertGreater(sum(reply["prompt_eval_cached_count"] for reply in got), 0)


class Sharing(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon().start()

    @classmethod
    def tearDownClass(cls):
        cls.daemon.__exit__(None, None, None)

    def ask(self, content, headers=None, **fields):
        reply = self.daemon.request("POST", "/api/chat", chat([{"role": "user", "content": content}], **fields), headers)
        self.assertEqual(200, reply.status, reply.text)
        return reply.json

    def test_counts_say_what_was_reused_in_both_dialects(self):
        content = text("counts", 100)
        first, again = (self.ask(content, cache_salt="counts") for _ in range(2))
        self.assertEqual(0, first["prompt_eval_cached_count"])
        self.assertEqual(first["prompt_eval_count"], again["prompt_eval_count"])
        self.assertEqual(3, again["prompt_eval_count"] - again["prompt_eval_cached_count"])  # the assistant's header
        self.assertEqual(first["message"], again["message"])
        openai = self.daemon.post("/v1/chat/completions", {
            "model": MODEL, "temperature": 0, "max_tokens": 4, "cache_salt": "counts",
            "messages": [{"role": "user", "content": content}]}).json
        self.assertEqual(again["prompt_eval_cached_count"], openai["usage"]["prompt_tokens_details"]["cached_tokens"])

    def test_another_key_or_salt_shares_nothing(self):
        content = text("keys", 100)
        self.ask(content)
        for headers, fields in [({"Authorization": "Bearer other"}, {}), ({"x-api-key": "third"}, {}),
                                ({}, {"cache_salt": "pepper"})]:
            self.assertEqual(0, self.ask(content, headers, **fields)["prompt_eval_cached_count"])
            self.assertGreater(self.ask(content, headers, **fields)["prompt_eval_cached_count"], 0)

    def test_a_salt_must_be_a_short_string(self):
        for salt in (7, ["a"], "x" * 1025):
            reply = self.daemon.post("/api/chat", chat([{"role": "user", "content": "Hi"}], cache_salt=salt))
            self.assertEqual(400, reply.status)
            self.assertIn("cache_salt", reply.text)

    def test_a_prompt_that_was_given_up_leaves_what_it_computed(self):
        for wait_s in (0.1, 0.3, 1, 3, 10, 30):  # until it got as far as a point that can be come back to
            content = text(f"given up after {wait_s}", 1500)
            connection = self.daemon.connect()
            body = chat([{"role": "user", "content": content}], options={"num_ctx": 8192, "num_predict": 2})
            connection.request("POST", "/api/chat", json.dumps(body))
            time.sleep(wait_s)
            connection.close()
            reply = self.daemon.post("/api/chat", body).json
            self.assertGreater(reply["prompt_eval_count"], 1500)
            if reply["prompt_eval_cached_count"] > 0:
                return
        self.fail("nothing was left")


class WhyNotMore(unittest.TestCase):
    """On a daemon of its own: a request's line comes a moment after its reply, so lines are told apart by number."""

    def miss_of(self, daemon, number, content, headers=None):
        request = chat([{"role": "user", "content": content}])
        self.assertEqual(200, daemon.request("POST", "/api/chat", request, headers).status)
        deadline = time.monotonic() + 60
        while True:
            misses = re.findall(r" miss=(\S+)", daemon.log())
            if len(misses) >= number or time.monotonic() > deadline:
                self.assertEqual(number, len(misses), daemon.log()[-2000:])
                return misses[-1]
            time.sleep(0.01)

    def test_the_log_says_why_not_more_was_reused(self):
        begin = text("log", 50)
        with Daemon() as daemon:
            self.assertEqual("cold", self.miss_of(daemon, 1, begin + " one"))
            self.assertRegex(self.miss_of(daemon, 2, begin + " two"), r"layout|diverged@\d+")
            self.assertEqual("salt", self.miss_of(daemon, 3, begin + " one", {"Authorization": "Bearer log"}))


if __name__ == "__main__":
    unittest.main(verbosity=2)
