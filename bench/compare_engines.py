#!/usr/bin/env python3
"""Prefill and decode of Quire and of other engines on the same files, in turns, without a server.

  bench/compare_engines.py lfm2-350m-Q8_0.gguf --peer 'llama=llama-bench' \\
      --peer 'ik=ik_llama.cpp/build/bin/llama-bench -rtr 1' [--batched 'llama=llama-batched-bench']

A peer is a name and the command of a llama-bench that prints `-o json` (llama.cpp's and ik_llama.cpp's do);
`--batched` names the llama-batched-bench of a peer, for more than one sequence. Every round runs each engine once for
each figure, so that other work on the machine meets all of them; a figure that an engine cannot measure is left out.
Prints one JSON line per model, figure and engine: the samples in tokens/s, their median, and for peers the ratio of
Quire's median to theirs with the least and the greatest ratio of a round. --target limits Quire's instruction
set (quire-bench --help); the peers' is what they were built for.
"""
import argparse
import json
import pathlib
import shlex
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]


def run(command):
    """The output of a command; None if it fails, with the reason on stderr."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    except OSError as error:
        print(f"{command[0]}: {error}", file=sys.stderr)
        return None
    if done.returncode != 0:
        print(f"{shlex.join(command)}: exit status {done.returncode}\n{done.stderr[-500:]}", file=sys.stderr)
        return None
    return done.stdout


def quire_speed(binary, target, model, figure, threads):
    kind, tokens, sequences, depth = figure
    command = [binary, "-m", model, "-t", str(threads), "-r", "1", "-b", str(sequences), "-d", str(depth),
               "-p", str(tokens if kind == "prefill" else 0), "-n", str(tokens if kind == "decode" else 0),
               "-o", "jsonl"]
    output = run(command + (["--target", target] if target else []))
    return json.loads(output.splitlines()[-1])["avg_ts"] if output else None


def llama_bench_speed(command, model, figure, threads):
    kind, tokens, sequences, depth = figure
    if sequences != 1:
        return None
    sizes = ["-p", str(tokens), "-n", "0"] if kind == "prefill" else ["-p", "0", "-n", str(tokens)]
    behind = ["-d", str(depth)] if depth else []
    output = run([*command, "-m", model, *sizes, *behind, "-t", str(threads), "-r", "1", "-o", "json"])
    if output is None:
        return None
    lines = output.splitlines()
    # Some builds print other lines before the array.
    begin = next((i for i, line in enumerate(lines) if line.startswith("[")), len(lines))
    rows = json.loads("\n".join(lines[begin:]) or "[]")
    return rows[-1]["avg_ts"] if rows else None


def batched_bench_speed(command, model, figure, threads):
    kind, tokens, sequences, depth = figure
    if kind != "decode" or sequences == 1:
        return None
    prompt = max(depth, 16)
    output = run([*command, "-m", model, "-npp", str(prompt), "-ntg", str(tokens), "-npl", str(sequences),
                  "-c", str((prompt + tokens) * sequences), "-t", str(threads), "--output-format", "jsonl"])
    rows = [json.loads(line) for line in (output or "").splitlines() if line.startswith("{")]
    return rows[-1]["speed_tg"] if rows else None


def figures(options):
    for depth in options.depth:
        for tokens in options.prefill:
            yield ("prefill", tokens, 1, depth)
        for sequences in options.sequences:
            yield ("decode", options.decode, sequences, depth)


def engines(options):
    """Name -> function (model, figure) -> tokens/s or None; Quire's is the first."""
    measures = {"quire": lambda model, figure: quire_speed(options.quire, options.target, model, figure,
                                                           options.threads)}
    peers = dict(peer.split("=", 1) for peer in options.peer)
    batched = dict(peer.split("=", 1) for peer in options.batched)
    for name in [*peers, *(set(batched) - set(peers))]:
        def measure(model, figure, one=peers.get(name), many=batched.get(name)):
            if figure[2] == 1:
                return llama_bench_speed(shlex.split(one), model, figure, options.threads) if one else None
            return batched_bench_speed(shlex.split(many), model, figure, options.threads) if many else None
        measures[name] = measure
    return measures


def report(model, figure, samples):
    """The lines of one figure; `samples` holds a list of rounds per engine, None where a round failed."""
    kind, tokens, sequences, depth = figure
    base = [speed for speed in samples["quire"] if speed]
    for name, rounds in samples.items():
        speeds = [speed for speed in rounds if speed]
        if not speeds:
            continue
        line = {"model": pathlib.Path(model).name, "figure": kind, "tokens": tokens, "sequences": sequences,
                "depth": depth, "engine": name, "samples": speeds, "median": round(statistics.median(speeds), 2)}
        if name != "quire" and base:
            pairs = [ours / theirs for ours, theirs in zip(samples["quire"], rounds) if ours and theirs]
            line["ratio"] = round(statistics.median(base) / statistics.median(speeds), 3)
            if pairs:
                line["ratio_min"], line["ratio_max"] = round(min(pairs), 3), round(max(pairs), 3)
        print(json.dumps(line), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = {"type": lambda text: [int(part) for part in text.split(",")]}
    parser.add_argument("models", nargs="+", metavar="MODEL.gguf")
    parser.add_argument("--quire", default=str(ROOT / "build/release/bin/quire-bench"), help="quire-bench")
    parser.add_argument("--target", help="highest instruction set of Quire's int8 products")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--batched", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-p", "--prefill", default=[512], **numbers, help="prompt tokens")
    parser.add_argument("-n", "--decode", type=int, default=64, help="tokens to decode per sequence")
    parser.add_argument("-b", "--sequences", default=[1, 16], **numbers)
    parser.add_argument("-d", "--depth", default=[0], **numbers, help="tokens that are in the context before")
    options = parser.parse_args()
    measures = engines(options)
    for model in options.models:
        for figure in figures(options):
            samples = {name: [] for name in measures}
            for turn in range(options.rounds):
                # Every other round backwards: no engine always runs behind the same one.
                for name in list(measures)[::1 if turn % 2 == 0 else -1]:
                    samples[name].append(measures[name](model, figure))
            report(model, figure, samples)


if __name__ == "__main__":
    main()
