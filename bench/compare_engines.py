#!/usr/bin/env python3
"""Prefill and decode of Quire and of other engines on the same files, in turns, without a server.

  bench/compare_engines.py lfm2-350m-Q8_0.gguf --peer 'llama=llama-bench' \\
      --peer 'ik=ik_llama.cpp/build/bin/llama-bench -rtr 1' [--batched 'llama=llama-batched-bench']

A peer is a name and the command of a llama-bench that prints `-o json` (llama.cpp's and ik_llama.cpp's do);
`--batched` names the llama-batched-bench of a peer, for more than one sequence. Every round runs each engine once for
each figure, so that other work on the machine meets all of them; a figure that an engine has no program for is left out.
Prints a JSON line that names the machine, then one per model, figure and engine: the samples in tokens/s, their median,
and for peers the median ratio of Quire's speed to theirs with the least and the greatest, of the rounds in which both
succeeded. `failed` counts the runs that gave no speed; the reasons are on stderr, and the exit status is then 1. --target
limits Quire's instruction set (quire-bench --help); the peers' is what they were built for.
"""
import argparse
import datetime
import json
import os
import pathlib
import shlex
import signal
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]


def run(command, seconds):
    """The output of a command; None if it fails or takes longer, with the reason on stderr."""
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, errors="replace", start_new_session=True)
    except OSError as error:
        print(f"{command[0]}: {error}", file=sys.stderr)
        return None
    try:
        output, errors = process.communicate(timeout=seconds)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)  # and what a wrapper started
        process.communicate()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        print(f"{command[0]}: {error}", file=sys.stderr)
        return None
    if process.returncode != 0:
        print(f"{shlex.join(command)}: exit status {process.returncode}\n{errors[-500:]}", file=sys.stderr)
        return None
    return output


def speed_in(output, key):
    """The last number `key` of the JSON in the output, which other lines may surround; None without one, with the reason
    on stderr."""
    if output is None:
        return None
    decoder = json.JSONDecoder()
    speed, at = None, 0
    for line in output.splitlines(keepends=True):
        begin, at = at, at + len(line)
        if not line.startswith(("[", "{")):
            continue
        try:
            rows = decoder.raw_decode(output, begin)[0]
        except ValueError:
            continue
        for row in rows if isinstance(rows, list) else [rows]:
            if isinstance(row, dict) and isinstance(row.get(key), (int, float)) and row[key] > 0:
                speed = row[key]
    if speed is None:
        print(f"no \"{key}\" in: {output[-500:]}", file=sys.stderr)
    return speed


def quire_speed(options, model, figure):
    kind, tokens, sequences, depth = figure
    command = [options.quire, "-m", model, "-t", str(options.threads), "-r", "1", "-b", str(sequences), "-d", str(depth),
               "-p", str(tokens if kind == "prefill" else 0), "-n", str(tokens if kind == "decode" else 0),
               "-o", "jsonl"]
    return speed_in(run(command + (["--target", options.target] if options.target else []), options.timeout), "avg_ts")


def llama_bench_speed(command, options, model, figure):
    kind, tokens, _, depth = figure
    sizes = ["-p", str(tokens), "-n", "0"] if kind == "prefill" else ["-p", "0", "-n", str(tokens)]
    behind = ["-d", str(depth)] if depth else []
    command = [*command, "-m", model, *sizes, *behind, "-t", str(options.threads), "-r", "1", "-o", "json"]
    return speed_in(run(command, options.timeout), "avg_ts")


def batched_bench_speed(command, options, model, figure):
    _, tokens, sequences, depth = figure
    prompt = max(depth, 16)
    command = [*command, "-m", model, "-npp", str(prompt), "-ntg", str(tokens), "-npl", str(sequences),
               "-c", str((prompt + tokens) * sequences), "-t", str(options.threads), "--output-format", "jsonl"]
    return speed_in(run(command, options.timeout), "speed_tg")


def figures(options):
    for depth in options.depth:
        for tokens in options.prefill:
            yield ("prefill", tokens, 1, depth)
        for sequences in options.sequences:
            yield ("decode", options.decode, sequences, depth)


def engines(options):
    """Name -> function of a figure -> function (model, figure) -> tokens/s or None where it failed; None for a figure
    that the engine has no program for. Quire's is the first."""
    measures = {"quire": lambda figure: lambda model, figure: quire_speed(options, model, figure)}
    peers, batched = dict(options.peer), dict(options.batched)
    for name in [*peers, *(name for name in batched if name not in peers)]:
        def measure(figure, one=peers.get(name), many=batched.get(name)):
            command, speed = (one, llama_bench_speed) if figure[2] == 1 else (many, batched_bench_speed)
            return command and (lambda model, figure: speed(command, options, model, figure))
        measures[name] = measure
    return measures


def report(model, figure, samples):
    """Prints the lines of one figure; `samples` holds a list of rounds per engine, None where a round failed. Returns the
    number of failures."""
    kind, tokens, sequences, depth = figure
    failures = 0
    for name, rounds in samples.items():
        speeds = [speed for speed in rounds if speed]
        line = {"model": pathlib.Path(model).name, "figure": kind, "tokens": tokens, "sequences": sequences,
                "depth": depth, "engine": name, "samples": speeds}
        if speeds:
            line["median"] = round(statistics.median(speeds), 2)
        if len(speeds) < len(rounds):
            line["failed"] = len(rounds) - len(speeds)
            failures += line["failed"]
        pairs = [ours / theirs for ours, theirs in zip(samples["quire"], rounds) if ours and theirs]
        if name != "quire" and pairs:
            line["ratio"] = round(statistics.median(pairs), 3)
            line["ratio_min"], line["ratio_max"] = round(min(pairs), 3), round(max(pairs), 3)
        print(json.dumps(line), flush=True)
    return failures


def machine_line(options):
    """What the figures were measured on."""
    try:
        cpuinfo = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        cpuinfo = []
    about = dict(line.split(":", 1) for line in reversed(cpuinfo) if ":" in line)
    about = {key.strip(): value.strip() for key, value in about.items()}
    known = ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "asimddp", "i8mm")
    flags = about.get("flags", about.get("Features", "")).split()
    return {"machine": about.get("model name", "unknown"), "family": about.get("cpu family"), "cpu_model": about.get("model"),
            "instructions": [flag for flag in known if flag in flags], "target": options.target or "best",
            "threads": options.threads, "rounds": options.rounds, "date": datetime.date.today().isoformat()}


def named_command(text):
    name, equals, command = text.partition("=")
    if not name or name == "quire" or not equals or not shlex.split(command):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=COMMAND")
    return name, shlex.split(command)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = {"type": lambda text: [int(part) for part in text.split(",")]}
    parser.add_argument("models", nargs="+", metavar="MODEL.gguf")
    parser.add_argument("--quire", default=str(ROOT / "build/release/bin/quire-bench"), help="quire-bench")
    parser.add_argument("--target", help="highest instruction set of Quire's int8 products")
    commands = {"action": "append", "type": named_command, "default": [], "metavar": "NAME=COMMAND"}
    parser.add_argument("--peer", **commands, help="a llama-bench")
    parser.add_argument("--batched", **commands, help="a llama-batched-bench")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=1800, help="seconds of one run, after which it has failed")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-p", "--prefill", default=[512], **numbers, help="prompt tokens")
    parser.add_argument("-n", "--decode", type=int, default=64, help="tokens to decode per sequence")
    parser.add_argument("-b", "--sequences", default=[1, 16], **numbers)
    parser.add_argument("-d", "--depth", default=[0], **numbers, help="tokens that are in the context before")
    options = parser.parse_args()
    print(json.dumps(machine_line(options)), flush=True)
    failures, chooses = 0, engines(options)
    for model in options.models:
        for figure in figures(options):
            measures = {name: measure for name, choose in chooses.items() if (measure := choose(figure))}
            samples = {name: [] for name in measures}
            for turn in range(options.rounds):
                # Every other round backwards: no engine always runs behind the same one.
                for name in list(measures)[::1 if turn % 2 == 0 else -1]:
                    samples[name].append(measures[name](model, figure))
            failures += report(model, figure, samples)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
