#!/usr/bin/env python3
"""The memory budget through the front door, and a runner that the kernel kills for memory."""
import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import tempfile
import time
import unittest

import suites
from harness import MODEL, ROOT, Daemon

OTHER = ROOT / "packaging/models/quire-demo-Q8_0.gguf"
CHAT = {"model": MODEL, "stream": False, "options": {"temperature": 0, "num_predict": 16},
        "messages": [{"role": "user", "content": "Hello!"}]}
SMALL = {"QUIRE_CACHE_BYTES": "16MiB"}


def metric(daemon, start):
    """The value of the first line that begins so, or nothing."""
    for line in daemon.get("/metrics").text.splitlines():
        if line.startswith(start):
            return float(line.rsplit(" ", 1)[1])
    return None


def add_other(daemon):
    modelfile = pathlib.Path(daemon.folder.name) / "Modelfile"
    modelfile.write_text(f"FROM {OTHER}\n")
    made = daemon.cli("create", "other", "-f", str(modelfile))
    assert made.returncode == 0, made.stderr


def loaded(daemon):
    return sorted(model["name"] for model in daemon.get("/api/ps").json["models"])


class Budget(unittest.TestCase):
    def needed(self):
        """What the bundled model takes with small caches."""
        with Daemon(SMALL) as daemon:
            self.assertEqual(200, daemon.post("/api/chat", CHAT).status)
            return int(metric(daemon, "quire_memory_predicted_bytes"))

    def test_room_is_made_by_ending_idle_models(self):
        budget = int(self.needed() * 1.5)
        with Daemon(SMALL | {"QUIRE_MEMORY": str(budget)}) as daemon:
            add_other(daemon)
            self.assertEqual(budget, metric(daemon, "quire_memory_budget_bytes"))
            first = daemon.post("/api/chat", CHAT)
            self.assertEqual(200, first.status, first.text)
            self.assertEqual([f"{MODEL}:latest"], loaded(daemon))
            self.assertEqual(200, daemon.post("/api/chat", CHAT | {"model": "other"}).status)
            self.assertEqual(["other:latest"], loaded(daemon))
            again = daemon.post("/api/chat", CHAT)
            self.assertEqual(first.json["message"], again.json["message"])
            self.assertEqual(2, metric(daemon, 'quire_model_evictions_total{reason="memory"}'))
            self.assertLessEqual(metric(daemon, "quire_memory_predicted_bytes"), budget)

    def test_a_model_kept_for_ever_is_not_ended_and_the_other_refused_with_the_numbers(self):
        budget = int(self.needed() * 1.5)
        with Daemon(SMALL | {"QUIRE_MEMORY": str(budget)}) as daemon:
            add_other(daemon)
            self.assertEqual(200, daemon.post("/api/chat", CHAT | {"keep_alive": -1}).status)
            refused = daemon.post("/api/chat", CHAT | {"model": "other"})
            self.assertEqual(503, refused.status, refused.text)
            self.assertRegex(refused.json["error"], rf"needs \d+ bytes of memory.* limit for all models is {budget} bytes")
            self.assertEqual([f"{MODEL}:latest"], loaded(daemon))

    def test_what_can_never_fit_is_refused_and_ends_nothing(self):
        with Daemon(SMALL | {"QUIRE_MEMORY": "20MiB"}) as daemon:
            refused = daemon.post("/api/chat", CHAT)
            self.assertEqual(503, refused.status, refused.text)
            self.assertIn(f"limit for all models is {20 << 20} bytes", refused.json["error"])
            self.assertEqual(200, daemon.get("/readyz").status)

    def test_weights_beyond_their_budget_stay_in_the_file_and_the_answer_is_the_same(self):
        needed = self.needed()
        with Daemon(SMALL) as daemon:
            expected = daemon.post("/api/chat", CHAT).json["message"]
            self.assertNotIn("streamed", daemon.post("/api/show", {"model": MODEL, "check": True}).json["check"])
        settings = [{"QUIRE_WEIGHTS_BUDGET": "1"}, {"QUIRE_WEIGHTS_BUDGET": "3MiB"}]
        # Memory that threads fill for a product counts too: with many of them it outweighs this small model.
        if os.cpu_count() <= 8:
            settings.append({"QUIRE_MEMORY": str(needed - (3 << 20))})
        for setting in settings:
            with self.subTest(setting), Daemon(SMALL | setting) as daemon:
                check = daemon.post("/api/show", {"model": MODEL, "check": True}).json["check"]
                self.assertTrue(check["loads"], check)
                self.assertGreater(check["streamed"], 1 << 20)
                self.assertRegex(daemon.cli("show", "--check", MODEL).stdout, r"(?m)^\d+\.\d\d GiB of the weights stay in the file")
                answer = daemon.post("/api/chat", CHAT)
                self.assertEqual(200, answer.status, answer.text)
                self.assertEqual(expected, answer.json["message"])
                self.assertIn("of the weights stay in the file", daemon.log())

    def test_a_file_that_shrinks_while_it_is_streamed_costs_the_requests_of_its_model(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        model = large_model(pathlib.Path(folder.name))
        with Daemon(SMALL | {"QUIRE_WEIGHTS_BUDGET": "1"}) as daemon:
            modelfile = pathlib.Path(daemon.folder.name) / "Modelfile"
            modelfile.write_text(f"FROM {model}\n")
            made = daemon.cli("create", "large", "-f", str(modelfile))
            self.assertEqual(0, made.returncode, made.stderr)
            self.assertEqual(200, daemon.post("/api/chat", CHAT | {"model": "large"}).status)
            store = pathlib.Path(daemon.folder.name)
            weights = max((path for path in store.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
            body = story(1) | {"model": "large", "options": {"temperature": 0, "num_predict": 1000}}
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                running = pool.submit(daemon.post, "/api/generate", body)
                while not metric(daemon, "quire_requests_running"):
                    time.sleep(0.01)
                os.truncate(weights, 1 << 20)
                failed = running.result()
            self.assertIn(failed.status, (500, 503), failed.text)
            self.assertIn("SIGBUS", daemon.log())
            corrupt = daemon.post("/api/generate", body)
            self.assertEqual(500, corrupt.status, corrupt.text)
            self.assertIn("corrupt", corrupt.json["error"])
            self.assertEqual(200, daemon.post("/api/chat", CHAT).status)

    def test_a_model_kept_for_ever_comes_back_when_its_runner_dies_idle(self):
        with Daemon(SMALL) as daemon:
            self.assertEqual(200, daemon.post("/api/generate", {"model": MODEL, "keep_alive": -1}).status)
            (first,) = daemon.runner_pids()
            os.kill(first, signal.SIGKILL)
            deadline = time.monotonic() + 60
            # A dead runner's model counts as loaded until the daemon has noticed: only another runner shows
            # that it has.
            while not loaded(daemon) or not set(daemon.runner_pids()) - {first}:
                self.assertLess(time.monotonic(), deadline, daemon.log())
                time.sleep(0.05)
            self.assertEqual(1, metric(daemon, 'quire_runner_restarts_total{reason="killed"}'))


class Group:
    """A control group of its own inside this process's, with a limit of memory; None where there is none."""

    @staticmethod
    def make():
        for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "memory":
                group = Group(pathlib.Path("/sys/fs/cgroup/memory" + path), "memory.limit_in_bytes",
                              "memory.usage_in_bytes", "memory.oom_control")
            elif not controllers and not path.startswith("/.."):
                group = Group(pathlib.Path("/sys/fs/cgroup" + path), "memory.max", "memory.current", "memory.events")
            else:
                continue
            if group.begin():
                return group
        return None

    def __init__(self, parent, limit, usage, events):
        self.folder = parent / f"quire-test-{os.getpid()}"
        self.limit_file, self.usage_file, self.events_file = (self.folder / name for name in (limit, usage, events))

    def begin(self):
        try:
            self.folder.mkdir()
            if self.limit_file.exists():
                return True
            self.folder.rmdir()
        except OSError:
            pass
        return False

    def add(self, pid):
        (self.folder / "cgroup.procs").write_text(str(pid))

    def limit(self, size):
        self.limit_file.write_text(str(size))

    def usage(self):
        return int(self.usage_file.read_text())

    def of_programs(self):
        """Usage without the system's file cache, which the kernel can always take back."""
        stat = dict(line.split() for line in (self.folder / "memory.stat").read_text().splitlines())
        cache = int(stat["file"]) - int(stat["shmem"]) if "file" in stat else int(stat["cache"]) - int(stat.get("shmem", 0))
        return self.usage() - cache

    def kills(self):
        return int(re.search(r"^oom_kill (\d+)", self.events_file.read_text(), re.MULTILINE)[1])

    def end(self):
        for _ in range(100):
            try:
                self.folder.rmdir()
                return
            except OSError:  # the last of its processes is not reaped yet
                time.sleep(0.05)


def story(number):
    # Nothing in common, so that each takes caches of its own.
    words = " ".join(f"{number * 7919 + i * 104729}" for i in range(120))
    return {"model": MODEL, "prompt": words, "raw": True, "stream": False,
            "options": {"temperature": 0, "num_predict": 48, "num_ctx": 4096}}


def large_model(folder):
    """The bundled model with 12 times as many neurons, of which the others add nothing: 68 MB."""
    more = 12
    source = ROOT / "packaging/models/quire-demo"
    for file in source.iterdir():
        if file.name != "model.safetensors":
            shutil.copy(file, folder)
    config = json.loads((source / "config.json").read_text())
    for name in ("intermediate_size", "block_ff_dim"):
        config[name] *= more
    (folder / "config.json").write_text(json.dumps(config))
    stored = (source / "model.safetensors").read_bytes()
    size = int.from_bytes(stored[:8], "little")
    header, data, tensors, end = json.loads(stored[8:8 + size]), stored[8 + size:], [], 0
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        begin, stop = tensor["data_offsets"]
        content = data[begin:stop]
        if "feed_forward" in name:
            rows, columns = tensor["shape"]
            if "w2" in name:
                row = len(content) // rows
                content = b"".join(content[i * row:(i + 1) * row] + bytes(row * (more - 1)) for i in range(rows))
                tensor["shape"] = [rows, columns * more]
            else:
                content *= more
                tensor["shape"] = [rows * more, columns]
        tensor["data_offsets"] = [end, end + len(content)]
        end += len(content)
        tensors.append(content)
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + b"".join(tensors))
    return folder


class OutOfMemory(unittest.TestCase):
    def setUp(self):
        self.group = Group.make()
        if self.group is None:
            self.skipTest("no control group with a limit of memory can be made here")
        self.addCleanup(self.group.end)

    @staticmethod
    def reply(daemon, body):
        """Or nothing: the kernel had no memory for the connection, either."""
        try:
            return daemon.post("/api/generate", body)
        except ConnectionError:
            return None

    def test_the_kernel_takes_the_runner_and_the_service_goes_on(self):
        bodies = [story(number) for number in range(16)]
        # The operator promised more than there is.
        environment = {"QUIRE_CACHE_BYTES": "256MiB", "QUIRE_MEMORY": "4GiB"}
        with Daemon(environment) as daemon:
            expected = [daemon.post("/api/generate", body).json["response"] for body in bodies]
        with Daemon(environment) as daemon:
            self.group.add(daemon.process.pid)
            # As the unit does. Otherwise the kernel takes the daemon when a runner that it killed has not
            # given its memory back yet.
            with contextlib.suppress(PermissionError):
                pathlib.Path(f"/proc/{daemon.process.pid}/oom_score_adj").write_text("-1000")
            self.assertEqual(200, daemon.post("/api/generate", {"model": MODEL}).status)
            (runner,) = daemon.runner_pids()
            score = int(pathlib.Path(f"/proc/{runner}/oom_score_adj").read_text())
            self.assertGreater(score, int(pathlib.Path(f"/proc/{daemon.process.pid}/oom_score_adj").read_text()))
            self.group.limit(self.group.usage() + (14 << 20))  # one needs 7 MiB, all of them 23
            with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
                replies = list(pool.map(lambda body: self.reply(daemon, body), bodies))
            kills = self.group.kills()
            outcomes = {"right": 0, "refused": 0, "lost": 0}
            for reply, right in zip(replies, expected):
                if reply is None:
                    outcomes["lost"] += 1
                    continue
                answer = reply.json
                if "error" in answer:
                    self.assertIn(reply.status, (500, 503), answer)
                    outcomes["refused"] += 1
                else:
                    self.assertEqual(right, answer["response"])
                    outcomes["right"] += 1
            print(f"\n{kills} runners killed for memory, {outcomes}", flush=True)
            self.assertGreater(kills, 0)
            self.assertGreater(outcomes["right"], outcomes["lost"])
            self.assertIsNone(daemon.process.poll(), "the daemon lives")
            self.assertGreaterEqual(metric(daemon, 'quire_runner_restarts_total{reason="killed"}'), 1)
            self.group.limit(2 << 30)
            reply = daemon.post("/api/chat", CHAT)
            self.assertEqual(200, reply.status, reply.text)
            self.assertEqual("Hello! How can I help you?", reply.json["message"]["content"])

    def test_weights_that_stay_in_the_file_cost_no_kill(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        model = large_model(pathlib.Path(folder.name))
        bodies = [story(number) | {"model": "large", "options": {"temperature": 0, "num_predict": 4}} for number in range(3)]

        def answers(setting, group=None):
            with Daemon(SMALL | setting) as daemon:
                if group is not None:
                    group.add(daemon.process.pid)
                modelfile = pathlib.Path(daemon.folder.name) / "Modelfile"
                modelfile.write_text(f"FROM {model}\n")
                made = daemon.cli("create", "large", "-f", str(modelfile))
                self.assertEqual(0, made.returncode, made.stderr)
                if group is not None:
                    check = daemon.post("/api/show", {"model": "large", "check": True}).json["check"]
                    limit = group.of_programs() + check["memory"]  # what the daemon says that suffices
                    group.limit(limit)
                replies = [daemon.post("/api/generate", body) for body in bodies]
                self.assertEqual([200] * len(bodies), [reply.status for reply in replies], replies[0].text)
                if group is not None:
                    # The weights cannot all have been in memory.
                    self.assertGreater(group.of_programs() + check["streamed"], limit + (8 << 20))
                return [reply.json["response"] for reply in replies]

        expected = answers({})
        for threads in ("2", "16"):
            with self.subTest(threads=threads):
                self.group.limit(2 << 30)
                self.assertEqual(expected, answers({"QUIRE_WEIGHTS_BUDGET": "4MiB", "QUIRE_THREADS": threads}, self.group))
                self.assertEqual(0, self.group.kills())


if __name__ == "__main__":
    suites.run()
