#!/usr/bin/env python3
"""What one client notices of another that attacks: latencies of short greedy chats, at rest and under each attack.

  bench/noisy_neighbor.py                 every attack, 10 s each, on the bundled model of build/release
  bench/noisy_neighbor.py --seconds 30 schema_dag bytes
  bench/noisy_neighbor.py --schema schema_changing
  bench/noisy_neighbor.py --keys --seconds 4
  bench/noisy_neighbor.py --list

The innocent client sends one chat after the other, of one token prompt and --tokens tokens. An attack runs in --clients
threads; each sends its request again as soon as it was answered. A row shows the innocent's p50, p99 and maximum in
milliseconds, how many of its chats failed, the largest resident sizes (VmHWM) of a runner and of the daemon in MiB, each beside
what is counted for it (the estimates of all runners, and the reserve), and what the attacker got.
"bound": p99 is at most 1 s, or at most twice the p99 at rest and one step (200 ms), whichever is larger. With --schema the
innocent's chats have a small schema, which no chat before had.

There are no keys, so that an address is a party. Each attack runs twice: attacker and innocent have one address, and two.
With --keys each of them has a key, and both have one address; of the attacks those of noisy_scenes.KEYED run where none is named.

Some attacks need a daemon of their own kind: one model at a time (other_model, and two_models with endless streams of both), a
store whose lock somebody holds (store_lock), a log that nobody reads (unread_log), a TLS listener with an RSA key of 4,096
bits (tls_handshakes; the innocent's chats are not encrypted), 501 models (tags_many), a disk each of whose changes takes 0.2 s
(slow_fsync), a model whose chat template makes gigabytes when its client says so (jinja_bombs, jinja_bombs_text). In one each of
the attacker's threads has 50 requests of 85,000 messages under way (crowded_messages). In two the
attacker has, without keys, a new credential for each request, which nobody checks: as many streams as there are places
(address_streams), and more than the queue holds (address_queue).
"""
import argparse
import collections
import contextlib
import http.client
import json
import pathlib
import re
import statistics
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/e2e"))
from harness import BIN, Daemon, greedy  # noqa: E402
from noisy_attacks import ATTACKER, ATTACKS, CROWDS, FIELDS, streams_of_one_address  # noqa: E402,F401
from noisy_pipelines import PIPELINES  # noqa: E402
from noisy_scenes import KEYED, SCENES  # noqa: E402

STEP_MS = 200
PORTS_IN_USE_MAX = 10_000
ADDRESSES = {"one": ATTACKER, "two": "127.0.0.2"}  # of the innocent


def give_keys(daemon):
    """Keys for a daemon that has not started: the attacker's requests have theirs from now on. Gives the innocent's fields."""
    file = pathlib.Path(daemon.folder.name) / "keys"
    secrets = [subprocess.run([BIN / "quire", "key", name, "--append", file, *options], text=True, capture_output=True,
                              check=True).stdout.strip()
               for name, options in (("attacker", ()), ("innocent", ()), ("admin", ("--admin",)))]
    daemon.environment |= {"QUIRE_KEYS": str(file), "QUIRE_API_KEY": secrets[2]}
    FIELDS["Authorization"] = f"Bearer {secrets[0]}"
    return {"Authorization": f"Bearer {secrets[1]}"}


class Innocent:
    """Sends one short chat after the other; with_schema: each with a schema that is compiled anew."""

    def __init__(self, port, tokens, with_schema=False, address=ATTACKER, fields=None):
        self.port = port
        self.fields = fields or {}
        self.source = (address, 0)
        self.body = greedy("Hello!", num_predict=tokens) | {"stream": False}
        self.with_schema = with_schema
        self.latencies = []
        self.failed = collections.Counter()
        self.texts = set()

    def chat(self):
        begin = time.monotonic()
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60, source_address=self.source)
            connection.request("POST", "/api/chat", json.dumps(self.body | self.format()), self.fields)
            reply = connection.getresponse()
            body = reply.read()
            connection.close()
            if reply.status == 200:
                self.texts.add(json.loads(body)["message"]["content"])
            else:
                self.failed[reply.status] += 1
        except OSError as error:
            self.failed[type(error).__name__] += 1
        self.latencies.append((time.monotonic() - begin) * 1000)

    def format(self):
        """The title changes no answer."""
        if not self.with_schema:
            return {}
        schema = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
                  "required": ["name", "age"], "title": str(time.monotonic_ns())}
        return {"format": schema}

    def run(self, seconds, least=1):
        end = time.monotonic() + seconds
        while time.monotonic() < end or len(self.latencies) < least:
            self.chat()


def quantile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def peak_mebibytes(pid):
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a runner that has just ended
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) // 1024
    return 0


def counted_mebibytes(daemon):
    """What is counted for the runners, and the daemon's reserve; 0: it does not say."""
    headers = {"Authorization": f"Bearer {key}"} if (key := daemon.environment.get("QUIRE_API_KEY")) else {}
    lines, reserve = [], None
    with contextlib.suppress(OSError):
        lines = daemon.request("GET", "/metrics", headers=headers).text.splitlines()
        reserve = re.search(r" reserve_bytes=(\d+)", daemon.log())
    predicted = sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("quire_memory_predicted_bytes"))
    return int(predicted) >> 20, int(reserve[1]) >> 20 if reserve else 0


def peaks(daemon):
    runner, of_daemon = counted_mebibytes(daemon)
    largest = max(map(peak_mebibytes, daemon.runner_pids()), default=0)
    return f"{largest}/{runner}", f"{peak_mebibytes(daemon.process.pid)}/{of_daemon}"


def wait_for_ports():
    """Closed connections keep their port for a minute, and an attack opens thousands: without one, a chat fails here."""
    for _ in range(90):
        waiting = re.search(r"^TCP: .* tw (\d+)", pathlib.Path("/proc/net/sockstat").read_text(), re.MULTILINE)
        if not waiting or int(waiting[1]) < PORTS_IN_USE_MAX:
            return
        time.sleep(1)


def measure(name, arguments, address=ATTACKER):
    """A fresh daemon, so that no attack stands on the shoulders of another."""
    attack, kind, environment, scene = SCENES.get(name) or (
        ATTACKS.get(name) or PIPELINES.get(name) or CROWDS.get(name), Daemon, {}, contextlib.nullcontext)
    daemon = kind(environment)
    fields = give_keys(daemon) if arguments.keys else {}
    with daemon, contextlib.ExitStack() as stack:
        innocent = Innocent(daemon.port, arguments.tokens, arguments.schema, address, fields)
        innocent.chat()  # loads the model
        innocent.latencies.clear()
        stack.enter_context(scene(daemon))
        seen, ended = collections.Counter(), threading.Event()
        threads = [threading.Thread(target=attack, args=(daemon.port, seen, ended), daemon=True)
                   for _ in range(arguments.clients if name else 0)]
        for thread in threads:
            thread.start()
        if name:
            time.sleep(0.2)
        innocent.run(arguments.seconds)
        ended.set()
        sizes = peaks(daemon)
        for thread in threads:
            thread.join(5)
        return innocent, seen, sizes


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attacks", nargs="*", metavar="ATTACK")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--clients", type=int, default=4, help="threads of the attacker")
    parser.add_argument("--tokens", type=int, default=8, help="of an answer to the innocent")
    parser.add_argument("--schema", action="store_true", help="the innocent's chats have a small schema")
    parser.add_argument("--addresses", choices=[*ADDRESSES, "both"], default="both", help="of attacker and innocent together")
    parser.add_argument("--keys", action="store_true", help="attacker and innocent have a key each, and one address")
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join([*ATTACKS, *PIPELINES, *CROWDS, *SCENES]))
        return 0
    for name in arguments.attacks:
        if name not in {**ATTACKS, **PIPELINES, **CROWDS, **SCENES}:
            parser.error(f"no such attack: {name}")
    rest, _, sizes = measure(None, arguments)
    bound = max(1000, 2 * quantile(rest.latencies, 0.99) + STEP_MS)
    print(f"{'attack':20} {'addresses':9} {'chats':>6} {'p50':>8} {'p99':>8} {'max':>8} {'failed':>7} {'runner':>9} {'daemon':>9}  bound  the attacker got")

    def row(name, addresses, innocent, sizes, seen):
        p99 = quantile(innocent.latencies, 0.99)
        held = p99 <= bound and not innocent.failed and innocent.texts == rest.texts
        print(f"{name:20} {addresses:9} {len(innocent.latencies):6} {statistics.median(innocent.latencies):8.0f} {p99:8.0f} "
              f"{max(innocent.latencies):8.0f} {sum(innocent.failed.values()):7} {sizes[0]:>9} {sizes[1]:>9}  {'held' if held else 'BROKEN':6} "
              f"{dict(seen)}", flush=True)
        return held

    row("(none)", "", rest, sizes, {})
    chosen = [addresses for addresses in ADDRESSES if arguments.addresses in (addresses, "both")]
    attacks = [*ATTACKS, *PIPELINES, *CROWDS, *SCENES]
    if arguments.keys:
        chosen, attacks = ["keys"], KEYED
    runs = [(name, addresses) for name in arguments.attacks or attacks for addresses in chosen]
    broken = []
    for name, addresses in runs:
        wait_for_ports()
        innocent, seen, sizes = measure(name, arguments, ADDRESSES.get(addresses, ATTACKER))
        if not row(name, addresses, innocent, sizes, seen):
            broken.append(f"{name} ({addresses})")
    print(f"{len(runs) - len(broken)} held, {len(broken)} broken: {', '.join(broken)}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
