#!/usr/bin/env python3
"""Prefixes on disk, seen through the front door: a conversation survives an unload, a restart and a kill, and whatever
becomes of the files, no answer changes.

QUIRE_SNAPSHOT_KILLS: how often the daemon is killed while it writes (default 3).
"""
import json
import os
import pathlib
import random
import signal
import struct
import subprocess
import tempfile
import time
import unittest

from harness import BIN, MODEL, Daemon

KILLS = int(os.environ.get("QUIRE_SNAPSHOT_KILLS", "3"))
STORY = "Rivers were roads once, and boats carried stone and wine and bread to the sea. "


def chat(messages, model=MODEL, **fields):
    return {"model": model, "stream": False, "logprobs": True, "messages": messages,
            "options": {"temperature": 0, "num_predict": 12}, **fields}


def logprobs(reply):
    return [token["logprob"] for token in reply["logprobs"]]


def story(seed=0):
    words = STORY.split()
    random.Random(seed).shuffle(words)
    return " ".join(words) + " " + STORY * 4


class Snapshots(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="quire-e2e-prefixes-")
        self.folder = pathlib.Path(self.temporary.name) / "prefixes"
        self.addCleanup(self.temporary.cleanup)

    def daemon(self, **environment):
        return Daemon({"QUIRE_SNAPSHOT_BYTES": "256MiB", "QUIRE_SNAPSHOT_DIR": str(self.folder),
                       "QUIRE_SNAPSHOT_ALWAYS_FETCH": "1", **environment})

    @staticmethod
    def wait_read(daemon, **headers):
        """Until the daemon has read its folder."""
        deadline = time.monotonic() + 60
        while daemon.request("GET", "/quire/prefixes", None, headers).status != 200 and time.monotonic() < deadline:
            time.sleep(0.02)

    def files(self):
        return sorted(self.folder.glob("*.quire-prefix")) if self.folder.is_dir() else []

    def wait_stored(self, tokens, folder=None):
        """Until a prefix of at least this many tokens is on disk, with its state."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            ends = {}
            for file in (folder or self.folder).glob("*.quire-prefix"):
                try:
                    header = file.read_bytes()[:40]
                except FileNotFoundError:
                    continue
                if len(header) == 40:
                    _, start, end, state = struct.unpack("<QqqQ", header[8:])
                    ends.setdefault(end, set()).add(state)
            if any(end >= tokens and len(states) == 2 for end, states in ends.items()):
                return
            time.sleep(0.05)
        self.fail(f"no prefix of {tokens} tokens was stored")

    def first_turn(self, daemon, seed=0, **fields):
        """The messages so far and the tokens that were computed."""
        messages = [{"role": "user", "content": story(seed)}]
        reply = daemon.post("/api/chat", chat(messages, **fields)).json
        messages += [reply["message"], {"role": "user", "content": "And then?"}]
        return messages, reply["prompt_eval_count"]

    def cold(self, messages, **fields):
        with Daemon({"QUIRE_PREFIX_CACHE": "false"}) as alone:
            return logprobs(alone.post("/api/chat", chat(messages, **fields)).json)

    def check(self, daemon, messages, cold, cached, **fields):
        reply = daemon.post("/api/chat", chat(messages, **fields)).json
        self.assertEqual(cold, logprobs(reply))
        self.assertGreaterEqual(reply["prompt_eval_cached_count"], cached)
        return reply["prompt_eval_cached_count"]

    def test_a_conversation_survives_an_unload_and_a_restart(self):
        with self.daemon() as daemon:
            messages, tokens = self.first_turn(daemon)
            self.wait_stored(tokens)
            cold = self.cold(messages)
            daemon.post("/api/chat", {"model": MODEL, "keep_alive": 0})
            deadline = time.monotonic() + 60
            while daemon.runner_pids() and time.monotonic() < deadline:
                time.sleep(0.02)
            self.assertEqual([], daemon.runner_pids())
            self.check(daemon, messages, cold, tokens - 1)
        with self.daemon() as daemon:
            self.check(daemon, messages, cold, tokens - 1)
            salted = daemon.post("/api/chat", chat(messages, cache_salt="another")).json
            self.assertEqual(cold, logprobs(salted))

    def test_a_killed_daemon_leaves_no_wrong_byte(self):
        with self.daemon() as daemon:
            messages, tokens = self.first_turn(daemon)
            self.wait_stored(tokens)
        cold = self.cold(messages)
        for i in range(KILLS):
            with self.daemon() as daemon:
                self.check(daemon, messages, cold, tokens - 1)
                self.first_turn(daemon, seed=1 + i)
                # At any moment of what follows the answer.
                time.sleep(random.Random(i).random() * 0.05)
                daemon.stop(signal.SIGKILL)
                daemon.process.returncode = 0
        with self.daemon() as daemon:
            self.check(daemon, messages, cold, tokens - 1)
            self.assertNotIn("is not what was written", daemon.log())

    def test_flipped_bits_are_misses(self):
        with self.daemon() as daemon:
            messages, tokens = self.first_turn(daemon)
            self.wait_stored(tokens)
        cold = self.cold(messages)
        for file in self.files():
            content = bytearray(file.read_bytes())
            content[random.Random(file.name).randrange(232, len(content)) if len(content) > 232 else 100] ^= 1
            file.write_bytes(content)
        with self.daemon() as daemon:
            self.assertEqual(0, self.check(daemon, messages, cold, 0))
            self.assertIn("is not what was written", daemon.log())

    def test_two_daemons_share_a_folder(self):
        with self.daemon() as one, self.daemon() as two:
            messages, tokens = self.first_turn(one)
            others, _ = self.first_turn(two, seed=5)
            self.wait_stored(tokens)
            self.check(one, messages, self.cold(messages), tokens - 1)
            self.check(two, others, self.cold(others), 1)
        with self.daemon() as daemon:
            self.check(daemon, messages, self.cold(messages), tokens - 1)

    def test_another_model_under_the_same_name_is_a_miss(self):
        store = tempfile.TemporaryDirectory(prefix="quire-e2e-store-")
        self.addCleanup(store.cleanup)
        environment = {"OLLAMA_MODELS": store.name}
        with self.daemon(**environment) as daemon:
            self.assertEqual(0, daemon.cli("cp", MODEL, "mine").returncode)
            messages, tokens = self.first_turn(daemon, model="mine")
            self.wait_stored(tokens)
            created = daemon.post("/api/create", {"model": "mine", "from": MODEL, "quantize": "q4_0", "stream": False})
            self.assertEqual(200, created.status, created.text)
            changed = daemon.post("/api/chat", chat(messages, model="mine")).json
        with Daemon({"QUIRE_PREFIX_CACHE": "false", **environment}) as alone:
            cold = logprobs(alone.post("/api/chat", chat(messages, model="mine")).json)
        self.assertEqual(cold, logprobs(changed))
        self.assertEqual(0, changed["prompt_eval_cached_count"])

    def test_is_on_without_a_setting(self):
        home = {"HOME": self.temporary.name, "XDG_CACHE_HOME": "", "CACHE_DIRECTORY": "",
                "QUIRE_SNAPSHOT_ALWAYS_FETCH": "1", "QUIRE_SNAPSHOT_BYTES": "auto"}
        folder = pathlib.Path(self.temporary.name) / ".cache/quire/prefixes"
        with Daemon(home) as daemon:
            messages, tokens = self.first_turn(daemon)
            self.wait_stored(tokens, folder)
            tier = daemon.get("/quire/prefixes").json
            disk = os.statvfs(folder)
            self.assertLess(tier["bytes"], tier["budget_bytes"])
            self.assertLess(tier["budget_bytes"], disk.f_blocks * disk.f_frsize / 8)
        cold = self.cold(messages)
        with Daemon(home) as daemon:
            self.check(daemon, messages, cold, tokens - 1)
        with Daemon(home | {"QUIRE_SNAPSHOT_BYTES": "0"}) as daemon:
            self.check(daemon, messages, cold, 0)
            self.assertEqual(404, daemon.get("/quire/prefixes").status)

    def test_named_slots_survive_a_restart(self):
        prompt = story()
        with self.daemon() as daemon:
            done = daemon.post("/completion", {"prompt": prompt, "n_predict": 4, "temperature": 0, "id_slot": 1}).json
            saved = daemon.post("/slots/1?action=save", {"filename": "mine.bin"}).json
            self.wait_stored(saved["n_saved"])
            more = prompt + done["content"] + " And then?"
        with Daemon({"QUIRE_PREFIX_CACHE": "false"}) as alone:
            cold = alone.post("/completion", {"prompt": more, "n_predict": 8, "temperature": 0}).json["content"]
        with self.daemon() as daemon:
            self.assertEqual(404, daemon.post("/slots/1?action=restore", {"filename": "other.bin", "model": MODEL}).status)
            restored = daemon.post("/slots/2?action=restore", {"filename": "mine.bin", "model": MODEL})
            self.assertEqual(200, restored.status, restored.text)
            self.assertEqual(saved["n_saved"], restored.json["n_restored"])
            self.assertGreaterEqual(restored.json["n_cached"], saved["n_saved"] - 1)
            reply = daemon.post("/completion", {"prompt": more, "n_predict": 8, "temperature": 0, "id_slot": 2}).json
            self.assertEqual(cold, reply["content"])
            self.assertGreater(reply["tokens_cached"], 0)

    def cache(self, daemon, *arguments):
        """What `quire cache` prints."""
        done = daemon.cli("cache", *arguments)
        self.assertEqual(0, done.returncode, done.stderr)
        return done.stdout

    def export(self, daemon, tokens, file):
        """The longest prefix, which ends the first turn."""
        prefixes = daemon.get("/quire/prefixes").json["prefixes"]
        longest = max(prefixes, key=lambda prefix: prefix["tokens"])
        self.assertGreaterEqual(longest["tokens"], tokens)
        self.cache(daemon, "export", longest["id"][:12], "--output", str(file))
        return longest

    def test_a_folder_of_others_keeps_their_files(self):
        self.folder.mkdir(mode=0o755)
        theirs = {"new-plan.txt": "plan", "new-1-1": "one", "holiday.quire-prefix": "sun", "new-.quire-part": "part"}
        for name, text in theirs.items():
            (self.folder / name).write_text(text)
        link = self.folder.with_name("link")
        link.symlink_to(self.folder)
        with self.daemon(QUIRE_SNAPSHOT_DIR=str(link)) as daemon:
            messages, tokens = self.first_turn(daemon)
            self.wait_stored(tokens)
            self.cache(daemon, "prune", "--all")
        self.assertEqual(theirs, {name: (self.folder / name).read_text() for name in theirs})
        self.assertEqual(0o755, self.folder.stat().st_mode & 0o7777)
        (self.folder / "secret").write_text("a diary")
        for path, mode in ((self.folder / "secret", 0o755), (self.folder, 0o777)):
            self.folder.chmod(mode)
            before = sorted(self.folder.iterdir())
            with self.daemon() as daemon:
                self.first_turn(daemon)
                self.assertRegex(daemon.log(), rf'snapshot tier: off error="[^"]*{path}')
            self.assertEqual((before, mode), (sorted(self.folder.iterdir()), self.folder.stat().st_mode & 0o7777))
            self.assertEqual("a diary", (self.folder / "secret").read_text())

    def test_a_refused_start_leaves_no_folder(self):
        with self.daemon(QUIRE_SNAPSHOT_BYTES="0") as daemon:
            refused = subprocess.run([BIN / "quired"], env=daemon.environment | {"QUIRE_SNAPSHOT_BYTES": "64MiB"},
                                     capture_output=True, text=True)
        self.assertEqual(1, refused.returncode)
        self.assertIn("is in use", refused.stderr)
        self.assertFalse(self.folder.exists())

    def test_an_exported_prefix_is_reused_by_another_daemon(self):
        file = pathlib.Path(self.temporary.name) / "prefix"
        with self.daemon() as daemon:
            messages, tokens = self.first_turn(daemon)
            self.wait_stored(tokens)
            longest = self.export(daemon, tokens, file)
            self.assertEqual(0o600, file.stat().st_mode & 0o777)
        cold = self.cold(messages)
        there = pathlib.Path(self.temporary.name) / "there"
        with self.daemon(QUIRE_SNAPSHOT_DIR=str(there)) as daemon:
            self.wait_read(daemon)
            self.assertIn("imported 1 prefix", self.cache(daemon, "import", str(file)))
            self.assertEqual(longest["tokens"], daemon.get("/quire/prefixes").json["prefixes"][0]["tokens"])
            self.check(daemon, messages, cold, tokens - 1)
            prefix = [each for each in daemon.get("/quire/prefixes").json["prefixes"]
                      if each["tokens"] == longest["tokens"]]
            self.assertEqual(1, prefix[0]["hits"])
            self.assertIn(MODEL, self.cache(daemon, "list"))
            self.assertIn("sha256-", self.cache(daemon, "show", prefix[0]["id"][:8]))
            self.assertIn("removed", self.cache(daemon, "prune", "--model", MODEL))
            self.assertEqual([], daemon.get("/quire/prefixes").json["prefixes"])

    def test_a_damaged_export_is_refused(self):
        file = pathlib.Path(self.temporary.name) / "prefix"
        with self.daemon() as daemon:
            messages, tokens = self.first_turn(daemon)
            self.wait_stored(tokens)
            self.export(daemon, tokens, file)
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
        cold = self.cold(messages)
        there = pathlib.Path(self.temporary.name) / "there"
        with self.daemon(QUIRE_SNAPSHOT_DIR=str(there)) as daemon:
            self.wait_read(daemon)
            done = daemon.cli("cache", "import", str(file))
            self.assertEqual(1, done.returncode)
            self.assertIn("the exported prefix is damaged", done.stderr)
            self.check(daemon, messages, cold, 0)

    def test_imported_prefixes_belong_to_the_named_key(self):
        file = pathlib.Path(self.temporary.name) / "prefix"
        with self.daemon() as daemon:
            messages, tokens = self.first_turn(daemon)
            self.wait_stored(tokens)
            self.export(daemon, tokens, file)
        cold = self.cold(messages)
        keys = pathlib.Path(self.temporary.name) / "keys"
        secrets = {}
        for name, role in (("alice", []), ("bob", []), ("root", ["--admin"])):
            made = subprocess.run([BIN / "quire", "key", name, *role, "--append", keys], text=True, check=True,
                                  capture_output=True)
            secrets[name] = made.stdout.split()[0]
        with self.daemon(QUIRE_SNAPSHOT_DIR=str(keys) + "-prefixes", QUIRE_KEYS=str(keys)) as daemon:
            daemon.environment["QUIRE_API_KEY"] = secrets["bob"]
            self.wait_read(daemon, Authorization="Bearer " + secrets["root"])
            self.assertEqual(1, daemon.cli("cache", "import", str(file)).returncode)
            daemon.environment["QUIRE_API_KEY"] = secrets["root"]
            self.cache(daemon, "import", str(file), "--key", "alice")
            for name, cached in (("bob", 0), ("alice", tokens - 1)):
                reply = daemon.request("POST", "/api/chat", chat(messages),
                                       {"Authorization": "Bearer " + secrets[name]}).json
                self.assertEqual(cold, logprobs(reply))
                if cached:
                    self.assertGreaterEqual(reply["prompt_eval_cached_count"], cached)
                else:
                    self.assertEqual(0, reply["prompt_eval_cached_count"])

    def test_a_folder_that_cannot_be_used_stops_nothing(self):
        self.folder.write_text("a file")
        with self.daemon() as daemon:
            messages, _ = self.first_turn(daemon)
            self.check(daemon, messages, self.cold(messages), 1)
            self.assertIn("snapshot tier: off", daemon.log())


if __name__ == "__main__":
    unittest.main()
