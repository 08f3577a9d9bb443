#!/usr/bin/env python3
"""Does speculative decoding ever cost more than it brings? Tokens per second with and without it, in turns.

  bench/speculation_cost.py MODEL.gguf ... [--rounds 8] [--answer 300] [--streams 1] [--bound 0.98]

For each model (files of hybrid families: bench/hybrid_models.py) and each kind of text, a round asks for one answer with
drafts and two without, in an order of its own. The rate is that behind the first token; a ratio is that to the mean of the two,
and the two beside each other say what the machine's noise is. Texts: greedy, sampled
at temperature 1, which hardly repeats, and of four tokens alone, of which many drafts are accepted. Prints the median, least
and greatest ratio of a round and how many drafts were accepted; fails where a median is below --bound, or a text differs.
The machine must be idle, and --rounds enough: the spread of the ratios says what a median is worth.
"""
import argparse
import http.client
import json
import random
import statistics
import sys
import threading
import time

from compare_servers import ROOT
from engine_figures import server, words

TEXTS = {"greedy": {"temperature": 0}, "sampled": {"temperature": 1}, "of 4 tokens": {"temperature": 1, "tokens": 4}}


def answer(port, content, tokens, options):
    """The text, its rate behind the first token, and what became of its drafts."""
    body = {"model": "bench", "messages": [{"role": "user", "content": content}], "max_tokens": tokens, "ignore_eos": True,
            "stream": True, "stream_options": {"include_usage": True}} | options
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1200)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    reply = connection.getresponse()
    if reply.status != 200:
        raise RuntimeError(reply.read().decode())
    text, first, last, usage = "", None, None, {}
    for line in reply:
        if not line.startswith(b"data: {"):
            continue
        frame = json.loads(line[6:])
        usage = frame.get("usage") or usage
        for choice in frame["choices"]:
            if piece := choice["delta"].get("content"):
                last = time.perf_counter()
                first = first or last
                text += piece
    connection.close()
    details = usage.get("completion_tokens_details", {})
    return {"text": text, "rate": (usage["completion_tokens"] - 1) / (last - first),
            "accepted": details.get("accepted_prediction_tokens", 0), "rejected": details.get("rejected_prediction_tokens", 0)}


def together(a, port, content, options):
    done = [None] * a.streams

    def one(i):
        done[i] = answer(port, content + words(f"stream{i}", 8), a.answer, options)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(a.streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return done


def measure(a, port, name):
    """The ratios of the rounds, with drafts to without, and without to without; whether all texts were equal; the share of accepted drafts."""
    ratios, noise, same, accepted, drafts = [], [], True, 0, 0
    for round_ in range(-1, a.rounds):  # the first one warms up
        rng = random.Random(round_)
        options = dict(TEXTS[name], seed=1000 + round_)
        if tokens := options.pop("tokens", 0):
            options["logit_bias"] = {str(rng.randrange(1000, 4000)): 100 for _ in range(tokens)}
        kinds = [("without", {"draft_num_predict": 0}), ("again", {"draft_num_predict": 0}), ("with", {})]
        rng.shuffle(kinds)
        found = {kind: together(a, port, words(f"cost{round_}", 40), options | more) for kind, more in kinds}
        same = same and [d["text"] for d in found["with"]] == [d["text"] for d in found["without"]]
        accepted += sum(d["accepted"] for d in found["with"])
        drafts += sum(d["accepted"] + d["rejected"] for d in found["with"])
        if round_ >= 0:
            rate = {kind: sum(d["rate"] for d in answers) for kind, answers in found.items()}
            ratios.append(rate["with"] / (rate["without"] * rate["again"]) ** 0.5)
            noise.append(rate["without"] / rate["again"])
    return ratios, noise, same, accepted / max(1, drafts)


def main():
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("models", nargs="+", metavar="MODEL.gguf")
    parser.add_argument("--bin", default=str(ROOT / "build/release/bin"))
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--answer", type=int, default=300, help="tokens of an answer")
    parser.add_argument("--streams", type=int, default=1, help="concurrent streams")
    parser.add_argument("--bound", type=float, default=0.98, help="least median ratio")
    a = parser.parse_args()
    failed = False
    print("| model | text | ratio: median | min | max | without twice | drafts accepted | texts |\n|" + " --- |" * 8)
    for model in a.models:
        with server(argparse.Namespace(gguf=model, draft=None, bin=a.bin)) as it:
            for name in TEXTS:
                ratios, noise, same, accepted = measure(a, it.port, name)
                median = statistics.median(ratios)
                failed = failed or median < a.bound or not same
                print(f"| {model.rsplit('/', 1)[-1]} | {name} | {median:.3f} | {min(ratios):.3f} | {max(ratios):.3f} | "
                      f"{statistics.median(noise):.3f} | "
                      f"{100 * accepted:.0f} % | {'equal' if same else 'DIFFER'} |", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
