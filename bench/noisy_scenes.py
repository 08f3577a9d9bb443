"""Attacks of noisy_neighbor.py that need a daemon of their own kind, or something in its store."""
import contextlib
import itertools
import pathlib
import shutil
import sys
import tempfile
import threading
import time

import noisy_attacks
from noisy_attacks import ATTACKER, MODEL, ONE_MODEL, ROOT, Daemon, chat, get, post, with_other_model

sys.path.insert(0, str(ROOT / "tests/published"))
import faults  # noqa: E402
from gguf_file import TEXT, Gguf  # noqa: E402

MODELS = 501  # in the store
THIRD_ADDRESS = "127.0.0.3"
FSYNC_S = 0.2  # what each call that changes a file takes
# name: what a chat template does for a client that names it. Each asked for gigabytes or minutes before there
# were bounds.
BOMBS = {
    "center": "{{ 'x'|center(2000000000) }}",
    "double": "{% set ns = namespace(s='x' * 1000) %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}",
    "indent": "{{ ('x\\n' * 1000)|indent(1000000000) }}",
}


@contextlib.contextmanager
def with_many_models(daemon):
    """The store gets its models at once, as from another process: the daemon has seen none of them."""
    library = pathlib.Path(daemon.environment["OLLAMA_MODELS"]) / "manifests/registry.ollama.ai/library"
    for number in range(MODELS - 1):
        (library / f"copy-{number}").mkdir()
        shutil.copy(library / MODEL / "latest", library / f"copy-{number}/latest")
    yield


class SlowDisk(Daemon):
    """Each call that changes a file takes FSYNC_S from the scene on (docs/testing.md)."""

    def __init__(self, environment=None):
        self.controls = tempfile.TemporaryDirectory(prefix="quire-faults-")
        self.faults = faults.Faults(self.controls.name, "quired")
        super().__init__((environment or {}) | faults.environment(self.controls.name))

    def __exit__(self, kind, value, traceback):
        self.faults["file_delay_microseconds"] = 0
        super().__exit__(kind, value, traceback)
        self.controls.cleanup()


@contextlib.contextmanager
def with_slow_fsync(daemon):
    daemon.faults["file_delay_microseconds"] = int(FSYNC_S * 1e6)
    yield


def create():
    return {"model": f"made-{time.monotonic_ns()}", "from": MODEL, "system": "You are brief.", "stream": False}


@contextlib.contextmanager
def with_bombs(daemon):
    """The model of both clients gets a chat template that does as its client says, and else what it did before."""
    model = Gguf(ROOT / "packaging/models/quire-demo-F16.gguf")
    kind, template = model.keys["tokenizer.chat_template"]
    assert kind == TEXT
    branches = "".join("{%%- if messages[0].content == '%s' -%%}%s{%%- else -%%}" % bomb for bomb in BOMBS.items())
    model.keys["tokenizer.chat_template"] = TEXT, branches + template + "{%- endif -%}" * len(BOMBS)
    folder = pathlib.Path(daemon.folder.name)
    model.write(folder / "bombs.gguf")
    (folder / "Modelfile").write_text(f"FROM {folder / 'bombs.gguf'}\n")
    made = daemon.cli("create", MODEL, "-f", str(folder / "Modelfile"))
    assert made.returncode == 0, made.stderr
    reply = daemon.request("POST", "/api/chat", chat(options={"num_predict": 1}))
    assert reply.status == 200, reply.text
    yield


def bombs(path):
    names = itertools.cycle(BOMBS)
    return post(path, lambda: chat(next(names), max_tokens=1), ATTACKER)


def at_once(attack, count):
    """The attack on `count` connections."""
    def run(port, seen, ended):
        threads = [threading.Thread(target=attack, args=(port, seen, ended), daemon=True) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return run


def keep(model, keep_alive):
    """What another party than the client says of a model's stay: of its own address a client's pin holds for it, too."""
    return post("/api/generate", {"model": model, "keep_alive": keep_alive}, THIRD_ADDRESS)


# 1.2 MB that are 16 MB once they are parsed, as much as a prompt may have that is truncated.
SHORT_MESSAGES = b'{"model":"%s","stream":false,"options":{"num_predict":1},"messages":[%s]}' % (
    MODEL.encode(), b",".join([b'{"role":"u"}'] * 85_000))

# name: (attack, the kind of daemon, its environment, what is there while it runs)
SCENES = noisy_attacks.SCENES | {
    "tags_many": (get("/api/tags"), Daemon, {}, with_many_models),
    "slow_fsync": (post("/api/create", create, ATTACKER), SlowDisk, {}, with_slow_fsync),
    "jinja_bombs": (bombs("/v1/chat/completions"), Daemon, {}, with_bombs),
    "pins": (keep("other", -1), Daemon, ONE_MODEL, with_other_model),
    "unloads": (keep(MODEL, 0), Daemon, {}, contextlib.nullcontext),
    "show_check": (at_once(post("/api/show", {"model": MODEL, "check": True}), 64), Daemon, {}, contextlib.nullcontext),
    "crowded_messages": (at_once(post("/api/chat", SHORT_MESSAGES, ATTACKER), 50), Daemon, {}, contextlib.nullcontext),
    "jinja_bombs_text": (bombs("/apply-template"), Daemon, {}, with_bombs),
}
# Attacks that --keys runs where none is named: streams, prompts, schemas, models that take turns.
KEYED = ("address_streams", "address_queue", "endless", "stalled_streams", "long_prompt", "many_messages", "one_word", "long_context",
         "bytes", "tokenize", "many_choices", "schema_dag", "schema_patterns", "schema_changing", "grammar_ambiguous",
         "tools_required", "template_center", "other_model", "two_models", "pins", "unloads", "show_check", "crowded_messages")
