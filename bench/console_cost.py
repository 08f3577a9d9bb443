#!/usr/bin/env python3
"""What open consoles cost: tokens per second and the largest gap of 8 streams, without and with consoles, in turns; and
the CPU time of a daemon with a loaded model that nobody asks anything.

usage: console_cost.py [ROUNDS] [CONSOLES]      QUIRE_BIN names the folder of the binaries
Each console has the two streams that the page's cache view has: /quire/now and /quire/cache/{model}.
"""
import asyncio
import json
import os
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "e2e"))
import harness  # noqa: E402

STREAMS = 8
TOKENS = 400
IDLE_S = 20


async def send(port, method, path, body=None, accept="*/*"):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = json.dumps(body).encode() if body else b""
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
    await writer.drain()
    return reader, writer


async def stream(port, number, round_number):
    """(tokens, largest gap in seconds) of one answer."""
    body = {"model": harness.MODEL, "prompt": f"Story {number} of round {round_number}: once", "raw": True,
            "options": {"num_predict": TOKENS, "ignore_eos": True, "seed": number}}
    reader, writer = await send(port, "POST", "/api/generate", body)
    last, gap, tokens = None, 0, 0
    while True:
        line = await reader.readline()
        if b'"done":false' in line:
            now = time.monotonic()
            gap = max(gap, now - last if last else 0)
            last, tokens = now, tokens + 1
        if b'"done":true' in line or not line:
            break
    writer.close()
    return tokens, gap


async def console(port, path, counted):
    reader, _ = await send(port, "GET", path, accept="text/event-stream")
    while data := await reader.read(1 << 16):
        counted[0] += data.count(b"data: {")


async def measure(port, consoles, round_number):
    counted = [0]
    watching = [asyncio.create_task(console(port, path, counted)) for _ in range(consoles)
                for path in ("/quire/now", f"/quire/cache/{harness.MODEL}")]
    await asyncio.sleep(0.2)
    begin = time.monotonic()
    answers = await asyncio.gather(*[stream(port, number, round_number) for number in range(STREAMS)])
    took = time.monotonic() - begin
    for task in watching:
        task.cancel()
    return sum(tokens for tokens, _ in answers) / took, max(gap for _, gap in answers) * 1000, counted[0]


def cpu_ms(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 // os.sysconf("SC_CLK_TCK")


async def idle(daemon, consoles):
    watching = [asyncio.create_task(console(daemon.port, path, [0])) for _ in range(consoles)
                for path in ("/quire/now", f"/quire/cache/{harness.MODEL}")]
    await asyncio.sleep(1)
    pids = [daemon.process.pid, *daemon.runner_pids()]
    before = [cpu_ms(pid) for pid in pids]
    await asyncio.sleep(IDLE_S)
    used = [cpu_ms(pid) - old for pid, old in zip(pids, before)]
    print(f"{consoles} consoles, idle for {IDLE_S} s: {used[0]} ms of CPU time in the daemon, {sum(used[1:])} in the runner")
    for task in watching:
        task.cancel()


async def run(daemon, rounds, consoles):
    port = daemon.port
    results = {0: [], consoles: []}
    await measure(port, 0, -1)  # the model is loaded
    for round_number in range(rounds):
        for open_ones in (0, consoles) if round_number % 2 == 0 else (consoles, 0):
            results[open_ones].append(await measure(port, open_ones, round_number))
    for open_ones, found in results.items():
        speeds, gaps, events = zip(*found)
        print(f"{open_ones} consoles: {statistics.median(speeds):.0f} tokens/s (of {rounds}: {min(speeds):.0f} to {max(speeds):.0f}), "
              f"largest gap {statistics.median(gaps):.0f} ms ({min(gaps):.0f} to {max(gaps):.0f}), {sum(events)} events")
    for open_ones in (0, consoles):
        await idle(daemon, open_ones)


if __name__ == "__main__":
    with harness.Daemon() as daemon:
        asyncio.run(run(daemon, int(sys.argv[1]) if len(sys.argv) > 1 else 10, int(sys.argv[2]) if len(sys.argv) > 2 else 5))
