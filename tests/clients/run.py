#!/usr/bin/env python3
"""Installs agents and SDKs by version and runs each against a fresh daemon with a model that calls a tool.

The model is that of agent_model.py: it begins a call where a user message has no result of a tool yet, and the daemon's
constrained decoding writes that call. Prints a table of what was exercised; any failure gives exit code 1. Without
Node.js or an npm registry nothing runs: exit code 77.

usage: run.py WORK_FOLDER [CLIENT...]     (QUIRE_BIN: the folder of the binaries)
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
import agent_model  # noqa: E402
from harness import Daemon  # noqa: E402
from place import MODEL, SKIPPED, Place  # noqa: E402

PROMPT = "List the files of this folder."
PROGRAM = {"zod": "4.6.7"}


def cached(requests, at_least=1):
    return [one for one in requests if int(one.get("cached_tokens", 0)) >= at_least]


def claude_code(place):
    environment = {"ANTHROPIC_BASE_URL": place.base, "ANTHROPIC_AUTH_TOKEN": "none", "ANTHROPIC_MODEL": MODEL,
                   "ANTHROPIC_SMALL_FAST_MODEL": MODEL, "ANTHROPIC_DEFAULT_HAIKU_MODEL": MODEL,
                   "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
    flags = ["--output-format", "json", "--allowedTools", "Bash"]
    first = json.loads(place.run("claude", "-p", PROMPT, *flags, **environment))
    assert first["result"] == "Done" and first["num_turns"] == 2, first
    second = json.loads(place.run("claude", "-p", "Once more.", "--resume", first["session_id"], *flags, **environment))
    assert second["result"] == "Done" and second["num_turns"] == 2, second
    assert second["usage"]["cache_read_input_tokens"] > first["usage"]["input_tokens"], second["usage"]


def codex(place):
    config = place.home / "codex"
    config.mkdir()
    (config / "config.toml").write_text(
        f'model = "{MODEL}"\nmodel_provider = "quire"\nmodel_context_window = 131072\n'
        f'[model_providers.quire]\nname = "Quire"\nbase_url = "{place.base}/v1"\nwire_api = "responses"\n')
    first = place.run("codex", "exec", "--json", "--skip-git-repo-check", "--sandbox", "danger-full-access", PROMPT,
                      CODEX_HOME=str(config))
    events = [json.loads(line) for line in first.splitlines() if line.startswith("{")]
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    assert any(event.get("item", {}).get("type") == "command_execution" for event in events), events
    assert items[-1]["type"] == "agent_message" and items[-1]["text"] == "Done", items
    second = place.run("codex", "exec", "--json", "--skip-git-repo-check", "resume", "--last", "Once more.",
                       CODEX_HOME=str(config))
    assert '"text":"Done"' in second, second[-2000:]
    requests = place.requests("/v1/responses")
    assert len(requests) >= 3 and len(cached(requests[1:], 1000)) >= 2, requests


def opencode(place):
    (place.project / "opencode.json").write_text(json.dumps({
        "provider": {"quire": {"npm": "@ai-sdk/openai-compatible", "name": "Quire",
                               "options": {"baseURL": f"{place.base}/v1", "apiKey": "none"},
                               "models": {MODEL: {"name": MODEL, "limit": {"context": 131072, "output": 8192}}}}},
        "model": f"quire/{MODEL}", "small_model": f"quire/{MODEL}", "autoupdate": False, "share": "disabled"}))
    output = place.run("opencode", "run", PROMPT)
    assert "Done" in output, output[-2000:]
    requests = place.requests("/v1/chat/completions")
    assert len(requests) >= 2 and cached(requests, 1000), requests


def qwen_code(place):
    output = place.run("qwen", "--yolo", "--auth-type", "openai", "-p", PROMPT, OPENAI_BASE_URL=f"{place.base}/v1",
                       OPENAI_MODEL=MODEL, QWEN_TELEMETRY_ENABLED="false")
    assert "Done" in output, output[-2000:]
    requests = place.requests("/v1/chat/completions")
    assert len(requests) >= 2 and cached(requests, 1000), requests


def continue_cli(place):
    config = place.home / "config.yaml"
    config.write_text(f"""name: quire
version: 1.0.0
schema: v1
models:
  - name: quire
    provider: openai
    model: {MODEL}
    apiBase: {place.base}/v1
    apiKey: none
    roles: [chat]
    capabilities: [tool_use]
    defaultCompletionOptions: {{contextLength: 131072, maxTokens: 4096}}
""")
    output = place.run("cn", "--config", str(config), "--auto", "-p", PROMPT, CONTINUE_TELEMETRY_ENABLED="0")
    assert "Done" in output, output[-2000:]
    assert len(place.requests("/v1/chat/completions")) >= 2


def cline(place):
    place.run("cline", "auth", "--provider", "openai", "--apikey", "none", "--modelid", MODEL, "--baseurl",
              f"{place.base}/v1")
    place.run("cline", "--yolo", PROMPT)
    assert len(place.requests("/v1/chat/completions")) >= 2


def promptfoo(place):
    (place.project / "promptfooconfig.yaml").write_text(f"""prompts: ['{{{{question}}}}']
providers:
  - id: openai:chat:{MODEL}
    config: {{apiBaseUrl: '{place.base}/v1', apiKey: none, max_tokens: 64, temperature: 0}}
tests:
  - vars: {{question: 'Hello'}}
    assert: [{{type: equals, value: Done}}]
""")
    # Its own Node.js: it needs 22.22.
    path = f"{place.modules}/node_modules/.bin{os.pathsep}{place.environment['PATH']}"
    output = place.run("promptfoo", "eval", "--no-cache", "--no-progress-bar", PATH=path, PROMPTFOO_DISABLE_TELEMETRY="1",
                       PROMPTFOO_DISABLE_UPDATE="1", PROMPTFOO_DISABLE_REMOTE_GENERATION="1")
    assert re.search(r"1 passed|100(\.00)?%", output), output[-2000:]


def program(name):
    def run(place):
        shutil.copy(HERE / "programs" / f"{name}.mjs", place.modules)
        place.project = place.modules  # where the imports are found
        place.run("node", f"{name}.mjs")
    return run


# Name, package and version, what else it needs, tools that the model prefers, what is exercised, how.
CLIENTS = [
    ("claude-code", "@anthropic-ai/claude-code", "2.1.197", {}, ["Bash"],
     "`-p`, a shell command and its result, a resumed session with cached tokens", claude_code),
    ("codex", "@openai/codex", "0.169.0", {}, ["exec_command"],
     "`exec`, a shell command and its result, a resumed session with cached tokens", codex),
    ("opencode", "opencode-ai", "1.18.33", {}, ["bash"], "`run`, a tool call and its result", opencode),
    ("qwen-code", "@qwen-code/qwen-code", "0.24.4", {}, ["run_shell_command"], "`-p --yolo`, a tool call and its result",
     qwen_code),
    ("continue", "@continuedev/cli", "1.5.47", {}, ["Bash"], "`-p --auto`, a tool call and its result", continue_cli),
    ("cline", "cline", "3.0.65", {}, ["execute_command"], "`--yolo`, a tool call and its result", cline),
    ("openai-agents", "@openai/agents", "0.20.0", PROGRAM, ["Bash"], "a tool over both APIs", program("openai-agents")),
    ("ai-sdk", "ai", "7.0.173", PROGRAM | {"@ai-sdk/openai-compatible": "3.0.92"}, ["Bash"], "a tool, whole and streamed",
     program("ai-sdk")),
    ("langchain", "@langchain/openai", "1.6.0", PROGRAM | {"@langchain/core": "1.4.0"}, ["Bash"], "a tool, whole and streamed",
     program("langchain")),
    ("llamaindex", "llamaindex", "0.12.1", PROGRAM | {"@llamaindex/openai": "0.4.23", "@llamaindex/workflow": "1.1.25"}, ["Bash"],
     "an agent with a tool", program("llamaindex")),
    ("promptfoo", "promptfoo", "0.123.1", {"node": "22.22.0"}, [], "`eval` with an assertion", promptfoo),
    ("mcp", "@modelcontextprotocol/sdk", "1.32.2",
     {f"@modelcontextprotocol/server-{name}": "2026.8.31" for name in ["filesystem", "memory", "everything",
                                                               "sequential-thinking"]}, [],
     "tools of four servers, forced and of the model's choice", program("mcp")),
]


def install(work, name, packages):
    """The folder that has the client; npm is asked for these versions only."""
    folder = work / name
    wanted = json.dumps({"private": True, "type": "module", "dependencies": packages})
    manifest = folder / "package.json"
    if manifest.exists() and manifest.read_text() == wanted and (folder / "node_modules").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    manifest.write_text(wanted)
    done = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", "--fetch-retries=1"], cwd=folder,
                          capture_output=True, text=True)
    if done.returncode != 0:
        shutil.rmtree(folder / "node_modules", ignore_errors=True)
        print(done.stderr)
        sys.exit(SKIPPED)
    return folder


def try_client(work, entry):
    name, package, version, also, tools, _, exercise = entry
    modules = install(work, name, {package: version} | also)
    with tempfile.TemporaryDirectory(prefix="quire-client-") as folder:
        folder = pathlib.Path(folder)
        agent_model.write(folder / "model", tools)
        (folder / "Modelfile").write_text(f"FROM {folder}/model\nPARAMETER num_ctx {agent_model.CONTEXT}\n")
        with Daemon() as daemon:
            made = daemon.cli("create", MODEL, "-f", str(folder / "Modelfile"))
            assert made.returncode == 0, made.stderr
            place = Place(daemon, folder, modules)
            try:
                exercise(place)
                assert len(place.refused()) == place.refusals, "refused: " + "\n".join(place.refused())
            except Exception:
                print(daemon.log()[-4000:])
                raise


def main():
    work = pathlib.Path(sys.argv[1]).resolve()
    work.mkdir(parents=True, exist_ok=True)
    if not shutil.which("npm"):
        print("needs Node.js and npm")
        sys.exit(SKIPPED)
    names = sys.argv[2:] or [entry[0] for entry in CLIENTS]
    rows = []
    for entry in CLIENTS:
        if entry[0] not in names:
            continue
        begin = time.monotonic()
        try:
            try_client(work, entry)
            result = "works"
        except Exception as error:  # every client is tried
            print(f"{entry[0]}: {error}")
            result = "FAILS"
        rows.append(f"| {entry[0]} | {entry[1]} {entry[2]} | {entry[5]} | {result} |")
        print(f"{entry[0]}: {result} ({time.monotonic() - begin:.0f} s)", flush=True)
    table = "\n".join(["| client | version | exercised | result |", "| --- | --- | --- | --- |", *rows])
    (work / "table.md").write_text(table + "\n")
    print(table)
    sys.exit(1 if "FAILS" in table else 0)


if __name__ == "__main__":
    main()
