#!/usr/bin/env python3
"""What one client of an encoder notices of another that attacks: latencies of a short text, at rest and beside each attack.

  bench/noisy_encoders.py                 every attack, 20 s each
  bench/noisy_encoders.py --seconds 60 long_text

The encoder has the layers of bge-m3 (24 x 1024, texts of 8,192 tokens) and random weights. The innocent sends a text of 8
letters again and again and expects the same vector, number for number. Columns, addresses and bound are those of
noisy_neighbor.py. "alone" measures the attack without the innocent: seconds of a text of 8,192 tokens.
"""
import argparse
import collections
import contextlib
import http.client
import json
import pathlib
import random
import statistics
import struct
import sys
import tempfile
import threading
import time

from noisy_attacks import ATTACKER, ROOT, Daemon, post
from noisy_neighbor import ADDRESSES, STEP_MS, quantile

sys.path.insert(0, str(ROOT / "tests/e2e"))
import tiny_encoders  # noqa: E402

ENCODER = "encoder"
# The layers of bge-m3, with a small vocabulary: a letter is a token.
HIDDEN, WIDE, LAYERS, HEADS, CONTEXT = 1024, 4096, 24, 16, 8192
FOLDER = tempfile.TemporaryDirectory(prefix="quire-encoder-")


def random_halves(draw, count):
    """Floats of 16 bits whose size is between 1/64 and 1/32."""
    raw = bytearray(draw.randbytes(2 * count))
    raw[1::2] = raw[1::2].translate(bytes((byte & 0x83) | 0x24 for byte in range(256)))
    return bytes(raw)


def shapes():
    """Name and shape of each tensor of a BertModel."""
    yield "embeddings.word_embeddings.weight", (len(tiny_encoders.VOCABULARY), HIDDEN)
    yield "embeddings.position_embeddings.weight", (CONTEXT, HIDDEN)
    yield "embeddings.token_type_embeddings.weight", (2, HIDDEN)
    norms = ["embeddings.LayerNorm"]
    for layer in range(LAYERS):
        at = f"encoder.layer.{layer}."
        for name, out, into in (("attention.self.query", HIDDEN, HIDDEN), ("attention.self.key", HIDDEN, HIDDEN),
                                ("attention.self.value", HIDDEN, HIDDEN), ("attention.output.dense", HIDDEN, HIDDEN),
                                ("intermediate.dense", WIDE, HIDDEN), ("output.dense", HIDDEN, WIDE)):
            yield f"{at}{name}.weight", (out, into)
            yield f"{at}{name}.bias", (out,)
        norms += [at + "attention.output.LayerNorm", at + "output.LayerNorm"]
    for norm in norms:
        yield norm + ".weight", (HIDDEN,)
        yield norm + ".bias", (HIDDEN,)


def write_encoder():
    """The folder of a checkpoint with random weights; written once."""
    folder = pathlib.Path(FOLDER.name) / "model"
    if folder.exists():
        return folder
    tiny_encoders.write_bert(folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": WIDE,
               "max_position_embeddings": CONTEXT, "torch_dtype": "float16"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "1_Pooling/config.json").write_text(json.dumps({"word_embedding_dimension": HIDDEN, "pooling_mode_mean_tokens": True}))
    header, at = {}, 0
    sizes = {name: (shape, struct.calcsize("e") * shape[0] * (shape[1] if len(shape) > 1 else 1)) for name, shape in shapes()}
    for name, (shape, size) in sizes.items():
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    draw = random.Random(1)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, (shape, size) in sizes.items():
            ones = name.endswith("LayerNorm.weight")
            file.write(struct.pack("<e", 1) * (size // 2) if ones else random_halves(draw, size // 2))
    return folder


def texts(count, tokens):
    """Makes a body with texts that were never sent before: a vector that is known is not computed again."""
    def make():
        words = (random.choices(tiny_encoders.LETTERS[:26], k=tokens - 2) for _ in range(count))
        return {"model": ENCODER, "input": [" ".join(word) for word in words]}
    return make


ATTACKS = {
    "long_text": post("/api/embed", texts(1, CONTEXT), ATTACKER),
    "medium_texts": post("/api/embed", texts(8, 1000), ATTACKER),
    "many_texts": post("/api/embed", texts(64, 250), ATTACKER),
}


class InnocentClient:
    def __init__(self, port, address=ATTACKER):
        self.port, self.source = port, (address, 0)
        self.latencies, self.failed, self.vectors = [], collections.Counter(), set()

    def embed(self):
        begin = time.monotonic()
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600, source_address=self.source)
            # A request with keep_alive is computed, though its vector is known.
            connection.request("POST", "/api/embed", json.dumps(
                {"model": ENCODER, "input": "a b c d e f g h", "keep_alive": "5m"}))
            reply = connection.getresponse()
            body = reply.read()
            connection.close()
            if reply.status == 200:
                self.vectors.add(json.dumps(json.loads(body)["embeddings"]))
            else:
                self.failed[reply.status] += 1
        except OSError as error:
            self.failed[type(error).__name__] += 1
        self.latencies.append((time.monotonic() - begin) * 1000)

    def run(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.embed()


def attack_from(daemon, attack, clients, seen, ended):
    threads = [threading.Thread(target=attack, args=(daemon.port, seen, ended), daemon=True) for _ in range(clients)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)


def measure(daemon, attack, arguments, address=ATTACKER):
    """What the innocent saw, and what the attacker got."""
    innocent, seen, ended = InnocentClient(daemon.port, address), collections.Counter(), threading.Event()
    innocent.embed()  # loads the model
    innocent.latencies.clear()
    if attack:
        attack_from(daemon, attack, arguments.clients, seen, ended)
    innocent.run(arguments.seconds)
    ended.set()
    return innocent, seen


def measure_alone(daemon, tokens, count):
    InnocentClient(daemon.port).embed()
    times = []
    for _ in range(count):
        connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=3600)
        body = json.dumps(texts(1, tokens)())
        begin = time.monotonic()
        connection.request("POST", "/api/embed", body)
        reply = connection.getresponse()
        assert reply.status == 200, reply.read()
        reply.read()
        times.append(time.monotonic() - begin)
        connection.close()
    return times


@contextlib.contextmanager
def serving():
    """A daemon with the encoder; killed at the end, since the attacker's texts may have long to go."""
    daemon = Daemon().start()
    try:
        tiny_encoders.create(daemon, ENCODER, write_encoder())
        yield daemon
    finally:
        daemon.process.kill()
        daemon.process.wait()
        daemon.folder.cleanup()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", choices=[*ATTACKS, "alone", []])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--clients", type=int, default=1, help="threads of the attacker")
    parser.add_argument("--addresses", choices=[*ADDRESSES, "both"], default="both", help="of attacker and innocent together")
    arguments = parser.parse_args()
    attacks = arguments.attacks or list(ATTACKS)
    if "alone" in attacks:
        attacks.remove("alone")
        with serving() as daemon:
            for tokens in (CONTEXT // 4, CONTEXT):
                print(f"{tokens} tokens alone: {' '.join(f'{one:.2f}' for one in measure_alone(daemon, tokens, 2))} s", flush=True)
    if not attacks:
        return 0
    with serving() as daemon:
        rest, _ = measure(daemon, None, arguments)
    bound = max(1000, 2 * quantile(rest.latencies, 0.99) + STEP_MS)
    print(f"{'attack':20} {'addresses':9} {'texts':>6} {'p50':>8} {'p99':>8} {'max':>8} {'failed':>7}  bound  the attacker got")

    def row(name, addresses, innocent, seen):
        p99 = quantile(innocent.latencies, 0.99)
        held = p99 <= bound and not innocent.failed and innocent.vectors == rest.vectors
        print(f"{name:20} {addresses:9} {len(innocent.latencies):6} {statistics.median(innocent.latencies):8.0f} {p99:8.0f} "
              f"{max(innocent.latencies):8.0f} {sum(innocent.failed.values()):7}  {'held' if held else 'BROKEN':6} {dict(seen)}", flush=True)
        return held

    held = [row("(none)", "", rest, {})]
    for name in attacks:
        for addresses, address in ADDRESSES.items():
            if arguments.addresses in (addresses, "both"):
                with serving() as daemon:
                    held.append(row(name, addresses, *measure(daemon, ATTACKS[name], arguments, address)))
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
