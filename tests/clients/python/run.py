#!/usr/bin/env python3
"""Installs Python clients by version, each into a virtual environment of its own in FOLDER, and runs each against a fresh
daemon with a model that calls a tool (agent_model.py), an encoder, and the bundled model.

Prints a table of what was exercised. A client that cannot be installed, or whose model is missing, is SKIPPED in that table; any
failure gives exit code 1. With CI=true only clients that install within a minute are run.

QUIRE_BIN is the folder of the binaries; QUIRE_REAL: see tests/real.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
for folder in (HERE.parents[1] / "e2e", HERE.parent):
    sys.path.insert(0, str(folder))
import agent_model  # noqa: E402
import tiny_encoders  # noqa: E402
from harness import Daemon  # noqa: E402
from place import MODEL, SKIPPED, Place  # noqa: E402

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
REAL = pathlib.Path(os.environ.get("QUIRE_REAL") or CACHE / "quire-real")
CODER = REAL / "qwen25coder.gguf"


class Skip(Exception):
    """Why a client is not run."""


def program(place):
    """PROGRAM_client.py, with the models and the server in its environment."""
    place.run(str(place.modules / "bin/python"), str(HERE / f"{place.name}_client.py"))


def anthropic(place):
    place.refusals = 2  # its tool runner keeps the history on the server, and sends it whole once that is refused
    program(place)


def aider(place):
    """One edit. A grammar gives the answer aider's form, which small models do not keep; the model writes the expression."""
    name = "quire-demo"
    if CODER.exists():
        name = "coder"
        (place.home / "Modelfile").write_text(f"FROM {CODER}\nPARAMETER num_ctx 4096\n")
        made = place.daemon.cli("create", name, "-f", str(place.home / "Modelfile"))
        assert made.returncode == 0, made.stderr
    source = place.project / "area.py"
    source.write_text("def area(width, height):\n    return width + height\n")
    grammar = (r'root ::= "area.py\n```\ndef area(width, height):\n    return " side " " [-+*] " " side "\n```\n"' + "\n"
               'side ::= "width" | "height"')
    (place.home / "settings.json").write_text(json.dumps([
        {"name": f"openai/{name}", "edit_format": "whole", "extra_params": {"extra_body": {"grammar": grammar}}}]))
    place.run(str(place.modules / "bin/aider"), "--model", f"openai/{name}", "--model-settings-file", str(place.home / "settings.json"),
              "--no-git", "--yes-always", "--no-show-model-warnings", "--no-check-update", "--analytics-disable", "--map-tokens", "0",
              "--message", "area is wrong. It must return width * height.", "area.py", OPENAI_API_BASE=place.base + "/v1")
    edited = source.read_text()
    assert re.fullmatch(r"def area\(width, height\):\n    return (width|height) [-+*] (width|height)\n", edited), edited
    assert edited != "def area(width, height):\n    return width + height\n", "it was not edited"
    assert name != "coder" or "width * height" in edited, edited


def lm_eval(place):
    """Log-probabilities of choices, and text up to a stop: a task of a local file."""
    questions = [{"question": f"{a} and {b} make", "right": str(a + b), "wrong": str(a + b + 7)} for a in range(3) for b in range(3)]
    (place.project / "sums.json").write_text("\n".join(json.dumps(one) for one in questions))
    common = f"dataset_path: json\ndataset_kwargs: {{data_files: {{test: {place.project}/sums.json}}}}\ntest_split: test\n"
    (place.project / "choices.yaml").write_text(
        f"task: choices\n{common}output_type: multiple_choice\ndoc_to_text: '{{{{question}}}}'\n"
        "doc_to_choice: ['{{right}}', '{{wrong}}']\ndoc_to_target: 0\nmetric_list: [{metric: acc}]\n")
    (place.project / "texts.yaml").write_text(
        f"task: texts\n{common}output_type: generate_until\ndoc_to_text: '{{{{question}}}}'\ndoc_to_target: '{{{{right}}}}'\n"
        "generation_kwargs: {until: ['.'], max_gen_toks: 8}\nmetric_list: [{metric: exact_match}]\n")
    # The only loaded model is that whose tokenizer /tokenizer_info and /tokenize have.
    assert place.daemon.post("/api/generate", {"model": "quire-demo"}).status == 200
    arguments = (f"model=quire-demo,base_url={place.base}/v1/completions,tokenizer_backend=remote,num_concurrent=2,"
                 "max_retries=1")
    output = place.run(str(place.modules / "bin/lm_eval"), "run", "--model", "local-completions", "--model_args", arguments,
                       "--tasks", "choices,texts", "--include_path", str(place.project), "--output_path", str(place.project / "out"),
                       HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")
    results = json.loads(next((place.project / "out").rglob("results_*.json")).read_text())["results"]
    assert 0 <= results["choices"]["acc,none"] <= 1 and "exact_match,none" in results["texts"], output[-2000:]
    assert len(place.requests("/v1/completions")) >= 3 * 9, "two choices and one text of each question"


# Name, what pip installs, whether within a minute, what is exercised, how.
CLIENTS = [
    ("openai", ["openai==3.57.0"], True,
     "a tool (whole, streamed), a schema, `/v1/responses` with a function and with a grammar, embeddings", program),
    ("anthropic", ["anthropic==2.14.0"], True, "`tool_runner`, whole and streamed, over three turns: its `thread` is refused, "
     "the whole history follows", anthropic),
    ("ollama", ["ollama==0.6.3", "pydantic==2.14.4"], True, "a function as tool (whole, streamed), a schema, embeddings, lists", program),
    ("huggingface", ["huggingface_hub==2.4.0", "numpy==2.4.6"], True,
     "`InferenceClient`: `chat_completion`, `text_generation`, `feature_extraction`", program),
    ("litellm", ["litellm==1.110.2"], True, "a tool over `openai/`, `anthropic/` and `ollama_chat/`, streams, embeddings", program),
    ("langchain", ["langchain==1.5.2", "langchain-openai==1.7.4", "langchain-ollama==1.1.0"], True,
     "`create_agent` over three APIs, structured output, embeddings", program),
    ("pydantic_ai", ["pydantic-ai-slim[openai]==2.66.0"], True, "an agent with a tool over two APIs, streamed, a typed answer", program),
    ("aider", ["aider-chat==0.86.2"], False, "an edit of a file (Qwen2.5-Coder 0.5B, where it is fetched; a grammar keeps the form)", aider),
    ("lm_eval", ["lm-eval[api]==0.4.13"], False, "log-probabilities of choices, generated text", lm_eval),
]


def install(work, name, packages):
    """The virtual environment that has the packages."""
    venv = work / name
    marker = venv / "packages.txt"
    if marker.exists() and marker.read_text() == "\n".join(packages):
        return venv
    python = venv / "bin/python"
    for command in ([sys.executable, "-m", "venv", "--clear", venv],
                    [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1", *packages]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise Skip("pip does not install it: " + (done.stderr.strip().splitlines() or ["?"])[-1])
    marker.write_text("\n".join(packages))
    return venv


def try_client(work, entry):
    name, packages, _, _, exercise = entry
    venv = install(work, name, packages)
    with tempfile.TemporaryDirectory(prefix="quire-client-") as folder, Daemon() as daemon:
        folder = pathlib.Path(folder)
        agent_model.write(folder / "model", ["look_up"])
        (folder / "Modelfile").write_text(f"FROM {folder}/model\nPARAMETER num_ctx 4096\n")
        made = daemon.cli("create", MODEL, "-f", str(folder / "Modelfile"))
        assert made.returncode == 0, made.stderr
        place = Place(daemon, folder, venv)
        place.name = name
        place.environment["EMBEDDER"] = tiny_encoders.create(daemon, "tiny-embed", tiny_encoders.write_bert(folder / "embed"))
        try:
            exercise(place)
            assert len(place.refused()) == place.refusals, "refused: " + "\n".join(place.refused())
        except AssertionError:
            print(daemon.log()[-4000:])
            raise


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("client", nargs="*", help="default: all")
    parser.add_argument("--folder", type=pathlib.Path, default=CACHE / "quire-clients", help="of the virtual environments")
    parser.add_argument("--ci", action="store_true", help="exit code 77 unless CI=true")
    arguments = parser.parse_args()
    quick_only = os.environ.get("CI") == "true"
    if arguments.ci and not quick_only:
        print("SKIPPED: CI=true is not set; tests/clients/python/run.py runs all clients")
        sys.exit(SKIPPED)
    work = arguments.folder.resolve()
    work.mkdir(parents=True, exist_ok=True)
    rows, results = [], []
    for entry in CLIENTS:
        name, packages, quick, what, _ = entry
        if arguments.client and name not in arguments.client:
            continue
        begin = time.monotonic()
        try:
            if quick_only and not quick:
                raise Skip("takes more than a minute to install")
            try_client(work, entry)
            result = "works"
        except Skip as why:
            result = f"SKIPPED: {why}"
        except Exception as error:  # every client is tried
            print(f"{name}: {error}")
            result = "FAILS"
        results.append(result)
        rows.append(f"| {name} | {', '.join(packages).replace('==', ' ')} | {what} | {result} |")
        print(f"{name}: {result} ({time.monotonic() - begin:.0f} s)", flush=True)
    print("\n".join(["| client | version | exercised | result |", "| --- | --- | --- | --- |", *rows]))
    if "FAILS" in results:
        sys.exit(1)
    sys.exit(0 if "works" in results else SKIPPED)


if __name__ == "__main__":
    main()
