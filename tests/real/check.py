#!/usr/bin/env python3
"""Compares a served model with a float32 reference: token ids, log-probabilities, greedy answers.

check.py URL MODEL REFERENCE.json [--kl MEAN] [--gap LOGPROB]

Works with Quire and with llama-server (POST /tokenize and /completion). Exit status 0: every text has the reference's
ids, the mean KL divergence (over the 20 likeliest tokens and the rest as one) is at most MEAN (default 0.004), and greedy answers
are equal up to the first token whose margin in the reference is below LOGPROB (default 0.3).
"""
import argparse
import json
import math
import sys
import urllib.request

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("url")
p.add_argument("model")
p.add_argument("reference")
p.add_argument("--kl", type=float, default=0.004)
p.add_argument("--gap", type=float, default=0.3)
a = p.parse_args()
ref = json.load(open(a.reference))


def post(path, **body):
    r = urllib.request.Request(a.url + path, json.dumps({"model": a.model, **body}).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(r, timeout=300))


wrong = [(t, ids, got) for t, ids in ref["tokenize"] if (got := post("/tokenize", content=t, add_special=False)["tokens"]) != ids]
print(f"tokenize: {len(ref['tokenize']) - len(wrong)} of {len(ref['tokenize'])} texts equal")
for t, ids, got in wrong[:2]:
    i = next((i for i, (x, y) in enumerate(zip(ids, got)) if x != y), min(len(ids), len(got)))
    print(f"  {t[:40]!r} at token {i}: want {ids[i:i + 5]}, got {got[i:i + 5]}")

kl, top1 = [], 0
for w in ref["windows"]:
    for j, ids, lps in zip(w["positions"], w["top_ids"], w["top_logprobs"]):
        r = post("/completion", prompt=w["ids"][:j + 1], n_predict=1, temperature=0, n_probs=20)
        if not r.get("completion_probabilities"):
            continue  # llama-server gives none for EOS
        got = {t["id"]: t["logprob"] for t in r["completion_probabilities"][0]["top_logprobs"]}
        both = [(l, got[t]) for t, l in zip(ids, lps) if t in got]
        rest = [max(1e-9, 1 - sum(math.exp(x[i]) for x in both)) for i in (0, 1)]
        kl.append(sum(math.exp(l) * (l - g) for l, g in both) + rest[0] * math.log(rest[0] / rest[1]))
        top1 += max(got, key=got.get) == ids[0]
kl.sort()
mean = sum(kl) / len(kl)
print(f"log-probabilities: {len(kl)} positions, mean KL {mean:.5f}, p99 {kl[int(len(kl) * 0.99)]:.4f}, same top token {top1 / len(kl):.3f}")

same = 0
for g in ref["greedy"]:
    n = next((i for i, x in enumerate(g["gaps"]) if x < a.gap), len(g["ids"]))
    got = post("/completion", prompt=g["prompt_ids"], n_predict=max(n, 1), temperature=0, return_tokens=True)["tokens"]
    same += got[:n] == g["ids"][:n]
print(f"greedy: {same} of {len(ref['greedy'])} answers equal while the margin is at least {a.gap}")
sys.exit(bool(wrong) or mean > a.kl or same < len(ref["greedy"]))
