"""Known attack classes, tried on the real daemon: docs/security.md has the guarantees."""
import concurrent.futures
import gzip
import json
import os
import pathlib
import re
import signal
import threading
import time
import unittest

from harness import MODEL, Daemon
from harness import greedy as streamed


def greedy(content, **options):
    return streamed(content, **options) | {"stream": False}


def status_of(pid, name):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return re.search(rf"^{name}:\s*(\S+)", text, re.M)[1]


def held_by(pid):
    """What the descriptors of a process are."""
    held = []
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            held.append(os.readlink(fd))
        except FileNotFoundError:
            pass
    return held


def resident_bytes(pid):
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Confinement(unittest.TestCase):
    def test_a_runner_at_work_has_no_way_out(self):
        with Daemon() as daemon:
            self.assertEqual(daemon.post("/api/chat", greedy("Hello")).status, 200)
            (runner,) = daemon.runner_pids()
            if b"__asan" in pathlib.Path(f"/proc/{runner}/exe").read_bytes() or \
                    b"__tsan" in pathlib.Path(f"/proc/{runner}/exe").read_bytes():
                self.skipTest("runners are not confined in builds with a sanitizer")
            for thread in pathlib.Path(f"/proc/{runner}/task").iterdir():
                state = (thread / "status").read_text()
                self.assertIn("Seccomp:\t2", state)
                self.assertIn("NoNewPrivs:\t1", state)
            self.assertEqual(status_of(runner, "Seccomp_filters"), "3")
            # Nothing of the daemon's is inherited but the link: no listening socket, no client, no file of
            # the store.
            held = held_by(runner)
            self.assertLessEqual(sum(name.startswith("socket:") for name in held), 1, held)
            # Nor a file of its model, which is mapped by now.
            self.assertTrue(all(name.startswith(("socket:", "pipe:", "anon_inode:")) or name == "/dev/null"
                                for name in held), held)
            self.assertIn("/models/blobs/", pathlib.Path(f"/proc/{runner}/maps").read_text())
            self.assertEqual(pathlib.Path(f"/proc/{runner}/oom_score_adj").read_text().strip(), "500")

    def test_the_last_words_of_a_runner_reach_the_log(self):
        with Daemon() as daemon:
            self.assertEqual(daemon.post("/api/chat", greedy("Hello")).status, 200)
            (runner,) = daemon.runner_pids()
            if b"__asan" in pathlib.Path(f"/proc/{runner}/exe").read_bytes() or \
                    b"__tsan" in pathlib.Path(f"/proc/{runner}/exe").read_bytes():
                self.skipTest("the sanitizer handles this signal")
            os.kill(runner, signal.SIGSEGV)
            line = (f'runner output model={MODEL}:latest runner_pid={runner} '
                    f'text="quire-runner: SIGSEGV sent by process {os.getpid()} of user {os.getuid()}"')
            death = f'runner died model={MODEL}:latest runner_pid={runner} error="the model runner died: killed by ' \
                    'signal 11 (SIGSEGV) from another process"'
            deadline = time.monotonic() + 60
            while line not in daemon.log() or death not in daemon.log():
                self.assertLess(time.monotonic(), deadline, daemon.log())
                time.sleep(0.02)

    def test_no_descriptor_of_a_model_is_left_anywhere(self):
        with Daemon() as daemon:
            store = pathlib.Path(daemon.environment["OLLAMA_MODELS"])
            reply = daemon.post("/api/create", {"model": "other", "from": MODEL, "stream": False,
                                                "parameters": {"num_ctx": 512}})
            self.assertEqual(reply.status, 200, reply.text)
            weights = max(store.glob("blobs/sha256-*"), key=lambda path: path.stat().st_size)

            def load(model):
                return daemon.post("/api/generate", {"model": model, "keep_alive": 60})

            def unload_all():
                for model in (MODEL, "other"):
                    daemon.post("/api/generate", {"model": model, "keep_alive": 0})
                deadline = time.monotonic() + 60
                while daemon.runner_pids():
                    self.assertLess(time.monotonic(), deadline, "a runner does not end")
                    time.sleep(0.02)

            self.assertEqual(load(MODEL).status, 200)
            self.assertEqual(load("other").status, 200)
            runners = daemon.runner_pids()
            self.assertEqual(len(runners), 2)
            for pid in (*runners, daemon.process.pid):
                self.assertFalse([name for name in held_by(pid) if "/models/" in name], pid)
            unload_all()
            before = len(held_by(daemon.process.pid))
            aside = weights.with_name("aside")
            for number in range(50):
                if number % 2 == 0:
                    self.assertEqual(load(MODEL).status, 200)
                else:
                    weights.rename(aside)
                    if number % 4 == 3:
                        weights.write_bytes(b"GGUF")
                    self.assertIn(load(MODEL).status, (404, 500))
                    self.assertIn(daemon.post("/api/show", {"model": MODEL, "verbose": True}).status, (404, 500))
                    aside.rename(weights)
                unload_all()
            self.assertLessEqual(len(held_by(daemon.process.pid)), before + 1, held_by(daemon.process.pid))
            self.assertFalse([name for name in held_by(daemon.process.pid) if "/models/blobs" in name])


class Requests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon().start()

    @classmethod
    def tearDownClass(cls):
        cls.daemon.__exit__(None, None, None)

    def test_a_clients_request_id_names_nothing(self):
        prompts = [f"Tell me about number {i}." for i in range(32)]
        alone = [self.daemon.post("/api/chat", greedy(prompt, num_predict=16)).json["message"]["content"]
                 for prompt in prompts]

        def ask(prompt):
            reply = self.daemon.request("POST", "/api/chat", greedy(prompt, num_predict=16),
                                        {"X-Request-Id": "one-and-the-same"})
            return reply.json["message"]["content"], reply.headers["X-Request-Id"]

        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            together = list(pool.map(ask, prompts))
        self.assertEqual([answer for answer, _ in together], alone)
        self.assertEqual(len({own for _, own in together}), len(prompts))

    def test_compressed_bodies_are_decoded_within_the_bound_of_bodies(self):
        bomb = gzip.compress(b" " * (200 << 20))
        before = resident_bytes(self.daemon.process.pid)
        for path in ("/api/chat", "/v1/chat/completions", "/v1/messages"):
            reply = self.daemon.request("POST", path, bomb, {"Content-Encoding": "gzip"})
            self.assertEqual(reply.status, 413)
        self.assertLess(resident_bytes(self.daemon.process.pid) - before, 192 << 20)
        self.assertEqual(self.daemon.get("/livez").status, 200)

    def test_errors_do_not_tell_which_files_exist(self):
        def answer_about(path):
            bodies = []
            for request in ({"model": "new", "from": path}, {"model": "new", "files": {path: "sha256:" + "0" * 64}},
                            {"model": "new", "files": {"m.gguf": path}}, {"model": "new", "adapters": {"a": path}}):
                reply = self.daemon.post("/api/create", request)
                bodies.append((reply.status, reply.body.decode().replace(path, "PATH")))
            for route in ("/api/pull", "/api/push"):
                reply = self.daemon.post(route, {"model": path, "stream": False})
                bodies.append((reply.status, reply.body.decode().replace(path, "PATH")))
            return bodies

        there, absent = answer_about("/etc/passwd"), answer_about("/etc/nobody")
        self.assertEqual(there, absent)
        self.assertTrue(all(status >= 400 or b'"error"' in body.encode() for status, body in there), there)

    def test_foreign_pages_are_refused_on_every_kind_of_request(self):
        body = json.dumps(greedy("Hello"))
        for headers in ({"Host": "evil.example"}, {"Host": "evil.example:11434"}, {"Origin": "https://evil.example"},
                        {"Origin": "null"}, {"Origin": "https://evil.example", "Content-Type": "text/plain"}):
            for method, path in (("GET", "/api/tags"), ("POST", "/api/chat"), ("DELETE", "/api/delete"),
                                 ("GET", "/metrics"), ("OPTIONS", "/api/chat")):
                reply = self.daemon.request(method, path, body if method == "POST" else None, headers)
                said = b'{"error":"host or origin not allowed; see OLLAMA_ORIGINS"}'
                self.assertEqual((reply.status, reply.body), (403, said), (method, path, headers))


class Unloading(unittest.TestCase):
    """Models that are unloaded at every moment while clients ask for them, list them and look at them."""

    SECONDS = float(os.environ.get("QUIRE_HAMMER_SECONDS", "15"))

    def test_unloads_race_requests(self):
        with Daemon({"OLLAMA_MAX_QUEUE": "64"}) as daemon:
            want = daemon.post("/api/chat", greedy("Hello", num_predict=4)).json["message"]["content"]
            ended = time.monotonic() + self.SECONDS
            wrong = []
            counts = {"answers": 0, "others": 0}
            lock = threading.Lock()

            def ask(number):
                while time.monotonic() < ended:
                    body = greedy("Hello", num_predict=4) | {"keep_alive": (0, "1ms", 1)[number % 3]}
                    reply = daemon.post("/api/chat", body)
                    good = reply.status == 200 and reply.json["message"]["content"] == want
                    with lock:
                        counts["answers"] += good
                        if not good and reply.status not in (500, 503):
                            wrong.append((reply.status, reply.body[:200]))
                        elif not good:
                            counts["others"] += 1

            def look(number):
                while time.monotonic() < ended:
                    method, path, body = (("GET", "/api/ps", None), ("GET", "/metrics", None),
                                          ("POST", "/tokenize", {"model": MODEL, "content": "Hello there"}),
                                          ("POST", "/api/generate", {"model": MODEL, "keep_alive": 0}))[number % 4]
                    reply = daemon.request(method, path, body)
                    if reply.status not in (200, 500, 503):
                        with lock:
                            wrong.append((path, reply.status, reply.body[:200]))

            threads = [threading.Thread(target=target, args=[i]) for target in (ask, look) for i in range(12)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertFalse(wrong, wrong[:5])
            self.assertGreater(counts["answers"], 0)
            self.assertLess(counts["others"], counts["answers"] + 1, counts)
            self.assertEqual(daemon.post("/api/chat", greedy("Hello", num_predict=4)).json["message"]["content"], want)
            self.assertEqual(len(daemon.runner_pids()), 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
