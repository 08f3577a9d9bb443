#!/usr/bin/env python3
"""Time to first token of turn 11 of a conversation of 10,000 tokens: where its prefix lies in memory, on disk (after an unload,
after a restart), in Redis (on another machine's daemon), and nowhere.

  bench/prefix_ttft.py lfm2-350m-Q8_0.gguf
  bench/prefix_ttft.py lfm2-350m-Q8_0.gguf --peer 'llama-server -m {gguf} --port {port} -t 2 -c 16384 -np 1 --slot-save-path {folder}'

The model is loaded before the time begins. Each round asks another question behind the same ten turns, so that only the
question is new. The peer's prefix is saved and restored by hand (POST /slots/0?action=save and restore); restoring counts.
Prints a JSON line per figure and round, then a table of medians. Needs redis-server for the Redis row. Run it on a machine
without other load. --tokens and --rounds make a smaller run.
"""
import argparse
import contextlib
import http.client
import json
import pathlib
import random
import re
import shlex
import shutil
import statistics
import subprocess
import tempfile
import time
import urllib.request

from compare_servers import ROOT, free_port, make_store, serving

TURNS = 10
ANSWER_TOKENS = 32
SYLLABLES = [c + v for c in "bdfghjklmnprstvz" for v in "aeiou"]
DEADLINE_S = 1800


def text(seed, words):
    pick = random.Random(seed)
    return "".join(" " + pick.choice(SYLLABLES) + pick.choice(SYLLABLES) for _ in range(words))


def post(port, path, body=None, method="POST"):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", None if body is None else json.dumps(body).encode(),
                                     {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=DEADLINE_S) as reply:
        return json.loads(reply.read() or b"{}")


def first_token(port, messages, on_text=lambda: None, **fields):
    """Seconds until the first chunk with text, the answer and the usage. Each such chunk calls `on_text`."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
    body = {"model": "bench", "messages": messages, "max_tokens": ANSWER_TOKENS, "temperature": 0, "stream": True,
            "stream_options": {"include_usage": True}, **fields}
    start, first, answer, usage = time.perf_counter(), None, "", {}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    reply = connection.getresponse()
    if reply.status != 200:
        raise SystemExit(f"HTTP {reply.status}: {reply.read(1000)}")
    for line in reply:
        if not line.startswith(b"data: {"):
            continue
        chunk = json.loads(line[6:])
        usage = chunk.get("usage") or usage
        for choice in chunk.get("choices", []):
            if content := choice["delta"].get("content"):
                first = first or time.perf_counter()
                answer += content
                on_text()
    connection.close()
    return (first or time.perf_counter()) - start, answer, usage


def tokens_per_word(port):
    def size(words):
        return first_token(port, [{"role": "user", "content": text(-1, words)}], max_tokens=1)[2]["prompt_tokens"]
    return (size(200) - size(100)) / 100


class Conversation:
    """Ten turns of one model, with its own answers."""

    def __init__(self, port, tokens, **fields):
        words = max(8, int((tokens / TURNS - ANSWER_TOKENS - 12) / tokens_per_word(port)))
        self.messages = []
        for turn in range(TURNS):
            self.messages.append({"role": "user", "content": text(turn, words)})
            _, answer, usage = first_token(port, self.messages, **fields)
            self.messages.append({"role": "assistant", "content": answer})
        self.tokens = usage["prompt_tokens"] + usage["completion_tokens"]

    def ask(self, port, number, **fields):
        question = {"role": "user", "content": text(1000 + number, 12)}
        seconds, _, usage = first_token(port, self.messages + [question], max_tokens=4, **fields)
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        return seconds, usage.get("prompt_tokens"), cached


def metric(port, name):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as reply:
        found = re.search(rf"^{name} (\S+)$", reply.read().decode(), re.M)
    return float(found[1]) if found else 0.0


def wait(holds, why):
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        if time.monotonic() > deadline:
            raise SystemExit(why)
        time.sleep(0.1)


def wait_stored(port, tokens):
    def stored():
        tier = post(port, "/quire/prefixes", method="GET")
        return any(prefix["tokens"] >= tokens for prefix in tier["prefixes"])
    wait(stored, "the prefix was not stored")


@contextlib.contextmanager
def redis(folder):
    server = shutil.which("redis-server")
    if not server:
        yield None
        return
    path = folder / "redis.sock"
    process = subprocess.Popen([server, "--port", "0", "--unixsocket", path, "--save", "", "--dir", folder],
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        wait(path.exists, "redis-server does not listen")
        yield path
    finally:
        process.kill()
        process.wait()


class Figures:
    def __init__(self):
        self.samples = {}

    def add(self, name, seconds, prompt=None, cached=None):
        self.samples.setdefault(name, []).append(seconds)
        print(json.dumps({"figure": name, "ttft_ms": round(seconds * 1e3, 1), "prompt_tokens": prompt,
                          "cached_tokens": cached}), flush=True)

    def table(self):
        print("\n| prefix | median, ms | minimum | maximum |\n| --- | ---: | ---: | ---: |")
        for name, samples in self.samples.items():
            values = [statistics.median(samples), min(samples), max(samples)]
            print(f"| {name} | " + " | ".join(f"{value * 1e3:.0f}" for value in values) + " |")


class Quire:
    def __init__(self, binaries, store, folder, redis_socket):
        self.binaries = binaries
        self.environment = {"OLLAMA_MODELS": str(store), "HOME": str(folder), "QUIRE_SNAPSHOT_BYTES": "8GiB",
                            "OLLAMA_KEEP_ALIVE": "-1"}
        if redis_socket:
            (folder / "secret").write_text("the secret of this benchmark\n")
            self.environment |= {"QUIRE_SNAPSHOT_REDIS": f"unix://{redis_socket}",
                                 "QUIRE_SNAPSHOT_REDIS_SECRET": str(folder / "secret")}

    @contextlib.contextmanager
    def daemon(self, snapshots):
        port = free_port()
        environment = self.environment | {"OLLAMA_HOST": f"127.0.0.1:{port}", "QUIRE_SNAPSHOT_DIR": str(snapshots)}
        with serving([str(self.binaries / "quired")], port, environment):
            self.load(port)
            yield port

    def load(self, port):
        post(port, "/api/generate", {"model": "bench", "prompt": "", "stream": False})


def run_quire(options, store, folder, figures):
    with redis(folder) as socket:
        quire = Quire(options.bin, store, folder, socket)
        disk = folder / "disk"
        with quire.daemon(disk) as port:
            conversation = Conversation(port, options.tokens)
            print(json.dumps({"conversation_tokens": conversation.tokens}), flush=True)
            # A first question too: rates of prefill and of fetching are measured by then.
            conversation.ask(port, 0)
            for number in range(options.rounds):
                figures.add("memory", *conversation.ask(port, 10 + number))
            wait_stored(port, conversation.tokens - ANSWER_TOKENS)
            for number in range(options.rounds):
                post(port, "/api/generate", {"model": "bench", "keep_alive": 0})
                wait(lambda: not post(port, "/api/ps", method="GET")["models"], "the model is not unloaded")
                quire.load(port)
                figures.add("disk, after an unload", *conversation.ask(port, 20 + number))
            for number in range(options.rounds):
                figures.add("none: computed", *conversation.ask(port, 30 + number, cache_salt=f"cold {number}"))
            if socket:
                files = post(port, "/quire/prefixes", method="GET")["files"]
                wait(lambda: metric(port, "quire_snapshot_redis_writes_total") >= files * 0.9, "Redis was not sent all")
        for number in range(options.rounds):
            with quire.daemon(disk) as port:
                figures.add("disk, after a restart", *conversation.ask(port, 40 + number))
        for number in range(options.rounds if socket else 0):
            with quire.daemon(folder / f"other-{number}") as port:
                wait(lambda: metric(port, "quire_snapshot_redis_connected") == 1, "Redis is not connected")
                figures.add("Redis, another machine", *conversation.ask(port, 50 + number))
                if late := metric(port, "quire_snapshot_redis_late_total"):
                    print(json.dumps({"late_answers_of_redis": late}), flush=True)


def run_peer(options, folder, figures):
    saved = folder / "slots"
    saved.mkdir()

    def serve():
        port = free_port()
        command = [part.format(gguf=options.peer_gguf or options.gguf, port=port, folder=str(saved) + "/")
                   for part in shlex.split(options.peer)]
        return port, serving(command, port)

    fields = {"cache_prompt": True, "id_slot": 0}
    port, server = serve()
    with server:
        conversation = Conversation(port, options.tokens, **fields)
        for number in range(options.rounds):
            figures.add("peer: memory", *conversation.ask(port, 10 + number, **fields))
        conversation.ask(port, 19, **fields)
        post(port, "/slots/0?action=save", {"filename": "conversation.bin"})
        for number in range(options.rounds):
            post(port, "/slots/0?action=erase", {})
            figures.add("peer: none, computed", *conversation.ask(port, 30 + number, **fields))
    for number in range(options.rounds):
        port, server = serve()
        with server:
            start = time.perf_counter()
            post(port, "/slots/0?action=restore", {"filename": "conversation.bin"})
            restored = time.perf_counter() - start
            seconds, prompt, cached = conversation.ask(port, 40 + number, **fields)
            figures.add("peer: slot file, after a restart", restored + seconds, prompt, cached)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gguf", type=pathlib.Path)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--tokens", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", help="command of llama-server")
    parser.add_argument("--peer-gguf", help="the file as the peer sees it")
    options = parser.parse_args()
    figures = Figures()
    with tempfile.TemporaryDirectory(prefix="quire-bench-") as temporary:
        folder = pathlib.Path(temporary)
        store = folder / "store"
        make_store(store, options.gguf)
        run_quire(options, store, folder, figures)
        if options.peer:
            run_peer(options, folder, figures)
    figures.table()


if __name__ == "__main__":
    main()
