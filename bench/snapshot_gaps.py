#!/usr/bin/env python3
"""What four running streams notice of prompts, of 2 GiB of prefixes that are written to disk, and of prefixes that are
fetched from there: the largest gap between two tokens.

  bench/snapshot_gaps.py                    about three minutes
  bench/snapshot_gaps.py --gib 1 --rounds 3

The model has random weights and a large KV cache for its size (64 KiB per token), so that prefixes cost their bytes rather than
their computation. The bound is the largest gap while the same prompts are computed and nothing is stored: neither writing
nor fetching may exceed it. Prints a JSON line per phase and round, then the medians. Needs 5 GiB of disk in the folder for temporary
files. Run it on a machine without other load. QUIRE_BIN names the folder of the binaries.
"""
import argparse
import http.client
import json
import pathlib
import random
import re
import shutil
import statistics
import struct
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/e2e"))
from harness import Daemon  # noqa: E402
from tiny_encoders import create, write_safetensors  # noqa: E402

STREAMS = 4
TOKENS = 1000  # of a prompt, about
HIDDEN, LAYERS, HEADS, HEAD_DIM, WIDTH = 128, 8, 8, 128, 256
BACKLOG_BYTES = 256 << 20  # of prefixes in memory that are not on disk yet
FETCHES = 6
REST_S = 10
DEADLINE_S = 600


def write_model(folder):
    """A Qwen3 with the tokenizer of the tests' data."""
    source = ROOT / "tests/data/models/qwen3"
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("golden*", "model.safetensors"))
    config = json.loads((source / "config.json").read_text())
    config |= {"hidden_size": HIDDEN, "intermediate_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
               "num_key_value_heads": HEADS, "head_dim": HEAD_DIM, "layer_types": ["full_attention"] * LAYERS}
    (folder / "config.json").write_text(json.dumps(config))
    draw = random.Random(1)
    tensors = {}

    def matrix(name, out, inside):
        spread = 1.5 / inside ** 0.5
        tensors[name + ".weight"] = ([out, inside], [draw.uniform(-spread, spread) for _ in range(out * inside)])

    def norm(name, size):
        tensors[name + ".weight"] = ([size], [1.0] * size)
    matrix("model.embed_tokens", config["vocab_size"], HIDDEN)
    norm("model.norm", HIDDEN)
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        norm(at + "input_layernorm", HIDDEN)
        norm(at + "post_attention_layernorm", HIDDEN)
        for name in ("q", "k", "v"):
            matrix(f"{at}self_attn.{name}_proj", HEADS * HEAD_DIM, HIDDEN)
        matrix(at + "self_attn.o_proj", HIDDEN, HEADS * HEAD_DIM)
        norm(at + "self_attn.q_norm", HEAD_DIM)
        norm(at + "self_attn.k_norm", HEAD_DIM)
        matrix(at + "mlp.gate_proj", WIDTH, HIDDEN)
        matrix(at + "mlp.up_proj", WIDTH, HIDDEN)
        matrix(at + "mlp.down_proj", HIDDEN, WIDTH)
    write_safetensors(folder / "model.safetensors", tensors)
    return folder


def prompt(number):
    pick = random.Random(number)
    return " ".join("".join(pick.choices("abcdefghijklmnopqrstuvwxyz", k=4)) for _ in range(TOKENS // 4))


def generate(daemon, text, **options):
    body = {"model": "gaps", "prompt": text, "raw": True, "stream": False,
            "options": {"temperature": 0, "num_predict": 1, "num_ctx": 2048} | options}
    reply = daemon.post("/api/generate", body)
    if reply.status != 200:
        raise SystemExit(f"HTTP {reply.status}: {reply.text[:500]}")
    return reply.json


def metric(daemon, name):
    found = re.search(rf"^{name} (\S+)$", daemon.get("/metrics").text, re.M)
    return float(found[1]) if found else 0


class Streams:
    """Streams one after the other in each of four threads; the gaps between tokens of one stream, in seconds."""

    def __init__(self, daemon):
        self.daemon, self.ended = daemon, threading.Event()
        self.gaps = [[] for _ in range(STREAMS)]
        self.threads = [threading.Thread(target=self.run, args=(number,), daemon=True) for number in range(STREAMS)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        self.wait_running()
        return self

    def __exit__(self, *_):
        self.ended.set()
        for thread in self.threads:
            thread.join(DEADLINE_S)

    def wait_running(self):
        deadline = time.monotonic() + DEADLINE_S
        while any(len(gaps) < 10 for gaps in self.gaps):
            if time.monotonic() > deadline:
                raise SystemExit("the streams do not run")
            time.sleep(0.05)

    def run(self, number):
        for turn in range(1 << 30):
            if self.ended.is_set():
                return
            connection = http.client.HTTPConnection("127.0.0.1", self.daemon.port, timeout=DEADLINE_S)
            connection.request("POST", "/api/generate", json.dumps(
                {"model": "gaps", "prompt": f"stream {number} {turn}", "raw": True, "cache_salt": f"stream {number}",
                 "options": {"num_predict": 1500, "ignore_eos": True, "seed": number, "num_ctx": 2048}}))
            last = None
            for line in connection.getresponse():
                if b'"done":false' not in line:
                    continue
                now = time.perf_counter()
                if last is not None:
                    self.gaps[number].append(now - last)
                last = now
                if self.ended.is_set():
                    break
            connection.close()

    def begin(self):
        for gaps in self.gaps:
            gaps.clear()

    def figures(self):
        gaps = sorted(gap for stream in self.gaps for gap in list(stream))
        return {"largest_gap_ms": round(gaps[-1] * 1e3, 1), "p99_ms": round(gaps[int(len(gaps) * 0.99)] * 1e3, 1),
                "tokens": len(gaps)}


def rest(daemon):
    with Streams(daemon) as streams:
        streams.begin()
        time.sleep(REST_S)
        return streams.figures()


def compute(daemon, prompts, seconds):
    """As many prompts in as long a time, which nobody stores: the bound."""
    with Streams(daemon) as streams:
        streams.begin()
        begin = time.monotonic()
        for number in range(prompts):
            generate(daemon, prompt(number))
            time.sleep(max(0, begin + seconds * (number + 1) / prompts - time.monotonic()))
        return streams.figures()


def write(daemon, wanted):
    """Prompts as fast as their prefixes are written, until this many bytes are."""
    sent = number = 0
    with Streams(daemon) as streams:
        begin = time.monotonic()
        before = metric(daemon, "quire_snapshot_disk_bytes")
        streams.begin()
        written = 0
        while written < wanted:
            written = metric(daemon, "quire_snapshot_disk_bytes") - before
            if sent - written < BACKLOG_BYTES and sent < wanted + BACKLOG_BYTES:
                tokens = generate(daemon, prompt(number))["prompt_eval_count"]
                sent += tokens * LAYERS * 2 * HEADS * HEAD_DIM * 4
                number += 1
            else:
                time.sleep(0.05)
            if time.monotonic() - begin > DEADLINE_S:
                raise SystemExit(f"only {written:.0f} bytes were written")
        return streams.figures() | {"written_bytes": int(written), "prompts": number,
                                    "seconds": round(time.monotonic() - begin, 1)}


def fetch(daemon, numbers):
    """Prompts whose prefixes memory has no more."""
    with Streams(daemon) as streams:
        before = metric(daemon, "quire_snapshot_disk_reads_total")
        streams.begin()
        cached = 0
        for number in numbers:
            cached += generate(daemon, prompt(number) + " and then")["prompt_eval_cached_count"]
        files = metric(daemon, "quire_snapshot_disk_reads_total") - before
        if not files:
            raise SystemExit("nothing was fetched")
        return streams.figures() | {"fetched_files": int(files), "cached_tokens": cached}


def run_round(store, gib, samples):
    def add(name, figures):
        samples.setdefault(name, []).append(figures["largest_gap_ms"])
        print(json.dumps({"phase": name} | figures), flush=True)
    settings = {"OLLAMA_KV_CACHE_TYPE": "f32", "QUIRE_CACHE_BYTES": "640MiB", "OLLAMA_KEEP_ALIVE": "-1"}
    with tempfile.TemporaryDirectory(prefix="quire-bench-prefixes-") as folder:
        with Daemon(settings | {"QUIRE_SNAPSHOT_BYTES": f"{int((2 * gib + 1) * 1024)}MiB", "QUIRE_SNAPSHOT_DIR": folder,
                                "QUIRE_SNAPSHOT_ALWAYS_FETCH": "1"}, store=store) as daemon:
            generate(daemon, prompt(-1))
            written = write(daemon, int(gib * (1 << 30)))
            fetched = fetch(daemon, range(FETCHES))
    with Daemon(settings | {"QUIRE_SNAPSHOT_BYTES": "0"}, store=store) as daemon:
        generate(daemon, prompt(-1))
        add("streams alone", rest(daemon))
        add("prompts, nothing stored", compute(daemon, written["prompts"], written["seconds"]))
    add("prompts, prefixes written", written)
    add("prefixes fetched", fetched)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    if options.gib < 1:
        parser.error("--gib: at least 1, so that memory does not have all that is fetched")
    samples = {}
    with tempfile.TemporaryDirectory(prefix="quire-bench-") as temporary:
        folder = pathlib.Path(temporary)
        with Daemon(store=folder / "store") as daemon:
            create(daemon, "gaps", write_model(folder / "model"))
        for _ in range(options.rounds):
            run_round(folder / "store", options.gib, samples)
    print("\n| largest gap of four streams | median, ms | minimum | maximum |\n| --- | ---: | ---: | ---: |")
    for name, values in samples.items():
        print(f"| {name} | {statistics.median(values):.0f} | {min(values):.0f} | {max(values):.0f} |")


if __name__ == "__main__":
    main()
