#!/usr/bin/env python3
"""Questions about images: encoding, a second turn over the same image, and the gaps of running streams meanwhile.

  bench/images.py MODEL.gguf MMPROJ.gguf
  bench/images.py MODEL.gguf MMPROJ.gguf --peer 'llama-server -m {gguf} --mmproj {mmproj} --port {port} -t 2 -np 8 -c 32768 -kvu'

The models are those of vision_models.py. Each round has a new image of 1024 x 1024 pixels. Encoding is the time to
first token of its question less that of a text of as many tokens. {gguf} and {mmproj} are filled in; --peer-gguf and
--peer-mmproj name the files as the peer sees them. Prints a JSON line per figure and round, then a table of medians.
Run it on a machine without other load.
"""
import argparse
import base64
import json
import pathlib
import random
import shlex
import statistics
import struct
import tempfile
import threading
import time
import zlib

from compare_servers import ROOT, free_port, make_store, serving
from prefix_ttft import first_token

SIDE = 1024
STREAMS = 4


def png(seed):
    """An image of rectangles, 1024 x 1024, as a data URL."""
    pick = random.Random(seed)
    rows = [bytearray(bytes(pick.randrange(256) for _ in range(3)) * SIDE) for _ in range(SIDE)]
    for _ in range(60):
        x, y = pick.randrange(SIDE), pick.randrange(SIDE)
        width, height = pick.randrange(20, 300), pick.randrange(20, 300)
        color = bytes(pick.randrange(256) for _ in range(3))
        for row in rows[y:y + height]:
            end = min(x + width, SIDE)
            row[3 * x:3 * end] = color * (end - x)
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    packed = zlib.compress(b"".join(b"\0" + bytes(row) for row in rows), 1)
    file = (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", packed) + chunk(b"IEND", b""))
    return "data:image/png;base64," + base64.b64encode(file).decode()


def about(image, text):
    return [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": image}}, {"type": "text", "text": text}]}]


def chat(port, messages, tokens, on_text=lambda: None):
    return first_token(port, messages, on_text, max_tokens=tokens, ignore_eos=True)


class Stream(threading.Thread):
    """A long answer; remembers when each of its pieces came."""

    def __init__(self, port, number):
        super().__init__(daemon=True)
        self.port, self.number, self.times = port, number, []

    def run(self):
        chat(self.port, [{"role": "user", "content": f"Story number {self.number}"}], 400, lambda: self.times.append(time.perf_counter()))

    def largest_gap(self, begin, end):
        times = [t for t in self.times if begin - 1 <= t <= end]
        return max((b - a for a, b in zip(times, times[1:]) if b >= begin), default=0)


def text_of(port, tokens):
    """A message that makes a prompt of about this many tokens."""
    def size(words):
        return chat(port, [{"role": "user", "content": words}], 1)[2]["prompt_tokens"]
    word = " word"
    one, many = size(word), size(word * 101)
    return word * max(1, round((tokens - one) * 100 / (many - one)))


def measure(label, port, rounds, figures):
    def add(name, value):
        figures.setdefault(name, {}).setdefault(label, []).append(value)
        print(json.dumps({"server": label, "figure": name, "value": round(value, 4)}), flush=True)
    _, _, usage = chat(port, about(png(-1), "What is it?"), 2)
    text = text_of(port, usage["prompt_tokens"])
    for number in range(rounds):
        image = png(number)
        seconds, answer, _ = chat(port, about(image, "What is it?"), 16)
        plain, _, _ = chat(port, [{"role": "user", "content": f"{number}{text}"}], 2)
        add("first turn, s to first token", seconds)
        add("encoding, s", seconds - plain)
        later = about(image, "What is it?") + [{"role": "assistant", "content": answer}, {"role": "user", "content": "And why?"}]
        seconds, _, usage = chat(port, later, 4)
        add("second turn, s to first token", seconds)
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        add("second turn, tokens computed", usage["prompt_tokens"] - cached)
    for number in range(rounds):
        streams = [Stream(port, number * STREAMS + i) for i in range(STREAMS)]
        for stream in streams:
            stream.start()
        while any(len(stream.times) < 8 for stream in streams):
            time.sleep(0.01)
        image = png(1000 + number)
        begin = time.perf_counter()
        seconds, _, _ = chat(port, about(image, "What is it?"), 1)
        add("largest gap of four streams meanwhile, s", max(stream.largest_gap(begin, begin + seconds) for stream in streams))
        add("first turn beside four streams, s", seconds)
        for stream in streams:
            stream.join()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gguf", type=pathlib.Path)
    parser.add_argument("mmproj", type=pathlib.Path)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", help="command of llama-server")
    parser.add_argument("--peer-gguf", help="the file as the peer sees it")
    parser.add_argument("--peer-mmproj", help="likewise")
    options = parser.parse_args()
    figures = {}
    with tempfile.TemporaryDirectory(prefix="quire-bench-") as temporary:
        folder = pathlib.Path(temporary)
        make_store(folder / "store", options.gguf, projector=options.mmproj)
        port = free_port()
        environment = {"OLLAMA_MODELS": str(folder / "store"), "HOME": str(folder), "OLLAMA_HOST": f"127.0.0.1:{port}",
                       "OLLAMA_KEEP_ALIVE": "-1"}
        with serving([str(options.bin / "quired")], port, environment):
            measure("Quire", port, options.rounds, figures)
        if options.peer:
            port = free_port()
            command = options.peer.format(gguf=options.peer_gguf or options.gguf, mmproj=options.peer_mmproj or options.mmproj,
                                          port=port)
            with serving(shlex.split(command), port):
                measure("peer", port, options.rounds, figures)
    print("\n| figure | Quire | peer | peer / Quire |\n| --- | ---: | ---: | ---: |")
    for name, servers in figures.items():
        ours, theirs = statistics.median(servers["Quire"]), statistics.median(servers.get("peer", [0]))
        print(f"| {name} | {ours:.3g} | {theirs:.3g} | {theirs / ours if ours else 0:.2f} |")


if __name__ == "__main__":
    main()
