#!/usr/bin/env python3
"""Random mixed load against the real daemon for a while; not part of ctest.

  QUIRE_BIN=build/release/bin tests/e2e/soak.py --minutes 30

Chats go on, branch, are regenerated and given up; keys and salts differ; the caches are small enough to evict and
preempt all the time, and their invariants are checked every 64 steps by the runner itself. Prints one line a minute
and, at the end, the slope of the resident memory over the second half, and fails if a request was stuck or wrong.
"""
import argparse
import http.client
import json
import pathlib
import random
import sys
import threading
import time

from harness import MODEL, Daemon
from reuse_test import text

STUCK_S = 60


class Load:
    def __init__(self, daemon, end):
        self.daemon, self.end = daemon, end
        self.lock = threading.Lock()
        self.counts = dict.fromkeys(["answered", "given_up", "cached_tokens", "prompt_tokens"], 0)
        self.problems = []

    def add(self, **counts):
        with self.lock:
            for name, value in counts.items():
                self.counts[name] += value

    def ask(self, rng, messages, salt):
        """The answer's text, or None when the client gave up."""
        body = {"model": MODEL, "messages": messages, "cache_salt": salt, "stream": rng.random() < 0.7,
                "options": {"temperature": 0.8, "seed": rng.randrange(1000), "num_predict": rng.randrange(1, 120)}}
        connection = http.client.HTTPConnection("127.0.0.1", self.daemon.port, timeout=STUCK_S)
        try:
            connection.request("POST", "/api/chat", json.dumps(body))
            if rng.random() < 0.15:
                time.sleep(rng.random() / 10)
                self.add(given_up=1)
                return None
            reply = connection.getresponse()
            lines = [json.loads(line) for line in reply.read().splitlines()]
            if reply.status != 200 or not lines[-1].get("done"):
                self.problems.append(f"{reply.status}: {lines[-1]}")
                return None
            self.add(answered=1, cached_tokens=lines[-1]["prompt_eval_cached_count"],
                     prompt_tokens=lines[-1]["prompt_eval_count"])
            return "".join(line["message"]["content"] for line in lines)
        except (OSError, http.client.HTTPException) as error:
            self.problems.append(repr(error))
            return None
        finally:
            connection.close()

    def client(self, number):
        rng = random.Random(number)
        chats = []
        while time.monotonic() < self.end and len(self.problems) < 20:
            if not chats or rng.random() < 0.2:
                chats = chats[-6:] + [[{"role": "system", "content": text(rng.randrange(8), rng.randrange(5, 200))}]]
            messages = rng.choice(chats)
            if len(messages) > 2 and rng.random() < 0.3:  # branch, or regenerate, somewhere back
                messages = messages[:rng.randrange(1, len(messages), 2)]
                chats.append(messages)
            messages.append({"role": "user", "content": text(rng.random(), rng.randrange(1, 60))})
            answer = self.ask(rng, messages, rng.choice(["", "", "salt"]))
            if answer is None or len(messages) > 20:
                del messages[1:]
            else:
                messages.append({"role": "assistant", "content": answer})


def resident_kib(pids):
    total = 0
    for pid in pids:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        total += int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])
    return total


def slope_kib_per_hour(samples):
    """Least squares over (seconds, KiB)."""
    n = len(samples)
    mean_t, mean_m = sum(t for t, _ in samples) / n, sum(m for _, m in samples) / n
    spread = sum((t - mean_t) ** 2 for t, _ in samples)
    return 3600 * sum((t - mean_t) * (m - mean_m) for t, m in samples) / spread if spread else 0.0


def main():
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--cache", default="24MiB")
    options = parser.parse_args()
    begin = time.monotonic()
    with Daemon({"QUIRE_CACHE_BYTES": options.cache, "QUIRE_CHECK_INVARIANTS": "64"}) as daemon:
        load = Load(daemon, begin + 60 * options.minutes)
        threads = [threading.Thread(target=load.client, args=(i,)) for i in range(options.clients)]
        for thread in threads:
            thread.start()
        samples, pids, next_line = [], set(), 60
        while any(thread.is_alive() for thread in threads):
            time.sleep(2)
            now = time.monotonic() - begin
            runners = daemon.runner_pids()
            pids.update(runners)
            samples.append((now, resident_kib([daemon.process.pid, *runners])))
            if now >= next_line:
                next_line += 60
                print(f"{now / 60:5.1f} min  rss {samples[-1][1] / 1024:.1f} MiB  {load.counts}", flush=True)
        for thread in threads:
            thread.join()
        half = samples[len(samples) // 2:]
        counts = load.counts
        print(f"answered {counts['answered']}, given up {counts['given_up']}, prompt tokens {counts['prompt_tokens']}, "
              f"of them cached {counts['cached_tokens'] / max(counts['prompt_tokens'], 1):.0%}")
        print(f"rss {half[0][1] / 1024:.1f} -> {half[-1][1] / 1024:.1f} MiB over the second half, slope "
              f"{slope_kib_per_hour(half) / 1024:+.2f} MiB/h; runners used: {len(pids)}")
        if len(pids) > 1:
            load.problems.append("a runner was replaced: see the log\n" + daemon.log()[-4000:])
        print("\n".join(load.problems) or "no stuck request, no wrong answer, invariants held")
    return 1 if load.problems else 0


if __name__ == "__main__":
    sys.exit(main())
