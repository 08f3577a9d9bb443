#!/usr/bin/env python3
"""Three daemons behind HAProxy that share prefixes through a Redis with TLS and a password: a node is killed, Redis fails in
every way, the nodes are upgraded one by one. Skipped where haproxy, redis-server or openssl is missing.

usage: fleet_redis_test.py [CONVERSATIONS]    prints figures, medians of three runs; the default is a sample, and prints none
"""
import collections
import concurrent.futures
import contextlib
import functools
import http.client
import json
import pathlib
import re
import shutil
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import suites
from fleet_test import HAPROXY, Fleet, free_port, opening, wait
from harness import BIN, MODEL, TIMEOUT_S, Daemon

SERVER, OPENSSL = shutil.which("redis-server"), shutil.which("openssl")
PASSWORD = "open-sesame"
CONVERSATIONS, ROUNDS = 6, 0  # rounds of figures
LEFT_ALONE, ANSWERS_AGAIN = "Redis is left alone", "Redis answers again"


class Redis:
    """A redis-server with TLS alone; its answers come late while `delay` is above 0, by a proxy that clients connect to."""

    def __init__(self, folder):
        self.folder = folder
        subprocess.run([OPENSSL, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                        "-subj", "/CN=redis", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / "key.pem",
                        "-out", folder / "cert.pem"], check=True, capture_output=True)
        (folder / "secret").write_text("the secret of this cluster\n")
        self.port, self.delay, self.process = free_port(), 0, None
        self.proxy = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self.forward, daemon=True).start()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()
        self.proxy.close()

    def start(self):
        with open(self.folder / "redis.log", "ab") as log:
            self.process = subprocess.Popen(
                [SERVER, "--port", "0", "--tls-port", str(self.port), "--bind", "127.0.0.1", "--tls-cert-file",
                 self.folder / "cert.pem", "--tls-key-file", self.folder / "key.pem", "--tls-ca-cert-file",
                 self.folder / "cert.pem", "--tls-auth-clients", "no", "--requirepass", PASSWORD, "--save", "",
                 "--dir", self.folder], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait(self.answers, "redis-server does not answer")

    def stop(self):
        if self.process:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait(60)
            self.process = None

    def answers(self):
        with contextlib.suppress(OSError):
            return self.ask("PING").startswith("+PONG")
        return False

    def ask(self, *words):
        """The reply as it is on the wire, for commands with short replies."""
        context = ssl.create_default_context(cafile=self.folder / "cert.pem")
        with socket.create_connection(("127.0.0.1", self.port), 10) as plain, \
                context.wrap_socket(plain, server_hostname="127.0.0.1") as connection:
            for command in (("AUTH", PASSWORD), words):
                text = "".join(f"${len(word)}\r\n{word}\r\n" for word in command)
                connection.sendall(f"*{len(command)}\r\n{text}".encode())
                reply = connection.recv(65536)
            while reply.startswith(b"$") and len(reply) < int(reply[1:reply.index(b"\r")]):
                reply += connection.recv(65536)
            return reply.decode(errors="replace")

    def calls(self, command):
        found = re.search(rf"cmdstat_{command}:calls=(\d+)", self.ask("INFO", "commandstats"))
        return int(found[1]) if found else 0

    def forward(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.proxy.accept()
                threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        with client, contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 10) as server:
            server.settimeout(None)
            back = threading.Thread(target=self.pump, args=(server, client, True), daemon=True)
            back.start()
            self.pump(client, server, False)
            back.join()

    def pump(self, source, sink, late):
        with contextlib.suppress(OSError):
            while piece := source.recv(1 << 16):
                if late and self.delay:
                    time.sleep(self.delay)
                sink.sendall(piece)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def settings(self, name, always):
        """Of a daemon. `always`: it fetches what there is and waits for it, worthwhile or not."""
        port = self.proxy.getsockname()[1]
        return {"QUIRE_SNAPSHOT_BYTES": "256MiB", "QUIRE_SNAPSHOT_DIR": str(self.folder / name),
                "QUIRE_SNAPSHOT_REDIS": f"rediss://:{PASSWORD}@127.0.0.1:{port}",
                "QUIRE_SNAPSHOT_REDIS_SECRET": str(self.folder / "secret"),
                "QUIRE_SNAPSHOT_REDIS_CA": str(self.folder / "cert.pem")} | (
                    {"QUIRE_SNAPSHOT_ALWAYS_FETCH": "1"} if always else {})


def metric(daemon, name):
    found = re.search(rf"^quire_snapshot_{name} (\S+)$", daemon.get("/metrics").text, re.M)
    return float(found[1]) if found else 0


def wait_connected(daemon):
    wait(lambda: metric(daemon, "redis_connected") == 1, "Redis is not connected")


class Conversation:
    def __init__(self, number):
        self.messages = opening(number)
        self.node, self.tokens = None, 0

    def turn(self, fleet):
        """The tokens of the prompt before, and those of this one that were cached."""
        before = self.tokens
        reply, self.node = fleet.chat(self.messages)
        self.tokens = reply["prompt_eval_count"]
        self.messages += [reply["message"], {"role": "user", "content": "And then?"}]
        return before, reply.get("prompt_eval_cached_count", 0)


def wait_shared(redis, fleet, conversations):
    """Until every conversation's prompt is on its node's disk, and Redis was sent all prefixes."""
    def stored(name, node):
        wanted = sorted(c.tokens for c in conversations if c.node == name)
        there = sorted(prefix["tokens"] for prefix in node.get("/quire/prefixes").json["prefixes"])[-len(wanted):]
        return len(there) >= len(wanted) and all(a >= b for a, b in zip(there, wanted))

    def sent():
        # Each file was asked about and sent, but for those that came from there.
        nodes = fleet.nodes.values()
        files = sum(node.get("/quire/prefixes").json["files"] - metric(node, "redis_reads_total") for node in nodes)
        asked = redis.calls("exists")
        done = redis.calls("set") == sum(metric(node, "redis_writes_total") for node in nodes)
        seen.append(asked)
        return done and asked >= files and seen[-5:] == [asked] * 5
    seen = []
    for name, node in fleet.nodes.items():
        if any(c.node == name for c in conversations):
            wait(functools.partial(stored, name, node), f"{name} does not store its prefixes")
    wait(sent, "the prefixes were not sent")


def first_token_ms(daemon, messages):
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=TIMEOUT_S)
    start = time.perf_counter()
    connection.request("POST", "/api/chat", json.dumps({"model": MODEL, "messages": messages,
                                                        "options": {"temperature": 0, "num_predict": 1}}))
    reply = connection.getresponse()
    assert reply.status == 200, reply.read()
    reply.readline()
    took = (time.perf_counter() - start) * 1e3
    reply.read()
    connection.close()
    return took


class FleetRedis(unittest.TestCase):
    def setUp(self):
        if not (HAPROXY and SERVER and OPENSSL):
            self.skipTest("haproxy, redis-server or openssl is not installed")
        temporary = tempfile.TemporaryDirectory(prefix="quire-e2e-fleet-redis-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def start(self, always=True):
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        redis = stack.enter_context(Redis(self.folder))
        fleet = stack.enter_context(Fleet(environment=lambda name: redis.settings(name, always)))
        for node in fleet.nodes.values():
            wait_connected(node)
        return redis, fleet

    def test_conversations_of_a_killed_node_go_on_elsewhere(self):
        redis, fleet = self.start()
        conversations = [Conversation(number) for number in range(CONVERSATIONS)]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for _ in range(2):
                list(pool.map(lambda c: c.turn(fleet), conversations))
            wait_shared(redis, fleet, conversations)
            victim, _ = collections.Counter(c.node for c in conversations).most_common(1)[0]
            moved = [c for c in conversations if c.node == victim]
            turns = [pool.submit(c.turn, fleet) for c in conversations]
            fleet.nodes[victim].process.kill()
            done = dict(zip(conversations, (turn.result() for turn in turns)))
        fleet.nodes[victim].process.wait(TIMEOUT_S)
        before = sum(done[c][0] for c in moved)
        cached = sum(done[c][1] for c in moved)
        print(f"killed {victim}: {len(moved)} conversations, {cached} of {before} tokens restored", file=sys.stderr)
        self.assertGreaterEqual(cached, 0.9 * before)
        for node in fleet.nodes.values():
            if node.process.poll() is None:
                self.assertEqual(0, metric(node, "redis_corrupt_total"))

    def outage(self, redis, daemon, begin, end, numbers):
        """Requests during an outage succeed; afterwards Redis is asked again, and one line said so."""
        begin()
        for number in numbers:
            self.assertGreater(first_token_ms(daemon, opening(number)), 0)
        end()
        wait(redis.answers, "redis-server does not answer")
        number = iter(range(numbers[-1] + 1, 1 << 30))

        def answers():
            lookups, late = metric(daemon, "redis_lookups_total"), metric(daemon, "redis_late_total")
            first_token_ms(daemon, opening(next(number)))
            return (metric(daemon, "redis_connected") == 1 and metric(daemon, "redis_lookups_total") > lookups and
                    metric(daemon, "redis_late_total") == late)
        wait(answers, "Redis is not asked again")

    def test_requests_do_without_a_redis_that_fails(self):
        redis, fleet = self.start(always=False)
        daemon = fleet.nodes["one"]
        first_token_ms(daemon, opening(1))

        def slow(seconds):
            redis.delay = seconds
        ways = [("stopped", lambda: redis.process.send_signal(signal.SIGSTOP), lambda: redis.process.send_signal(signal.SIGCONT)),
                ("killed", redis.stop, redis.start),
                ("slow", lambda: slow(0.5), lambda: slow(0)),
                ("full", lambda: redis.ask("CONFIG", "SET", "maxmemory", "1"),
                 lambda: redis.ask("CONFIG", "SET", "maxmemory", "0"))]
        for number, (name, begin, end) in enumerate(ways):
            with self.subTest(name):
                self.outage(redis, daemon, begin, end, range(100 * (number + 1), 100 * (number + 1) + 8))
        said = re.findall(f"{LEFT_ALONE}|{ANSWERS_AGAIN}", daemon.log())
        self.assertIn(LEFT_ALONE, said)
        for one, next_one in zip(said, said[1:]):
            self.assertNotEqual(one, next_one, "an outage is one line")

    def test_nodes_are_upgraded_one_by_one(self):
        redis, fleet = self.start()
        other = self.folder / "quire-runner"  # another program, which computes other bytes as far as the tiers know
        shutil.copy(BIN / "quire-runner", other)
        with open(other, "ab") as file:
            file.write(b"\0")
        conversations = [Conversation(number) for number in range(CONVERSATIONS)]
        for conversation in conversations:
            conversation.turn(fleet)
        wait_shared(redis, fleet, conversations)
        for node in fleet.nodes.values():
            self.assertEqual(0, node.stop())
            for conversation in conversations:
                conversation.turn(fleet)
            node.environment["QUIRE_RUNNER"] = str(other)
            node.log_path.unlink()
            node.start()
            wait_connected(node)
        wait(lambda: self.all_up(fleet), "HAProxy does not see all nodes")
        for conversation in conversations:
            conversation.turn(fleet)
        stranger = next(iter(fleet.nodes.values()))
        for node in fleet.nodes.values():
            for name in ("disk_corrupt_total", "disk_failures_total", "redis_corrupt_total"):
                self.assertEqual(0, metric(node, name), name)
        with Daemon(redis.settings("old", True)) as old, Daemon({"QUIRE_PREFIX_CACHE": "false"}) as cold:
            wait_connected(old)
            body = {"model": MODEL, "stream": False, "logprobs": True, "messages": opening(1),
                    "options": {"temperature": 0, "num_predict": 6}}
            replies = [daemon.post("/api/chat", body).json for daemon in (cold, old, stranger)]
        logprobs = [[token["logprob"] for token in reply["logprobs"]] for reply in replies]
        self.assertEqual(logprobs[0], logprobs[1])
        self.assertEqual(logprobs[0], logprobs[2])

    @staticmethod
    def all_up(fleet):
        seen = {fleet.request("GET", "/readyz")[2] for _ in range(12)}
        return len(seen) == len(fleet.nodes)

    def test_figures(self):
        """Time to first token with Redis well, stopped and slow, on one machine: prompts that nobody has seen."""
        if not ROUNDS:
            self.skipTest("prints figures only when asked")
        redis, fleet = self.start(always=False)
        daemon = fleet.nodes["one"]
        number = iter(range(10_000, 1 << 30))
        medians = {}

        def measure(name):
            medians.setdefault(name, []).append(
                statistics.median(first_token_ms(daemon, opening(next(number))) for _ in range(40)))
        for _ in range(ROUNDS):
            wait_connected(daemon)
            measure("well")
            redis.process.send_signal(signal.SIGSTOP)
            measure("stopped")
            redis.process.send_signal(signal.SIGCONT)
            time.sleep(6)
            redis.delay = 0.5
            measure("slow by 500 ms")
            redis.delay = 0
            time.sleep(6)
        for name, values in medians.items():
            print(f"time to first token, Redis {name}: median {statistics.median(values):.1f} ms of rounds "
                  f"{', '.join(f'{value:.1f}' for value in values)}", file=sys.stderr)


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1].isdigit():
        CONVERSATIONS, ROUNDS = int(sys.argv[1]), 3
        del sys.argv[1:]
    suites.run()
