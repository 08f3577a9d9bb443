#!/usr/bin/env python3
"""Runners that are killed or stopped under their requests: nobody notices but for the time it takes.

usage: recovery_test.py [Streams|Chaos|...]

QUIRE_CHAOS_SECONDS: how long Chaos goes on (default 20; CI takes 90).
"""
import collections
import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import signal
import threading
import time
import unittest

from harness import MODEL, TIMEOUT_S, Daemon, greedy

CHAOS_S = float(os.environ.get("QUIRE_CHAOS_SECONDS", 20))
CLIENTS = 16


def story(seed, num_predict=400, **fields):
    """Seeded or, by every other seed, greedy; long enough to be in the middle of."""
    options = {"num_predict": num_predict, "seed": seed, "temperature": 1.1 if seed % 2 else 0, "num_ctx": 2048,
               "ignore_eos": True}
    return {"model": MODEL, "prompt": f"Tell me story number {seed} about a fox.", "raw": True, "options": options,
            **fields}


def whole(lines):
    return "".join(line["response"] for line in lines), lines[-1].get("eval_count"), lines[-1].get("done_reason")


def kill_runners(daemon, sig):
    for pid in daemon.runner_pids():
        try:
            os.kill(pid, sig)
        except ProcessLookupError:
            pass


class Streams(unittest.TestCase):
    def check(self, sig, times, environment=None):
        """Eight streams, their runner hit `times` times in the middle, beside eight that were left alone."""
        bodies = [story(seed, 1000) for seed in range(8)]
        with Daemon() as quiet:
            expected = [whole(quiet.post("/api/generate", body).lines) for body in bodies]
        with Daemon(environment) as daemon:
            got = [[] for _ in bodies]

            def stream(index):
                connection = daemon.connect()
                connection.request("POST", "/api/generate", json.dumps(bodies[index]))
                reply = connection.getresponse()
                self.assertEqual(200, reply.status)
                for line in reply:
                    got[index].append(json.loads(line))

            threads = [threading.Thread(target=stream, args=(i,)) for i in range(len(bodies))]
            for thread in threads:
                thread.start()
            for hit in range(1, times + 1):
                deadline = time.monotonic() + 60
                while min(map(len, got)) < 40 * hit and any(t.is_alive() for t in threads) and time.monotonic() < deadline:
                    time.sleep(0.005)
                kill_runners(daemon, sig)
            for thread in threads:
                thread.join(TIMEOUT_S)
            self.assertGreaterEqual(daemon.log().count("resumed model="), 8, "it was not hit in the middle")
            for index, lines in enumerate(got):
                self.assertNotIn("error", lines[-1])
                self.assertEqual(expected[index], whole(lines), f"stream {index}")

    def test_killed_in_the_middle(self):
        self.check(signal.SIGKILL, 3)

    def test_crashed_in_the_middle(self):
        self.check(signal.SIGSEGV, 1)

    def test_stopped_in_the_middle(self):
        self.check(signal.SIGSTOP, 1)

    def test_other_dialects_go_on_too(self):
        body = {"model": MODEL, "max_tokens": 600, "messages": [{"role": "user", "content": "la " * 20}],
                "temperature": 1, "seed": 3, "stream": True, "ignore_eos": True}
        for path in ("/v1/chat/completions", "/v1/messages"):
            with self.subTest(path), Daemon() as daemon:
                texts = []
                for kill in (False, True):
                    connection = daemon.connect()
                    connection.request("POST", path, json.dumps(body if "chat" in path else
                                                                body | {"temperature": 0}))
                    reply = connection.getresponse()
                    head = b"".join(reply.readline() for _ in range(60))
                    if kill:
                        kill_runners(daemon, signal.SIGKILL)
                    events = [json.loads(line[6:]) for line in (head + reply.read()).splitlines()
                              if line.startswith(b"data: {")]
                    texts.append("".join(self.text_of(event) for event in events))
                self.assertEqual(texts[0], texts[1])
                self.assertGreater(len(texts[0]), 20)

    def test_a_prompt_that_is_scored_goes_on_too(self):
        body = {"model": MODEL, "prompt": "The fox ran to the river. " * 400, "max_tokens": 100, "echo": True,
                "logprobs": 1, "temperature": 0, "stream": True, "ignore_eos": True}
        with Daemon() as daemon:
            seen = []
            for lines in (None, 4, 160):  # before the kill: the beginning of the prompt, then some of the answer
                connection = daemon.connect()
                connection.request("POST", "/v1/completions", json.dumps(body))
                reply = connection.getresponse()
                head = b"".join(reply.readline() for _ in range(lines or 0))
                if lines:
                    kill_runners(daemon, signal.SIGKILL)
                choices = [json.loads(line[6:])["choices"][0] for line in (head + reply.read()).splitlines()
                           if line.startswith(b"data: {")]
                lists = [choice["logprobs"]["token_logprobs"] for choice in choices if choice["logprobs"]]
                seen.append(("".join(choice["text"] for choice in choices), sum(lists, [])))
            self.assertEqual(2, daemon.log().count("resumed model="))
            self.assertGreater(len(seen[0][1]), 1000)
            self.assertEqual(seen[0], seen[1])
            self.assertEqual(seen[0], seen[2])

    @staticmethod
    def text_of(event):
        if "choices" in event:
            return "".join(choice["delta"].get("content") or "" for choice in event["choices"])
        return event.get("delta", {}).get("text", "")


class Requests(unittest.TestCase):
    def test_one_that_waits_for_its_first_byte_gets_its_answer(self):
        with Daemon() as daemon:
            daemon.post("/api/generate", {"model": MODEL})
            (pid,) = daemon.runner_pids()
            os.kill(pid, signal.SIGSTOP)
            connection = daemon.connect()
            connection.request("POST", "/api/chat", json.dumps(greedy("Hello!") | {"stream": False}))
            self.wait_for_submission(daemon)
            os.kill(pid, signal.SIGKILL)
            reply = connection.getresponse()
            self.assertEqual(200, reply.status)
            self.assertEqual("Hello! How can I help you?", json.loads(reply.read())["message"]["content"])

    def test_suspended_for_another_model(self):
        """An answer without end gives way to another model after a while, and goes on where it was."""
        body = story(2, num_predict=8000)
        body["options"] |= {"num_ctx": 8192, "draft_num_predict": 0}  # seconds, one token a step
        with Daemon({"OLLAMA_MAX_LOADED_MODELS": "1"}) as daemon:
            expected = whole(daemon.post("/api/generate", body).lines)
            daemon.post("/api/create", {"model": "other", "from": MODEL, "template": "{{ .Prompt }}"})
            connection = daemon.connect()
            connection.request("POST", "/api/generate", json.dumps(body))
            reply = connection.getresponse()
            first = json.loads(reply.readline())
            other = greedy("Hello!") | {"model": "other", "stream": False}
            newcomer = http.client.HTTPConnection("127.0.0.1", daemon.port, source_address=("127.0.0.2", 0))
            with contextlib.closing(newcomer):  # for one that has run nothing the answer gives way at once
                newcomer.request("POST", "/api/chat", json.dumps(other))
                self.assertEqual(newcomer.getresponse().status, 200)
            self.assertEqual(whole([first] + [json.loads(line) for line in reply]), expected)
            self.assertIn(" suspended requests=1", daemon.log())

    def test_embeddings_are_computed_again(self):
        body = {"model": MODEL, "input": ["the fox " * 300] * 4}
        with Daemon() as daemon:
            expected = daemon.post("/api/embed", body).json["embeddings"]
            (pid,) = daemon.runner_pids()
            os.kill(pid, signal.SIGSTOP)
            connection = daemon.connect()
            connection.request("POST", "/api/embed", json.dumps(body))
            self.wait_for_submission(daemon)
            os.kill(pid, signal.SIGKILL)
            self.assertEqual(expected, json.loads(connection.getresponse().read())["embeddings"])

    def test_a_preparation_that_is_stuck_fails_alone(self):
        """The thread that would prepare the other request, too, blocks. The runner is replaced."""
        chat = greedy("Hello!") | {"stream": False, "format": "json"}
        chat["options"] = chat["options"] | {"num_predict": 8}
        with Daemon({"QUIRE_STUCK_PREPARATION": "stuck"}) as daemon:
            expected = daemon.post("/api/chat", chat)
            self.assertEqual(200, expected.status, expected.text)
            (pid,) = daemon.runner_pids()
            stuck = daemon.connect()
            body = {"model": MODEL, "prompt": "stuck", "raw": True, "stream": False, "format": "json"}
            stuck.request("POST", "/api/generate", json.dumps(body))
            self.wait_for_submission(daemon)
            got = daemon.post("/api/chat", chat)
            self.assertEqual((200, expected.json["message"]), (got.status, got.json.get("message")), got.text)
            self.assertNotIn(pid, daemon.runner_pids())
            reply = stuck.getresponse()
            self.assertEqual(500, reply.status)
            self.assertIn("preparing the request does not end", json.loads(reply.read())["error"])

    def wait_for_submission(self, daemon):
        """After these requests the one that was sent before them waits for the runner."""
        for _ in range(50):
            self.assertEqual(200, daemon.get("/api/tags").status)


class Chaos(unittest.TestCase):
    def test_random_kills_and_stops(self):
        bodies = [story(seed, 20 + 7 * seed) for seed in range(24)]
        with Daemon({"QUIRE_CHECK_INVARIANTS": "64"}) as daemon:
            expected = [whole(daemon.post("/api/generate", body).lines) for body in bodies]
            daemon.metrics()
            before = self.footprint(daemon)
            counts = collections.Counter()  # "right", or what was said instead
            wrong = []
            end = time.monotonic() + CHAOS_S
            clients = [threading.Thread(target=self.ask, args=(daemon, bodies, expected, counts, wrong, end, i))
                       for i in range(CLIENTS)]
            for client in clients:
                client.start()
            hits = self.disturb(daemon, end, counts)
            for client in clients:
                client.join(TIMEOUT_S)
                self.assertFalse(client.is_alive(), "a request never ended")
            self.assertEqual([], wrong)
            total = sum(counts.values())
            print(f"\n{hits} hits, {dict(counts)}", flush=True)
            self.assertGreaterEqual(counts["right"], 0.99 * total, counts)
            kill_runners(daemon, signal.SIGKILL)
            daemon.post("/api/generate", bodies[0])
            daemon.metrics()
            after = self.footprint(daemon)
            self.assertEqual(1, len(daemon.runner_pids()))
            self.assertLessEqual(after["descriptors"], before["descriptors"] + 2)
            self.assertLess(after["resident_mib"], before["resident_mib"] + 30)

    @staticmethod
    def ask(daemon, bodies, expected, counts, wrong, end, client):
        rng = random.Random(client)
        while time.monotonic() < end:
            index = rng.randrange(len(bodies))
            connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=TIMEOUT_S)
            try:
                connection.request("POST", "/api/generate", json.dumps(bodies[index]))
                reply = connection.getresponse()
                lines = [json.loads(line) for line in reply.read().splitlines()]
            except (OSError, http.client.HTTPException, ValueError) as error:
                wrong.append(repr(error))
                continue
            finally:
                connection.close()
            if lines and isinstance(lines[-1].get("error"), str):
                counts[re.sub(r"\d+", "N", lines[-1]["error"])] += 1
            elif reply.status == 200 and whole(lines) == expected[index]:
                counts["right"] += 1
            else:
                wrong.append((index, reply.status, lines[-1:]))

    @staticmethod
    def disturb(daemon, end, counts):
        """A request fails with the second runner that dies before it gets on, so that only every fourth hit may come
        before the requests have recovered from the last one, however slow the machine is."""
        rng = random.Random(7)
        hits = 0
        while time.monotonic() < end:
            answers = sum(list(counts.values())) + CLIENTS
            while hits % 4 != 0 and sum(list(counts.values())) < answers and time.monotonic() < end:
                time.sleep(0.02)
            time.sleep(rng.uniform(0, 2))
            kill_runners(daemon, signal.SIGSTOP if rng.random() < 0.25 else signal.SIGKILL)
            hits += 1
        return hits

    @staticmethod
    def footprint(daemon):
        proc = pathlib.Path(f"/proc/{daemon.process.pid}")
        resident = int((proc / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
        return {"descriptors": len(list((proc / "fd").iterdir())), "resident_mib": resident}


if __name__ == "__main__":
    unittest.main()
