#!/usr/bin/env python3
"""How a server bears many small requests, beside another on the same GGUF: the two in alternation, then ratios.

  bench/load_figures.py MODEL.gguf --peer 'llama-server -m {gguf} --port {port} -t 2 -np 16 -c 49152 -kvu' --rounds 3
  bench/load_figures.py MODEL.gguf idle overload        Quire alone, these only

front     GET /health by wrk, 64 connections: what the front end costs
tiny      8 tokens in, 1 out, no two prompts alike, by wrk: 1, 16 and 64 connections
idle      the same by 64 connections, without and beside 2,000 idle ones that have each had an answer, in turns
overload  the same, open loop: first 64 clients that wait for their answers (the peak), then ten times as many
          requests a second as that, whether they are answered or not
cold      from the start of the process to the first token of 16 in (S9 of loadgen.py, three times: the best)

Options as of compare_servers.py. Needs wrk, and descriptors for the connections (`ulimit -n 16384`). Prompts are words
of two syllables, one token each with the vocabulary of synthetic models.
"""
import argparse
import asyncio
import collections
import contextlib
import json
import os
import pathlib
import random
import re
import resource
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

from compare_servers import LOADGEN, ROOT, free_port, make_store, serving

IDLE = 2000
BUSY = 64
OVERLOAD = 10
SYLLABLES = [c + v for c in "bdfghjklmnprstvzcqxw" for v in "aeiou"]
SCRIPT = """
local syllables = {%s}
init = function() math.randomseed(%d) end
request = function()
  local words = {}
  for i = 1, 8 do
    words[i] = " " .. syllables[math.random(#syllables)] .. syllables[math.random(#syllables)]
  end
  local body = '{"model":"bench","max_tokens":1,"temperature":0,"prompt":"' .. table.concat(words) .. '"}'
  return wrk.format("POST", "/v1/completions", {["Content-Type"] = "application/json"}, body)
end
"""
UNITS_MS = {"us": 1e-3, "ms": 1, "s": 1e3, "m": 6e4}


def quantile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else None


def wrk(port, connections, seconds, path="/v1/completions", script=None):
    """{"req_s", "p50_ms", "p99_ms"}; whatever is not answered with 200 is an error here."""
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "--timeout", "60s"]
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        if script:
            file.write(script)
            file.flush()
            command += ["-s", file.name]
        out = subprocess.run(command + [f"http://127.0.0.1:{port}{path}"], check=True, capture_output=True, text=True).stdout
    if "Non-2xx" in out or "Socket errors" in out:
        raise RuntimeError(out)
    latency = {share: float(value) * UNITS_MS[unit]
               for share, value, unit in re.findall(r"^\s+(50|99)%\s+([\d.]+)(us|ms|s|m)\s*$", out, re.M)}
    if len(latency) < 2:
        raise RuntimeError(out)
    return {"req_s": float(re.search(r"Requests/sec:\s+([\d.]+)", out)[1]), "p50_ms": latency["50"],
            "p99_ms": latency["99"]}


def tiny_script():
    return SCRIPT % (",".join(f'"{s}"' for s in SYLLABLES), random.randrange(1 << 30))


def front(port, seconds):
    return {f"GET /health, {BUSY} connections: {figure}": value
            for figure, value in wrk(port, BUSY, seconds, "/health").items()}


def tiny(port, seconds):
    found = {}
    for connections in (1, 16, BUSY):
        for figure, value in wrk(port, connections, seconds, script=tiny_script()).items():
            found[f"8 in, 1 out, {connections} connections: {figure}"] = value
    return found


@contextlib.contextmanager
def idle_connections(port, count):
    """Connections that have had an answer; gives a function that counts those that are still open."""
    sockets = []

    def open_ones():
        alive = 0
        for s in sockets:
            s.setblocking(False)
            try:
                alive += s.recv(1, socket.MSG_PEEK) != b""
            except BlockingIOError:
                alive += 1
            except OSError:
                pass
        return alive

    try:
        for _ in range(count):
            s = socket.create_connection(("127.0.0.1", port), 60)
            sockets.append(s)
            s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = b""
            while b'"}' not in answer:
                piece = s.recv(4096)
                if not piece:
                    break
                answer += piece
        yield open_ones
    finally:
        for s in sockets:
            s.close()


def idle(port, seconds):
    without, beside, open_ones = [], [], []
    for beside_them in (False, True, True, False):
        with idle_connections(port, IDLE if beside_them else 0) as count:
            (beside if beside_them else without).append(wrk(port, BUSY, seconds, script=tiny_script()))
            if beside_them:
                open_ones.append(count())
    found = {f"beside {IDLE} idle connections: still open": min(open_ones)}
    for figure in ("req_s", "p50_ms", "p99_ms"):
        with_them = statistics.mean(f[figure] for f in beside)
        found[f"beside {IDLE} idle connections: {figure}"] = with_them
        found[f"beside {IDLE} idle connections: {figure}, against without"] = (
            with_them / statistics.mean(f[figure] for f in without))
    return found


class Client(asyncio.Protocol):
    """One keep-alive connection; `done(client, status)` once its answer is whole, status 0 when it broke."""

    def __init__(self, done):
        self.done, self.begun, self.buffer, self.transport = done, None, b"", None

    def connection_made(self, transport):
        self.transport = transport

    def send(self, port):
        words = "".join(" " + random.choice(SYLLABLES) + random.choice(SYLLABLES) for _ in range(8))
        body = '{"model":"bench","max_tokens":1,"temperature":0,"prompt":"%s"}' % words
        self.begun, self.buffer = time.perf_counter(), b""
        self.transport.write((f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json"
                              f"\r\nContent-Length: {len(body)}\r\n\r\n{body}").encode())

    def data_received(self, data):
        self.buffer += data
        head, end, body = self.buffer.partition(b"\r\n\r\n")
        length = end and re.search(rb"content-length: *(\d+)", head, re.I)
        if length and len(body) >= int(length[1]):
            self.finish(int(head.split(b" ", 2)[1]))

    def connection_lost(self, _):
        self.finish(0)

    def finish(self, status):
        if self.begun is not None:
            begun, self.begun = self.begun, None
            self.done(self, status, begun)


async def closed_loop(port, clients, seconds):
    """Answers a second of clients that wait for each."""
    loop = asyncio.get_running_loop()
    answered, end = [], time.perf_counter() + seconds

    def done(client, status, _):
        answered.append((time.perf_counter(), status))
        if time.perf_counter() < end and status:
            client.send(port)

    connections = [(await loop.create_connection(lambda: Client(done), "127.0.0.1", port))[1] for _ in range(clients)]
    for client in connections:
        client.send(port)
    await asyncio.sleep(seconds + 0.2)
    for client in connections:
        client.transport.close()
    return sum(status == 200 and at > end - seconds * 0.75 and at <= end for at, status in answered) / (seconds * 0.75)


async def open_loop(port, rate, seconds):
    """[(when, status, ms)] of requests that come at that rate, whatever becomes of them."""
    loop = asyncio.get_running_loop()
    answers, free, waiting = [], [], set()

    def done(client, status, begun):
        at = time.perf_counter()
        waiting.discard(client)
        answers.append((at, status, (at - begun) * 1e3))
        if status and not client.transport.is_closing():
            free.append(client)

    async def one():
        client = free.pop() if free else None
        if client is None or client.transport.is_closing():
            try:
                client = (await loop.create_connection(lambda: Client(done), "127.0.0.1", port))[1]
            except OSError:
                answers.append((time.perf_counter(), 0, 0))
                return
        waiting.add(client)
        client.send(port)

    begin, sent, tasks = time.perf_counter(), 0, set()
    while (passed := time.perf_counter() - begin) < seconds:
        while sent < passed * rate:
            sent += 1
            task = loop.create_task(one())
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.sleep(0.005)
    end = time.perf_counter()
    for client in list(waiting) + free:
        client.begun = None
        client.transport.abort()
    return begin, end, sent, answers


def share_of_cores(work):
    """What it returns, and the processor time that this process took of the machine's meanwhile."""
    used, begun = time.process_time(), time.perf_counter()
    result = work()
    return result, (time.process_time() - used) / (time.perf_counter() - begun) / os.cpu_count()


def overload(port, seconds):
    peak, at_peak = share_of_cores(lambda: asyncio.run(closed_loop(port, BUSY, seconds)))
    (begin, end, sent, answers), overloaded = share_of_cores(
        lambda: asyncio.run(open_loop(port, OVERLOAD * peak, 2 * seconds)))
    settled = begin + (end - begin) / 4
    served = [ms for at, status, ms in answers if status == 200]
    refused = [ms for at, status, ms in answers if status == 503]
    now = sum(status == 200 and at >= settled for at, status, _ in answers) / (end - settled)
    print(json.dumps({"sent": sent, "statuses": collections.Counter(status for _, status, _ in answers)}), flush=True)
    name = f"{OVERLOAD} x overload"
    found = {f"{name}: peak, req_s": peak, f"{name}: answered, req_s": now, f"{name}: answered, share of peak": now / peak,
             f"{name}: still waiting at the end": 1 - (len(served) + len(refused)) / sent,
             f"{name}: answered, p50_ms": quantile(served, 0.5),
             f"{name}: cores that the load takes at the peak": at_peak, f"{name}: cores that the load takes": overloaded,
             f"{name}: answered, share of what those cores leave": now / peak * (1 - at_peak) / (1 - overloaded)}
    if refused:
        found |= {f"{name}: refused, p50_ms": quantile(refused, 0.5), f"{name}: refused, p99_ms": quantile(refused, 0.99)}
    return found


SECTIONS = {"front": front, "tiny": tiny, "idle": idle, "overload": overload, "cold": None}


def cold(label, port, command):
    out = subprocess.run([sys.executable, LOADGEN, "--url", f"http://127.0.0.1:{port}", "--api", "openai-chat", "--model",
                          "bench", "--cmd", command, "S9"], check=True, stdout=subprocess.PIPE, text=True).stdout
    print(json.dumps({"label": label, **json.loads(out)}), flush=True)
    return {"process start to first token, s": json.loads(out)["best_first_token_s"]}


def measure(label, port, a):
    body = json.dumps({"model": "bench", "prompt": " baba", "max_tokens": 1})
    urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", body.encode(),
                                                  {"Content-Type": "application/json"}), timeout=600).read()
    found = {}
    for section in [s for s in a.sections or SECTIONS if s != "cold"]:
        part = SECTIONS[section](port, a.seconds)
        print(json.dumps({"label": label, **part}), flush=True)
        found |= part
    return found


def run(label, command, port, a):
    found = {}
    if not a.sections or set(a.sections) - {"cold"}:
        with serving(shlex.split(command), port):
            found = measure(label, port, a)
    if not a.sections or "cold" in a.sections:
        found |= cold(label, port, command)
    return found


def run_ours(a, store):
    port = free_port()
    return run("quire", f"env OLLAMA_HOST=127.0.0.1:{port} OLLAMA_MODELS={shlex.quote(str(store))} OLLAMA_KEEP_ALIVE=-1 "
               f"{shlex.quote(a.bin)}/quired", port, a)


def run_peer(a):
    port = free_port()
    return run("peer", a.peer.format(gguf=a.peer_gguf or a.gguf, port=port), port, a)


def table(rounds):
    print("\n| figure | Quire | peer | ratio: median | min | max |\n|" + " --- |" * 6)
    show = lambda value: "" if value is None else f"{value:.2f}" if value < 10 else f"{value:.0f}"
    middle = lambda values: statistics.median(values) if values else None
    for figure in dict.fromkeys(figure for ours, _ in rounds for figure in ours):
        ours = [own[figure] for own, _ in rounds if own.get(figure) is not None]
        theirs = [peer[figure] for _, peer in rounds if peer.get(figure) is not None]
        ratios = [own[figure] / peer[figure] for own, peer in rounds if own.get(figure) and peer.get(figure)]
        row = [figure, *map(show, (middle(ours), middle(theirs), middle(ratios), min(ratios, default=None),
                                   max(ratios, default=None)))]
        print("| " + " | ".join(row) + " |")


def main():
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("gguf")
    parser.add_argument("sections", nargs="*", help=", ".join(SECTIONS))
    parser.add_argument("--bin", default=str(ROOT / "build/release/bin"))
    parser.add_argument("--peer", help="command that starts the server to compare with")
    parser.add_argument("--peer-gguf", help="path of the GGUF file for the peer")
    parser.add_argument("--rounds", type=int, default=1, help="measurement rounds; the servers alternate")
    parser.add_argument("--seconds", type=int, default=5, help="seconds per measurement")
    a = parser.parse_args()
    if unknown := set(a.sections) - set(SECTIONS):
        parser.error(f"no such section: {', '.join(unknown)}")
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    with tempfile.TemporaryDirectory(prefix="quire-bench-") as folder:
        store = pathlib.Path(folder) / "models"
        make_store(store, a.gguf)
        rounds = [(run_ours(a, store), run_peer(a) if a.peer else {}) for _ in range(a.rounds)]
    table(rounds)


if __name__ == "__main__":
    main()
