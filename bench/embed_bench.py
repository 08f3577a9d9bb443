#!/usr/bin/env python3
"""Embedding: how many texts a second, beside another server on the same GGUF; and what a queue of texts does to a chat.

  bench/embed_bench.py texts ENCODER.gguf --peer 'llama-server -m {gguf} --port {port} --embeddings -t 2 -np 16 -c 8192'
  bench/embed_bench.py chat ENCODER.gguf --queued 10000

"texts" sends --texts texts of 8 to 256 tokens (--lengths), a text per request (--batch: more), with 1 and with 16 clients;
the servers take turns, --rounds times. "chat" streams answers of the model "quire-demo" in a row, alone and beside a queue, and prints
the gaps between their pieces. {gguf} and {port} are filled in; --peer-gguf names the file as the peer sees it. Each line
has the machine's load: figures mean little on a busy machine, and nothing on one that others keep busy, where an encoder's
runner, which is nice, gets no time and its peer does. Texts per second of CPU time, of all of a server's processes, suffer less.
"""
import argparse
import http.client
import json
import os
import pathlib
import random
import shlex
import statistics
import tempfile
import threading
import time

from compare_servers import ROOT, free_port, make_store, serving

SEED = 7
WORDS = "the of is a what it quick brown fox panda bear river hello world capital".split()


def texts(count, least=8, most=256):
    draw = random.Random(SEED)
    # Two of the tokens are the model's own; a word is one token or a few.
    return [" ".join(draw.choice(WORDS) for _ in range(draw.randint(least - 2, (most - 2) // 2))) for _ in range(count)]


class Client:
    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)

    def post(self, path, body):
        self.connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        reply = self.connection.getresponse()
        data = reply.read()
        if reply.status != 200:
            raise SystemExit(f"{path}: {reply.status} {data[:300]}")
        return json.loads(data)


def cpu_seconds(pid):
    """User and system time of a process and of its children that live."""
    ticks = os.sysconf("SC_CLK_TCK")
    parents, times = {}, {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        parents[int(entry.name)] = int(fields[1])
        times[int(entry.name)] = (int(fields[11]) + int(fields[12])) / ticks

    def belongs(one):
        while one > 1 and one != pid:
            one = parents.get(one, 0)
        return one == pid
    return sum(spent for one, spent in times.items() if belongs(one))


def embed_all(port, inputs, clients, batch):
    """Seconds, and the tokens that the server counted."""
    queue = [inputs[i:i + batch] for i in range(0, len(inputs), batch)]
    lock, tokens = threading.Lock(), [0]

    def work():
        client = Client(port)
        while True:
            with lock:
                if not queue:
                    return
                part = queue.pop()
            used = client.post("/v1/embeddings", {"model": "bench", "input": part})["usage"]["prompt_tokens"]
            with lock:
                tokens[0] += used
    threads = [threading.Thread(target=work) for _ in range(clients)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.monotonic() - began, tokens[0]


def run_texts(a):
    inputs = texts(a.texts, *a.lengths)
    found = {}
    with tempfile.TemporaryDirectory(prefix="quire-embed-") as folder:
        store = pathlib.Path(folder) / "models"
        make_store(store, a.gguf)
        for turn in range(a.rounds):
            for name in ("quire", "peer") if a.peer else ("quire",):
                port = free_port()
                ours = {"OLLAMA_HOST": f"127.0.0.1:{port}", "OLLAMA_MODELS": str(store), "OLLAMA_KEEP_ALIVE": "-1",
                        "OLLAMA_CONTEXT_LENGTH": "512"}
                command = [a.bin + "/quired", *a.quired] if name == "quire" else shlex.split(
                    a.peer.format(gguf=a.peer_gguf or a.gguf, port=port))
                with serving(command, port, ours if name == "quire" else None) as process:
                    embed_all(port, ["a"], 1, 1)  # loads the model
                    for clients in a.clients:
                        # Other texts for each count: a vector that was asked for before is not computed
                        # again.
                        mine = [f"{clients} {turn} {text}" for text in inputs]
                        before = cpu_seconds(process.pid)
                        seconds, tokens = embed_all(port, mine, clients, a.batch)
                        used = cpu_seconds(process.pid) - before
                        rate, cpu_rate = len(mine) / seconds, len(mine) / used
                        for what, value in (("texts/s", rate), ("texts per CPU second", cpu_rate)):
                            found.setdefault((clients, what), {}).setdefault(name, []).append(value)
                        print(f"{name} clients={clients} texts/s={rate:.1f} tokens/s={tokens / seconds:.0f} "
                              f"texts per CPU second={cpu_rate:.1f} CPU per token={1e6 * used / tokens:.0f} us "
                              f"load={os.getloadavg()[0]:.1f}", flush=True)
    for (clients, what), rates in found.items():
        if "peer" in rates:
            each = [own / other for own, other in zip(rates["quire"], rates["peer"])]
            print(f"clients={clients} {what}, ratio: median {statistics.median(each):.2f} min {min(each):.2f} "
                  f"max {max(each):.2f}")


def stream_gaps(port, answers, tokens):
    """Milliseconds between the pieces of streamed answers."""
    gaps = []
    for i in range(answers):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        connection.request("POST", "/api/chat", json.dumps(
            {"model": "quire-demo", "messages": [{"role": "user", "content": f"Tell me story number {i}."}],
             "options": {"temperature": 0, "num_predict": tokens}}))
        reply = connection.getresponse()
        last = None
        while reply.readline():
            now = time.monotonic()
            if last is not None:
                gaps.append(1000 * (now - last))
            last = now
        connection.close()
    return sorted(gaps)


def show_gaps(name, gaps):
    at = lambda share: gaps[min(len(gaps) - 1, int(share * len(gaps)))]
    print(f"{name}: {len(gaps)} gaps, median {at(0.5):.2f} ms, p99 {at(0.99):.2f} ms, largest {gaps[-1]:.2f} ms, "
          f"load={os.getloadavg()[0]:.1f}", flush=True)


def run_chat(a):
    with tempfile.TemporaryDirectory(prefix="quire-embed-") as folder:
        store = pathlib.Path(folder) / "models"
        make_store(store, a.gguf)
        port = free_port()
        environment = {"OLLAMA_HOST": f"127.0.0.1:{port}", "OLLAMA_MODELS": str(store), "OLLAMA_KEEP_ALIVE": "-1"}
        with serving([a.bin + "/quired", *a.quired], port, environment):
            embed_all(port, ["a"], 1, 1)
            stream_gaps(port, 1, a.tokens)
            for turn in range(a.rounds):
                show_gaps("alone", stream_gaps(port, a.answers, a.tokens))
                inputs = [f"{turn} {text}" for text in texts(a.queued, 8, 64)]
                done = []
                # All of them are in the daemon at once: a request has at most 2,048.
                threads = [threading.Thread(target=lambda part=inputs[i:i + 2000]: done.append(
                    Client(port).post("/v1/embeddings", {"model": "bench", "input": part})))
                    for i in range(0, len(inputs), 2000)]
                began = time.monotonic()
                for thread in threads:
                    thread.start()
                time.sleep(1)
                gaps = stream_gaps(port, a.answers, a.tokens)
                left = sum(thread.is_alive() for thread in threads)
                show_gaps(f"beside {a.queued} texts ({left} of {len(threads)} requests still in the queue)", gaps)
                for thread in threads:
                    thread.join()
                print(f"{a.queued / (time.monotonic() - began):.1f} texts/s meanwhile", flush=True)


def main():
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("what", choices=["texts", "chat"])
    parser.add_argument("gguf")
    parser.add_argument("--bin", default=str(ROOT / "build/release/bin"))
    parser.add_argument("--quired", type=shlex.split, default=[], help="more arguments of quired")
    parser.add_argument("--peer", help="command that starts the server to compare with")
    parser.add_argument("--peer-gguf")
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--lengths", type=int, nargs=2, default=[8, 256], help="tokens of the shortest and the longest text")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--batch", type=int, default=1, help="texts of a request")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--queued", type=int, default=10000)
    parser.add_argument("--answers", type=int, default=10)
    parser.add_argument("--tokens", type=int, default=100, help="of an answer")
    a = parser.parse_args()
    run_texts(a) if a.what == "texts" else run_chat(a)


if __name__ == "__main__":
    main()
