#!/usr/bin/env python3
"""`quire` outside of a terminal: pipes, write errors, keys, help, and the start of coding agents."""
import http.server
import json
import os
import pathlib
import stat
import subprocess
import threading
import unittest

from harness import BIN, MODEL, TIMEOUT_S, Daemon


class Recorder(http.server.ThreadingHTTPServer):
    """Answers every request with one line, and keeps what it was asked."""

    def __init__(self):
        requests = self.requests = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                requests.append((self.path, dict(self.headers), json.loads(body)))
                reply = b'{"message":{"role":"assistant","content":"ok"},"done":true}\n'
                self.send_response(200)
                self.send_header("Content-Length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def run_cli(self, *arguments, stdin=subprocess.DEVNULL, **variables):
        environment = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
        environment |= {"OLLAMA_HOST": f"127.0.0.1:{self.server_port}"} | variables
        source = {"input": stdin} if isinstance(stdin, str) else {"stdin": stdin}
        return subprocess.run([BIN / "quire", *arguments], env=environment, text=True, capture_output=True,
                              timeout=TIMEOUT_S, **source)


class Requests(unittest.TestCase):
    def setUp(self):
        self.server = Recorder()

    def tearDown(self):
        self.server.shutdown()
        self.server.server_close()

    def question(self):
        return self.server.requests[-1][2]["messages"][-1]["content"]

    def test_input_comes_before_the_arguments(self):
        reply = self.server.run_cli("run", MODEL, "Summarize", "this", stdin="a\nb\n")
        self.assertEqual((0, "ok\n"), (reply.returncode, reply.stdout))
        self.assertEqual("a\nb\n Summarize this", self.question())
        self.server.run_cli("run", MODEL, "Hello")
        self.assertEqual("Hello", self.question())
        self.server.run_cli("run", MODEL, stdin="only input")
        self.assertEqual("only input", self.question())

    def test_progress_is_only_for_terminals(self):
        self.server.run_cli("run", MODEL, "Hello")
        self.assertEqual(["/api/show", "/api/show", "/api/chat"], [path for path, _, _ in self.server.requests])
        self.assertNotIn("return_progress", self.server.requests[1][2])

    def test_an_empty_prompt_loads_the_model(self):
        reply = self.server.run_cli("run", MODEL, "")
        self.assertEqual((0, ""), (reply.returncode, reply.stdout))
        self.assertEqual([("/api/show", {"model": MODEL}), ("/api/generate", {"model": MODEL})],
                         [(path, body) for path, _, body in self.server.requests])

    def test_keys(self):
        for variables, expected in (({}, None), ({"OLLAMA_API_KEY": "o"}, "Bearer o"),
                                    ({"QUIRE_API_KEY": "q", "OLLAMA_API_KEY": "o"}, "Bearer q"),
                                    ({"QUIRE_API_KEY": "", "OLLAMA_API_KEY": "o"}, "Bearer o")):
            self.server.run_cli("run", MODEL, "Hello", **variables)
            self.assertEqual(expected, self.server.requests[-1][1].get("Authorization"))

    def test_think_takes_known_words_only(self):
        reply = self.server.run_cli("run", MODEL, "--think=very", "Hello")
        self.assertEqual(1, reply.returncode)
        self.assertIn('thinking must be one of true, false, low, medium, high, max, not "very"', reply.stderr)
        self.assertEqual([], self.server.requests)


class Output(unittest.TestCase):
    def test_write_errors_are_errors(self):
        with Daemon() as daemon, open("/dev/full", "w") as full:
            for command in (["list"], ["--help"], ["--version"], ["help", "run"], ["show", MODEL],
                            ["run", MODEL, "Hello!"]):
                done = subprocess.run([BIN / "quire", *command], env=daemon.environment, stdin=subprocess.DEVNULL,
                                      stdout=full, stderr=subprocess.PIPE, text=True, timeout=TIMEOUT_S)
                self.assertEqual(1, done.returncode, command)
                self.assertIn("Error: cannot write to standard output", done.stderr, command)
                if not command[0].startswith("--"):  # those are printed by the library, which keeps no reason
                    self.assertIn("No space left on device", done.stderr, command)
                self.assertEqual(1, done.stderr.count("\n"), done.stderr)

    def test_help(self):
        daemon = Daemon()
        self.addCleanup(daemon.folder.cleanup)
        self.assertIn("Subcommands", daemon.cli("help").stdout)
        self.assertEqual(daemon.cli("run", "--help").stdout, daemon.cli("help", "run").stdout)
        self.assertEqual(daemon.cli("list", "--help").stdout, daemon.cli("help", "ls").stdout)
        unknown = daemon.cli("help", "dance")
        self.assertEqual(1, unknown.returncode)
        self.assertIn('unknown command "dance"', unknown.stderr)


class Launch(unittest.TestCase):
    """With programs in place of the agents, which print how they were started."""

    AGENTS = ("claude", "codex", "opencode", "qwen", "cline", "continue", "copilot", "grok", "pi")
    CLIENTS = (*AGENTS, "aider", "open-webui")
    VARIABLES = {"claude": "ANTHROPIC_BASE_URL", "qwen": "OPENAI_BASE_URL", "opencode": "OPENCODE_CONFIG",
                 "open-webui": "OPENAI_API_BASE_URL"}

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon({"OLLAMA_API_KEY": ""}).start()
        programs = pathlib.Path(cls.daemon.folder.name) / "programs"
        programs.mkdir()
        for name in ("claude", "codex", "opencode", "qwen", "cline", "cn", "copilot", "grok", "pi", "aider", "open-webui"):
            program = programs / name
            program.write_text("#!/bin/sh\nprintf 'started %s:' \"${0##*/}\"\nprintf ' [%s]' \"$@\"\necho\n"
                               "env | grep -E '^(ANTHROPIC|OPENAI|OPENCODE|CLAUDE)' | sort\n")
            program.chmod(program.stat().st_mode | stat.S_IXUSR)
        cls.daemon.environment["PATH"] = f"{programs}:{cls.daemon.environment['PATH']}"
        cls.folder = pathlib.Path(cls.daemon.environment["HOME"]) / "config"
        cls.daemon.environment["XDG_CONFIG_HOME"] = str(cls.folder)

    @classmethod
    def tearDownClass(cls):
        cls.daemon.__exit__(None, None, None)

    def test_print_only_prints(self):
        other = pathlib.Path(self.daemon.environment["HOME"]) / "other"
        self.daemon.environment["XDG_CONFIG_HOME"] = str(other)
        self.addCleanup(self.daemon.environment.update, XDG_CONFIG_HOME=str(self.folder))
        for client in self.CLIENTS:
            shown = self.daemon.cli("launch", client, "--print", "--model", MODEL)
            self.assertEqual(0, shown.returncode, shown.stderr)
            self.assertIn(f"127.0.0.1:{self.daemon.port}", shown.stdout)
            self.assertNotIn("started", shown.stdout)
        self.assertFalse(other.exists())

    def test_every_client_is_started_with_its_settings(self):
        for client in self.CLIENTS:
            done = self.daemon.cli("launch", client, "--", "-p", "two words")
            self.assertEqual(0, done.returncode, done.stderr)
            shown, _, started = done.stdout.partition("started ")
            self.assertIn(f"127.0.0.1:{self.daemon.port}", shown)
            self.assertTrue(started.partition("\n")[0].endswith("[-p] [two words]"), started)
            if client in self.VARIABLES:
                self.assertIn(self.VARIABLES[client] + "=", started)
            self.assertEqual(client in self.AGENTS, "too few for most agents" in done.stderr, client)
        opencode = self.folder / "quire/launch/opencode.json"
        self.assertEqual(f"quire/{MODEL}:latest", json.loads(opencode.read_text())["model"])
        self.assertEqual(0o600, opencode.stat().st_mode & 0o777)

    def test_what_cannot_be_started_is_named(self):
        unknown = self.daemon.cli("launch", "emacs")
        self.assertIn('unknown client "emacs"; known are claude, codex', unknown.stderr)
        missing = self.daemon.cli("launch", "claude", "--model", "no-such-model")
        self.assertEqual((1, 1), (unknown.returncode, missing.returncode))
        self.assertIn("no-such-model", missing.stderr)
        environment = self.daemon.environment | {"PATH": "/nonexistent"}
        absent = subprocess.run([BIN / "quire", "launch", "qwen", "--model", MODEL], env=environment, text=True,
                                stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S)
        self.assertEqual(1, absent.returncode)
        self.assertIn("qwen is not installed; install it with: npm install -g @qwen-code/qwen-code", absent.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
