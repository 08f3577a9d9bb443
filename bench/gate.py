#!/usr/bin/env python3
"""Is this build slower than another one? Five figures of both daemons, in turns. Exit 1 if the median ratio of the pairs is below
--bound for one of them, and again when that one is measured once more.

  bench/gate.py BASE_BIN NEW_BIN          folders with quired, quire-runner and quire

Prefill, decode, decode of 16 sequences, what a returning request costs until its first token, and constrained decode. Each is
work per second of CPU time of the daemon and its runner, which computes on one thread, so that other work on the machine counts
little. A wait that computes nothing is not seen. In each of the --pairs both daemons are started and take turns (A B B A B A A B,
in the next pair the other begins); the ratio is that of their medians. The model is a Llama with random weights, which this script
writes.
"""
import argparse
import contextlib
import http.client
import json
import os
import pathlib
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

from compare_servers import ROOT, free_port, serving

DEMO = ROOT / "packaging/models/quire-demo"  # its tokenizer is the model's
HIDDEN, WIDE, LAYERS, HEADS, KV_HEADS, VOCABULARY = 512, 1536, 8, 8, 4, 4096
PROMPT_WORDS, ANSWER, SEQUENCES, SEQUENCE_ANSWER, HITS, CONSTRAINED_ANSWER = 192, 256, 16, 24, 12, 192
TURNS = (0, 1, 1, 0, 1, 0, 0, 1)
SYLLABLES = [c + v for c in "bdfghjklmnprstv" for v in "aeiou"]
LIST = {"type": "array", "minItems": 64, "items": {"type": "object", "properties": {
    "name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
    "role": {"enum": ["developer", "operator", "reader"]}}, "required": ["name", "age", "role"],
    "additionalProperties": False}}


def write_model(folder):
    """A checkpoint of bfloat16 weights of 0.008 to 0.03 with either sign."""
    source, sign = random.Random(7), bytes(0x3C if byte < 128 else 0xBC for byte in range(256))

    def matrix(height, width):
        raw = bytearray(source.randbytes(2 * height * width))
        raw[1::2] = raw[1::2].translate(sign)
        return [height, width], bytes(raw)

    ones = [HIDDEN], struct.pack("<H", 0x3F80) * HIDDEN
    tensors = {"model.embed_tokens.weight": matrix(VOCABULARY, HIDDEN), "lm_head.weight": matrix(VOCABULARY, HIDDEN),
               "model.norm.weight": ones}
    for i in range(LAYERS):
        key = f"model.layers.{i}."
        tensors |= {key + "input_layernorm.weight": ones, key + "post_attention_layernorm.weight": ones}
        tensors |= {f"{key}self_attn.{name}_proj.weight": matrix(HIDDEN, HIDDEN) for name in "qo"}
        tensors |= {f"{key}self_attn.{name}_proj.weight": matrix(HIDDEN // HEADS * KV_HEADS, HIDDEN) for name in "kv"}
        tensors |= {f"{key}mlp.{name}_proj.weight": matrix(WIDE, HIDDEN) for name in ("gate", "up")}
        tensors[key + "mlp.down_proj.weight"] = matrix(HIDDEN, WIDE)
    header, payload = {}, bytearray()
    for name, (shape, raw) in tensors.items():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [len(payload), len(payload) + len(raw)]}
        payload += raw
    text = json.dumps(header).encode()
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + payload)
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": WIDE,
        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
        "vocab_size": VOCABULARY, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "hidden_act": "silu",
        "rope_theta": 10000.0, "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 7}))
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (folder / name).write_bytes((DEMO / name).read_bytes())


def words(seed, count):
    source = random.Random(seed)
    return " ".join(source.choice(SYLLABLES) + source.choice(SYLLABLES) for _ in range(count))


class Daemon:
    """One build's daemon with the model loaded."""

    def __init__(self, binaries, model, stack):
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="quire-gate-"))
        self.port = free_port()
        environment = {"HOME": folder, "OLLAMA_HOST": f"127.0.0.1:{self.port}", "OLLAMA_MODELS": f"{folder}/models",
                       "OLLAMA_KEEP_ALIVE": "-1", "QUIRE_SNAPSHOT_BYTES": "0", "QUIRE_THREADS": "1",
                       "QUIRE_QUANTIZE_ON_LOAD": "q8_0"}
        process = stack.enter_context(serving([str(binaries / "quired")], self.port, environment))
        modelfile = pathlib.Path(folder, "Modelfile")
        modelfile.write_text(f"FROM {model}\n")
        subprocess.run([binaries / "quire", "create", "gate", "-f", modelfile], env=os.environ | environment,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        self.processes = [process.pid]
        self.ask("warm", 4)
        self.processes += map(int, pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
        self.ask("warm", 4, format=LIST)

    def ask(self, content, tokens, **fields):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        body = {"model": "gate", "stream": False, "messages": [{"role": "user", "content": content}],
                "options": {"num_predict": tokens, "temperature": 1, "seed": 1, "ignore_eos": True, "draft_num_predict": 0}}
        connection.request("POST", "/api/chat", json.dumps(body | fields), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        if answer.status != 200:
            raise RuntimeError(text.decode())
        return json.loads(text)

    def cpu_seconds(self):
        return sum(time.clock_gettime((~pid << 3) | 2) for pid in self.processes)  # what clock_getcpuclockid() gives

    def per_second(self, work):
        """What work() counts per second of CPU time."""
        begin = self.cpu_seconds()
        count = work()
        return count / (self.cpu_seconds() - begin)


# Each prompt is new, except for what a hit finds; decode figures have short ones.

def prefill(daemon, seed):
    def work():
        reply = daemon.ask(words(seed, PROMPT_WORDS), 1)
        return reply["prompt_eval_count"]
    return daemon.per_second(work)


def decode(daemon, seed):
    return daemon.per_second(lambda: daemon.ask(words(seed, 4), ANSWER)["eval_count"])


def sixteen(daemon, seed):
    def work():
        counts = [0] * SEQUENCES

        def one(i):
            counts[i] = daemon.ask(words(f"{seed} {i}", 4), SEQUENCE_ANSWER)["eval_count"]
        threads = [threading.Thread(target=one, args=(i,)) for i in range(SEQUENCES)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(counts)
    return daemon.per_second(work)


def hit(daemon, seed):
    text = words(seed, PROMPT_WORDS)
    daemon.ask(text, 1)

    def work():
        for i in range(HITS):
            daemon.ask(f"{text} {words(i, 2)}", 1)
        return HITS
    return daemon.per_second(work)


def constrained(daemon, seed):
    return daemon.per_second(lambda: daemon.ask(words(seed, 4), CONSTRAINED_ANSWER, format=LIST)["eval_count"])


FIGURES = {"prefill": (prefill, "tokens"), "decode": (decode, "tokens"), "16 sequences": (sixteen, "tokens"),
           "first token of a hit": (hit, "requests"), "constrained decode": (constrained, "tokens")}


def compare(binaries, model, number, measured):
    """Adds the ratio of the two builds, the second by the first, to each figure."""
    with contextlib.ExitStack() as stack:
        daemons = [Daemon(folder, model, stack) for folder in binaries]
        first = number % 2
        for name in measured:
            figure, unit = FIGURES[name]
            rates = [[], []]
            for turn, which in enumerate(TURNS):
                rates[which ^ first].append(figure(daemons[which ^ first], f"{name} {number} {turn // 2}"))
            base, new = (statistics.median(rate) for rate in rates)
            measured[name].append(new / base)
            print(f"pair {number + 1}: {name}: {base:.1f} and {new:.1f} {unit} per second, ratio {new / base:.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("base", type=pathlib.Path)
    parser.add_argument("new", type=pathlib.Path)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--bound", type=float, default=0.93)
    a = parser.parse_args()
    slow = list(FIGURES)
    with tempfile.TemporaryDirectory(prefix="quire-gate-") as folder:
        model = pathlib.Path(folder, "model")
        write_model(model)
        for _ in range(2):
            measured = {name: [] for name in slow}
            for number in range(a.pairs):
                compare([a.base.resolve(), a.new.resolve()], model, number, measured)
            medians = {name: statistics.median(ratios) for name, ratios in measured.items()}
            for name, median in medians.items():
                print(f"{name}: median ratio {median:.3f}{'' if median >= a.bound else f', below {a.bound}'}", flush=True)
            slow = [name for name, median in medians.items() if median < a.bound]
            if not slow:
                return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
