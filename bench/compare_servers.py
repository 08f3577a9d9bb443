#!/usr/bin/env python3
"""Quire beside another server on the same GGUF, through the scenarios of loadgen.py, one after the other.

  bench/compare_servers.py MODEL.gguf --peer 'llama-server -m {gguf} --port {port} -t 2 -np 16 -c 49152 -kvu' S3 S5
  bench/compare_servers.py MODEL.gguf --peer '...' --rounds 3 S1 S2      in alternation, ratios with their spread
  bench/compare_servers.py MODEL.gguf S7 --scale 0.5          Quire alone
  bench/compare_servers.py DIRECTORY S3 S5                    Quire alone, a checkpoint that it quantizes to Q8_0

{gguf} and {port} are filled in; --peer-gguf names the file as the peer sees it (in a chroot, say). Options
unknown to this script are passed to loadgen.py. Prints the load generator's JSON lines, labeled, then a table.
"""
import argparse
import contextlib
import hashlib
import json
import os
import pathlib
import shlex
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
LOADGEN = pathlib.Path(__file__).with_name("loadgen.py")
READY_S = 120


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def put_blob(store, data):
    digest = hashlib.sha256(data).hexdigest()
    (store / "blobs" / f"sha256-{digest}").write_bytes(data)
    return {"digest": f"sha256:{digest}", "size": len(data)}


def link_blob(store, gguf, kind):
    """The layer of a file that goes into the store."""
    with open(gguf, "rb") as f:
        digest = hashlib.file_digest(f, "sha256").hexdigest()
    blob = store / "blobs" / f"sha256-{digest}"
    try:
        os.link(gguf, blob)
    except OSError:  # another file system
        shutil.copyfile(gguf, blob)
    return {"mediaType": f"application/vnd.ollama.image.{kind}", "digest": f"sha256:{digest}",
            "size": os.path.getsize(gguf)}


def make_store(store, gguf, draft=None, projector=None):
    """A model store in Ollama's layout that holds `gguf` as the model "bench", with a draft model and a vision tower if there are."""
    (store / "blobs").mkdir(parents=True)
    manifest_path = store / "manifests/registry.ollama.ai/library/bench/latest"
    manifest_path.parent.mkdir(parents=True)
    parts = (("model", gguf), ("draft", draft), ("projector", projector))
    layers = [link_blob(store, file, kind) for kind, file in parts if file]
    config = {"model_format": "gguf", "model_family": "bench", "model_families": ["bench"], "model_type": "",
              "file_type": "", "architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": []}}
    manifest_path.write_text(json.dumps({
        "schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
        "config": {"mediaType": "application/vnd.docker.container.image.v1+json",
                   **put_blob(store, json.dumps(config).encode())},
        "layers": layers}))


@contextlib.contextmanager
def serving(command, port, environment=None):
    log = tempfile.TemporaryFile()
    process = subprocess.Popen(command, env=os.environ | (environment or {}), stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + READY_S
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
                    if answer.status == 200:
                        break
            except (urllib.error.URLError, OSError):
                pass
            if process.poll() is not None or time.monotonic() > deadline:
                log.seek(0)
                sys.exit(f"{command[0]} does not serve:\n{log.read().decode(errors='replace')[-4000:]}")
            time.sleep(0.1)
        yield process
    finally:
        process.terminate()
        process.wait()


def drive(label, port, pid, scenarios, rest):
    command = [sys.executable, str(LOADGEN), "--url", f"http://127.0.0.1:{port}", "--api", "openai-chat", "--model",
               "bench", "--label", label, "--pids", str(pid), *scenarios, *rest]
    # The model is loaded before anything is timed.
    body = json.dumps({"model": "bench", "max_tokens": 1, "messages": [{"role": "user", "content": " baba"}]})
    urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", body.encode(),
                                                  {"Content-Type": "application/json"}), timeout=600).read()
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    print(output, end="", flush=True)
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def table(ours, theirs):
    peer = {(d["scenario"], d.get("clients")): d for d in theirs}
    head = ["scenario", "n", "prompt tok", "ideal", "computed", "peer", "TTFT mean ms", "peer", "max gap ms", "peer"]
    print("\n| " + " | ".join(head) + " |\n|" + " --- |" * len(head))
    for d in ours:
        p = peer.get((d["scenario"], d.get("clients")), {})
        gap = lambda x: (x.get("during_itl") or x.get("itl_ms") or {}).get("max")
        row = [d["scenario"] + (f" x{d['clients']}" if "clients" in d else ""), d["n"], d["prompt_tok"], d.get("ideal_tok"),
               d.get("computed_tok"), p.get("computed_tok"), d["ttft_ms"]["mean"], p.get("ttft_ms", {}).get("mean"),
               gap(d), gap(p)]
        print("| " + " | ".join("" if v is None else str(v) for v in row) + " |")


def figures(runs):
    """{figure: value} of one server's round: the mean over what a scenario printed more than once."""
    found = {}
    for d in runs:
        name = d["scenario"] + (f" x{d['clients']}" if "clients" in d else "")
        for figure in ("prefill_tok_s", "decode_tok_s", "decode_only_tok_s", "gen_tok_s"):
            if d.get(figure) is not None:
                found.setdefault(f"{name} {figure}", []).append(d[figure])
        found.setdefault(f"{name} ttft_ms", []).append(d["ttft_ms"]["mean"])
    return {figure: statistics.mean(values) for figure, values in found.items()}


def ratios(rounds):
    print("\n| figure | Quire | peer | ratio: median | min | max |\n|" + " --- |" * 6)
    for figure in rounds[0][0]:
        pairs = [(ours[figure], theirs[figure]) for ours, theirs in rounds if figure in ours and figure in theirs]
        each = [peer / own if figure.endswith("_ms") else own / peer for own, peer in pairs]
        print(f"| {figure} | {statistics.median(o for o, _ in pairs):.1f} | {statistics.median(t for _, t in pairs):.1f} | "
              f"{statistics.median(each):.2f} | {min(each):.2f} | {max(each):.2f} |")


def create(binary, port, directory):
    """The model "bench" of a checkpoint in Hugging Face's form."""
    with tempfile.NamedTemporaryFile("w", suffix=".Modelfile") as modelfile:
        modelfile.write(f"FROM {pathlib.Path(directory).resolve()}\n")
        modelfile.flush()
        subprocess.run([binary + "/quire", "create", "bench", "-f", modelfile.name, "--quantize", "q8_0"], check=True,
                       env=os.environ | {"OLLAMA_HOST": f"127.0.0.1:{port}"}, stdout=sys.stderr)


def run_ours(a, store, rest):
    port = free_port()
    # A folder of its own: prefixes that an earlier run left on disk would be restored.
    with tempfile.TemporaryDirectory(prefix="quire-bench-prefixes-") as prefixes:
        environment = {"OLLAMA_HOST": f"127.0.0.1:{port}", "OLLAMA_MODELS": str(store), "QUIRE_SNAPSHOT_DIR": prefixes,
                       "OLLAMA_CONTEXT_LENGTH": a.context, "OLLAMA_KEEP_ALIVE": "-1"}
        with serving([a.bin + "/quired"], port, environment) as process:
            if os.path.isdir(a.gguf) and not any(store.glob("manifests/*/*/bench")):
                create(a.bin, port, a.gguf)
            return drive("quire", port, process.pid, a.scenarios, rest)


def run_peer(a, rest):
    port = free_port()
    with serving(shlex.split(a.peer.format(gguf=a.peer_gguf or a.gguf, port=port)), port) as process:
        return drive("peer", port, process.pid, a.scenarios, rest)


def main():
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("gguf")
    parser.add_argument("scenarios", nargs="+")
    parser.add_argument("--bin", default=str(ROOT / "build/release/bin"))
    parser.add_argument("--peer", help="command that starts the server to compare with")
    parser.add_argument("--peer-gguf", help="path of the GGUF file for the peer")
    parser.add_argument("--context", default="32768", help="default context length in tokens")
    parser.add_argument("--rounds", type=int, default=1, help="measurement rounds; the servers alternate")
    a, rest = parser.parse_known_args()
    with tempfile.TemporaryDirectory(prefix="quire-bench-") as folder:
        store = pathlib.Path(folder) / "models"
        store.mkdir() if os.path.isdir(a.gguf) else make_store(store, a.gguf)
        rounds = [(run_ours(a, store, rest), run_peer(a, rest) if a.peer else []) for _ in range(a.rounds)]
    table(*rounds[-1])
    if a.peer:
        ratios([(figures(ours), figures(theirs)) for ours, theirs in rounds])


if __name__ == "__main__":
    main()
