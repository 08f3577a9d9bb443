#!/usr/bin/env python3
"""Figures of the engine over HTTP on one GGUF whose words are tokens (peers' make_models.py writes such files).

  bench/engine_figures.py MODEL.gguf interference   a long prompt among four streams: its cost, and their gaps
  bench/engine_figures.py MODEL.gguf history        time to first token of a returning request, by its history
  bench/engine_figures.py MODEL.gguf overhead       CPU time of the daemon and of the runner's link per streamed token
  bench/engine_figures.py MODEL.gguf cold           requests that share nothing, with the prefix cache and without
  bench/engine_figures.py MODEL.gguf constrained    tokens per second of answers constrained by a JSON Schema and of free ones
  bench/engine_figures.py MODEL.gguf speculation    tokens per second with and without speculative decoding, of repetitive
                                                    and other texts; --draft DRAFT.gguf: with a draft model

Medians over --repeat runs; every run is printed. Prompts differ from run to run, so that nothing is reused by chance.
"""
import argparse
import contextlib
import http.client
import json
import pathlib
import random
import statistics
import sys
import tempfile
import threading
import time
import urllib.request

from compare_servers import ROOT, free_port, make_store, serving

SYLLABLES = [c + v for c in "bdfghjklmnprstvzcqxw" for v in "aeiou"]


def words(seed, count):
    rng = random.Random(seed)
    return "".join(" " + rng.choice(SYLLABLES) + rng.choice(SYLLABLES) for _ in range(count))


class Server:
    def __init__(self, port):
        self.port = port

    def stream(self, messages, tokens):
        """Yields when each piece of the answer came; returns the last frame."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        body = {"model": "bench", "messages": messages, "options": {"num_predict": tokens, "temperature": 0}}
        connection.request("POST", "/api/chat", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(answer.read().decode())
        frame = {}
        for line in answer:
            frame = json.loads(line)
            if not frame["done"]:
                yield time.perf_counter(), frame["message"]["content"]
        connection.close()
        self.last = frame

    def ask(self, content, tokens=1, history=()):
        """Seconds to the first token, and the messages with the answer."""
        messages = [*history, {"role": "user", "content": content}]
        begin, first, text = time.perf_counter(), None, ""
        for at, piece in self.stream(messages, tokens):
            first = first or at - begin
            text += piece
        return first, [*messages, {"role": "assistant", "content": text}]


@contextlib.contextmanager
def server(a, **environment):
    with tempfile.TemporaryDirectory(prefix="quire-bench-") as folder:
        store = pathlib.Path(folder) / "models"
        make_store(store, a.gguf, a.draft)
        port = free_port()
        environment = {"OLLAMA_HOST": f"127.0.0.1:{port}", "OLLAMA_MODELS": str(store),
                       "OLLAMA_CONTEXT_LENGTH": "32768", "OLLAMA_KEEP_ALIVE": "-1",
                       "QUIRE_SNAPSHOT_DIR": str(pathlib.Path(folder) / "prefixes")} | environment
        with serving([a.bin + "/quired"], port, environment) as process:
            it = Server(port)
            it.pid = process.pid
            it.ask(" baba")  # loads the model
            yield it


def interference(a):
    with server(a) as it:
        ratios = []
        for run in range(a.repeat):
            alone, _ = it.ask(words(f"alone{run}", a.prompt))
            times, stop = [[] for _ in range(4)], threading.Event()

            def decode(i):
                own = Server(it.port)
                for at, _ in own.stream([{"role": "user", "content": words(f"{run} {i}", 64)}], 4000):
                    times[i].append(at)
                    if stop.is_set():
                        return

            threads = [threading.Thread(target=decode, args=(i,)) for i in range(4)]
            for thread in threads:
                thread.start()
            time.sleep(a.settle)
            begin = time.perf_counter()
            beside, _ = it.ask(words(f"beside{run}", a.prompt))
            end = begin + beside
            stop.set()
            for thread in threads:
                thread.join()
            gaps = [[y - x for x, y in zip(t, t[1:]) if begin <= y and x <= end] for t in times]
            idle = statistics.median([y - x for t in times for x, y in zip(t, t[1:]) if y < begin])
            ratios.append(beside / alone)
            print(f"prompt of {a.prompt}: alone {alone:.3f} s, beside 4 streams {beside:.3f} s, ratio {beside / alone:.3f}; "
                  f"gaps idle {1000 * idle:.0f} ms, largest {1000 * max(max(g) for g in gaps):.0f} ms, "
                  f"decoded meanwhile {sum(len(g) for g in gaps)}", flush=True)
            time.sleep(1)
        print(f"median ratio {statistics.median(ratios):.3f}")


def history(a):
    with server(a, OLLAMA_CONTEXT_LENGTH=str(max(32768, max(a.histories) + 2048))) as it:
        medians = {}
        for tokens in a.histories:
            firsts = []
            for run in range(a.repeat):
                _, messages = it.ask(words(f"history{tokens} {run}", tokens), 16)
                first, _ = it.ask(words(f"again{tokens} {run}", a.new), 1, messages)
                firsts.append(first)
                print(f"history {tokens}: {1000 * first:.0f} ms, {it.last['prompt_eval_count']} prompt tokens, "
                      f"{it.last['prompt_eval_cached_count']} reused", flush=True)
            medians[tokens] = statistics.median(firsts)
        base = medians[a.histories[0]]
        for tokens, value in medians.items():
            print(f"history {tokens}: median {1000 * value:.0f} ms, {value / base:.2f} x")


def cpu_times(pid):
    """Nanoseconds on a processor by thread name."""
    times = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            name = (task / "comm").read_text().strip()
            times[name] = times.get(name, 0) + int((task / "schedstat").read_text().split()[0])
    return times


def overhead(a):
    with server(a) as it:
        def measure(streams, tokens):
            runner = int(pathlib.Path(f"/proc/{it.pid}/task/{it.pid}/children").read_text().split()[0])
            before, runner_before = cpu_times(it.pid), cpu_times(runner)
            counts = [0] * streams

            def take(i):
                own = Server(it.port)
                for _ in own.stream([{"role": "user", "content": f"Tell story {i}."}], tokens):
                    counts[i] += 1

            threads = [threading.Thread(target=take, args=(i,)) for i in range(streams)]
            begin = time.perf_counter()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            took, count = time.perf_counter() - begin, sum(counts)
            daemon = sum(cpu_times(it.pid).values()) - sum(before.values())
            link = cpu_times(runner).get("quire-link", 0) - runner_before.get("quire-link", 0)
            print(f"{streams} streams, {count} pieces in {took:.2f} s: daemon {daemon / count / 1000:.1f} us, "
                  f"runner's link {link / count / 1000:.1f} us, together {(daemon + link) / count / 1000:.1f} us a piece",
                  flush=True)

        for streams in (1, 16):
            for _ in range(a.repeat):
                measure(streams, a.tokens)


def cold(a):
    def run(it, name):
        begin = time.perf_counter()
        threads = [threading.Thread(target=Server(it.port).ask, args=(words(f"{name} {i}", 256), 32)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.perf_counter() - begin

    with server(a) as on, server(a, QUIRE_PREFIX_CACHE="0") as off:
        ratios = []
        for number in range(a.repeat):
            with_cache, without = run(on, f"cold{number}"), run(off, f"cold{number}")
            ratios.append(with_cache / without)
            print(f"with the cache {with_cache:.3f} s, without {without:.3f} s, ratio {ratios[-1]:.3f}", flush=True)
        print(f"median ratio {statistics.median(ratios):.3f}")


# What is asked for often: a list of records. A model of random weights hardly ever ends a string by itself.
RECORDS = {"type": "array", "minItems": 8, "items": {"type": "object", "properties": {
    "name": {"type": "string", "maxLength": 30}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
    "role": {"enum": ["developer", "operator", "reader"]}, "score": {"type": "number"},
    "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}}, "note": {"type": "string", "maxLength": 60}},
    "required": ["name", "age", "role", "score", "tags", "note"], "additionalProperties": False}}


def constrained(a):
    def rate(it, content, seed, **fields):
        """Tokens of --streams answers at once, and the seconds they took from the first token of each."""
        def one(i):
            connection = http.client.HTTPConnection("127.0.0.1", it.port, timeout=600)
            body = {"model": "bench", "stream": False, "messages": [{"role": "user", "content": f"{content} {i}"}],
                    "options": {"num_predict": a.answer, "temperature": 1, "seed": seed + i, "ignore_eos": True}}
            connection.request("POST", "/api/chat", json.dumps(body | fields), {"Content-Type": "application/json"})
            done[i] = json.loads(connection.getresponse().read())
            connection.close()

        done = [None] * a.streams
        threads = [threading.Thread(target=one, args=(i,)) for i in range(a.streams)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(d["eval_count"] / d["eval_duration"] * 1e9 for d in done), sum(d["eval_count"] for d in done)

    with server(a) as it:
        rate(it, "warm", 1, format=RECORDS)
        ratios = []
        for run in range(a.repeat):
            kinds = [("free", {}), ("constrained", {"format": RECORDS})]
            found = {name: rate(it, words(f"constrained{run}", 32), 100 * run, **fields)
                     for name, fields in (kinds if run % 2 == 0 else reversed(kinds))}
            ratios.append(found["constrained"][0] / found["free"][0])
            print(f"free {found['free'][0]:.1f} tokens/s of {found['free'][1]}, constrained {found['constrained'][0]:.1f} of "
                  f"{found['constrained'][1]}, ratio {ratios[-1]:.3f}", flush=True)
        median = statistics.median(ratios)
        print(f"median ratio {median:.3f}")
        if median < a.bound:
            sys.exit(f"constrained answers are slower than --bound {a.bound} of free ones")


def speculation(a):
    """With one allowed token every draft is accepted; with four, many are; at temperature 1 text hardly repeats."""
    texts = {"greedy": {"temperature": 0}, "sampled": {"temperature": 1}, "of 4 tokens": {"temperature": 1, "tokens": 4},
             "of 1 token": {"temperature": 1, "tokens": 1}}

    def answer(it, content, options):
        rng = random.Random(options["seed"])
        bias = {str(rng.randrange(1000, 4000)): 100 for _ in range(options.pop("tokens", 0))}
        body = {"model": "bench", "messages": [{"role": "user", "content": content}], "max_tokens": a.answer,
                "ignore_eos": True, "logit_bias": bias} | options
        connection = http.client.HTTPConnection("127.0.0.1", it.port, timeout=600)
        begin = time.perf_counter()
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        done = json.loads(connection.getresponse().read())
        connection.close()
        details = done["usage"].get("completion_tokens_details", {})
        return {"text": done["choices"][0]["message"], "rate": a.answer / (time.perf_counter() - begin),
                "accepted": details.get("accepted_prediction_tokens", 0), "rejected": details.get("rejected_prediction_tokens", 0)}

    def together(it, run, options):
        done = [None] * a.streams

        def one(i):
            done[i] = answer(it, words(f"draft{run}/{i}", 48), options | {"seed": 1000 * run + i})

        threads = [threading.Thread(target=one, args=(i,)) for i in range(a.streams)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return done

    decoding = 0
    with server(a) as it:
        for name, options in texts.items():
            ratios, kept, made = [], [], []
            for run in range(a.repeat):
                kinds = [("without", {"draft_num_predict": 0}), ("with", {})]
                found = {kind: together(it, run, options | more)
                         for kind, more in (kinds if run % 2 == 0 else reversed(kinds))}
                rates = {kind: sum(d["rate"] for d in done) for kind, done in found.items()}
                same = all(x["text"] == y["text"] for x, y in zip(*found.values()))
                accepted, rejected = (sum(d[which] for d in found["with"]) for which in ("accepted", "rejected"))
                ratios.append(rates["with"] / rates["without"])
                decoding += a.answer * a.streams / rates["with"]
                steps = a.answer * a.streams - accepted
                kept.append(accepted / steps)
                made.append((accepted + rejected) / steps)
                print(f"{name}: {rates['without']:.1f} tokens/s, with drafts {rates['with']:.1f}, ratio {ratios[-1]:.3f}; "
                      f"{accepted} of {accepted + rejected} accepted; {'same text' if same else 'ANOTHER TEXT'}", flush=True)
            print(f"{name}: median ratio {statistics.median(ratios):.3f}; a step {statistics.median(made):.2f} draft tokens, "
                  f"{statistics.median(kept):.2f} of them accepted")
        with urllib.request.urlopen(f"http://127.0.0.1:{it.port}/metrics") as metrics:
            seconds = [float(line.split()[-1]) for line in metrics.read().decode().splitlines()
                       if line.startswith("quire_spec_rollback_seconds_total{")]
        print(f"rollback of rejected drafts took {100 * sum(seconds) / decoding:.2f} % of decoding time")


def main():
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("gguf")
    parser.add_argument("figure", choices=["interference", "history", "overhead", "cold", "constrained", "speculation"])
    parser.add_argument("--draft", help="GGUF file of the draft model")
    parser.add_argument("--bin", default=str(ROOT / "build/release/bin"))
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--prompt", type=int, default=4000, help="length of the long prompt in tokens")
    parser.add_argument("--settle", type=float, default=4, help="seconds the four streams decode alone")
    parser.add_argument("--histories", type=int, nargs="+", default=[1000, 4000, 16000])
    parser.add_argument("--new", type=int, default=32, help="length of the follow-up message in tokens")
    parser.add_argument("--answer", type=int, default=200, help="output tokens per answer, unconstrained or constrained")
    parser.add_argument("--bound", type=float, default=0.95, help="constrained: least median ratio, or exit status 1")
    parser.add_argument("--streams", type=int, default=1, help="concurrent streams")
    parser.add_argument("--tokens", type=int, default=1000, help="output tokens per answer in the overhead test")
    a = parser.parse_args()
    globals()[a.figure](a)


if __name__ == "__main__":
    main()
