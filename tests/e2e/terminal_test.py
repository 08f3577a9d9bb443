#!/usr/bin/env python3
"""`quire run MODEL` in a terminal: a pseudo-terminal is typed into and read as a person would."""
import contextlib
import fcntl
import http.server
import json
import os
import pathlib
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
import unittest

from harness import BIN, MODEL, TIMEOUT_S, Daemon

CTRL_C, CTRL_D, UP = b"\x03", b"\x04", b"\x1b[A"
PASTE, PASTE_END = b"\x1b[200~", b"\x1b[201~"
GRAY, PLAIN = "\x1b[90m", "\x1b[0m"


class Terminal:
    """A conversation in an 80 x 24 terminal. `seen` is everything that was shown and not yet expected."""

    def __init__(self, daemon, *arguments, variables=None):
        self.master, slave = pty.openpty()
        self.resize(80)
        environment = daemon.environment | {"TERM": "vt100", "LC_ALL": "C.UTF-8"} | (variables or {})
        self.process = subprocess.Popen([BIN / "quire", "run", *arguments], env=environment, stdin=slave, stdout=slave,
                                        stderr=slave, start_new_session=True, preexec_fn=self.take_terminal)
        os.close(slave)
        self.seen = b""

    @staticmethod
    def take_terminal():
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)

    def resize(self, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def type(self, keys):
        os.write(self.master, keys if isinstance(keys, bytes) else keys.encode())

    def expect(self, text):
        """Reads until `text` is shown; what came before it."""
        deadline = time.monotonic() + TIMEOUT_S
        while text.encode() not in self.seen:
            ready, _, _ = select.select([self.master], [], [], max(0, deadline - time.monotonic()))
            try:
                piece = os.read(self.master, 65536) if ready else b""
            except OSError:  # the other end is closed
                piece = b""
            if not piece:
                raise AssertionError(f"{text!r} was not shown; seen: {self.seen!r}")
            self.seen += piece
        before, _, self.seen = self.seen.partition(text.encode())
        return before.decode()

    def ends(self):
        """The exit code."""
        return self.process.wait(TIMEOUT_S)


class Conversation(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon().start()

    @classmethod
    def tearDownClass(cls):
        cls.daemon.__exit__(None, None, None)

    def test_turns_history_and_leaving(self):
        history = pathlib.Path(self.daemon.environment["HOME"]) / ".quire_history"
        with Terminal(self.daemon, MODEL) as terminal:
            terminal.expect(">>> ")
            terminal.type("/set parameter temperature 0\r")
            terminal.expect("Set parameter temperature to 0.")
            terminal.expect(">>> ")
            terminal.type("Hello!\r")
            terminal.expect("Hello! How can I help you?")
            terminal.expect(">>> ")
            terminal.type(UP)
            terminal.expect("Hello!")
            terminal.type(CTRL_C)  # a recalled line is dropped, the conversation goes on
            terminal.expect(">>> ")
            terminal.type(CTRL_D)
            self.assertEqual(0, terminal.ends())
        self.assertIn("Hello!", history.read_text())
        self.assertEqual(0o600, history.stat().st_mode & 0o777)
        with Terminal(self.daemon, MODEL) as terminal:
            terminal.expect(">>> ")
            terminal.type(UP)
            terminal.expect("Hello!")
            terminal.type(CTRL_C)
            terminal.expect(">>> ")
            terminal.type("/bye\r")
            self.assertEqual(0, terminal.ends())

    def test_several_lines_are_one_message(self):
        with Terminal(self.daemon, MODEL) as terminal:
            terminal.expect(">>> ")
            terminal.type('"""one\r')
            terminal.expect("... ")
            terminal.type("two\r")
            terminal.expect("... ")
            terminal.type('three"""\r')
            terminal.expect("\r\n\r\n")  # after the answer
            terminal.expect(">>> ")
            terminal.type('"""given up')
            terminal.type("\r")
            terminal.expect("... ")
            terminal.type(CTRL_C)
            terminal.expect(">>> ")
            terminal.type("/bye\r")
            self.assertEqual(0, terminal.ends())

    def test_a_pasted_block_is_one_message(self):
        block = b"# notes/todo\r\tone\r\ntwo \xe2\x82\xac\nthree\r"
        with Terminal(self.daemon, MODEL) as terminal:
            terminal.expect("\x1b[?2004h")
            terminal.expect(">>> ")
            terminal.type(b"Say: " + PASTE + block + PASTE_END)
            terminal.expect("three")
            terminal.type(" and four\r")
            terminal.expect("\r\n\r\n")  # after the only answer
            terminal.expect(">>> ")
            terminal.type(PASTE + b"/tmp/log: a path\ris no command" + PASTE_END)
            terminal.type("\r")
            terminal.expect("\r\n\r\n")
            terminal.expect(">>> ")
            terminal.type(PASTE + b'/set system """one\rtwo"""' + PASTE_END + b"\r")
            terminal.expect("Set system message.")
            terminal.expect(">>> ")
            terminal.type("/save pasted\r")
            terminal.expect("Created new model")
            terminal.type("/bye\r")
            self.assertEqual(0, terminal.ends())
        shown = self.daemon.post("/api/show", {"model": "pasted"}).json
        self.assertEqual("one\ntwo", shown["system"])
        questions = [message["content"] for message in shown["messages"] if message["role"] == "user"]
        self.assertEqual(["Say: # notes/todo\n\tone\ntwo \u20ac\nthree and four", "/tmp/log: a path\nis no command"],
                         questions)

    def test_a_line_is_in_the_history_before_its_answer(self):
        history = pathlib.Path(self.daemon.environment["HOME"]) / ".quire_history"
        with Terminal(self.daemon, MODEL) as terminal:
            terminal.expect(">>> ")
            terminal.type("/set verbose\r")
            terminal.expect("Set verbose mode.")
            self.assertIn("/set\\040verbose", history.read_text())
            terminal.process.kill()

    def test_the_empty_prompt_has_a_hint(self):
        hint = f"{GRAY}Send a message (/? for help){PLAIN}"
        with Terminal(self.daemon, MODEL) as terminal:
            terminal.expect(">>> " + hint)
            terminal.type("x")
            terminal.expect("\x1b[K")  # gone before the key is shown
            terminal.type(b"\x7f")
            terminal.expect(hint)
            terminal.type("/bye\r")
            self.assertEqual(0, terminal.ends())

    def test_settings_are_checked_when_they_are_made(self):
        with Terminal(self.daemon, MODEL) as terminal:
            terminal.expect(">>> ")
            for line, shown in (("/set parameter temperature hot", 'Error: option "temperature" must be'),
                                ("/set parameter top_k 0.5", 'Error: option "top_k" must be'),
                                ("/set parameter temprature 1", 'Error: unknown parameter "temprature"'),
                                ("/set think very", 'Error: thinking must be one of true, false, low'),
                                ("/set format xml", "Error: the format must be json"),
                                ("/set think high", "does not support thinking"),
                                ("/set think false", "Set 'think' mode to false.")):
                terminal.type(line + "\r")
                terminal.expect(shown)
                terminal.expect(">>> ")
            terminal.type("/show parameters\r")
            self.assertNotIn("Set in this session", terminal.expect(">>> "))
            terminal.type("/bye\r")
            self.assertEqual(0, terminal.ends())

    def test_thinking_is_gray(self):
        question = "What is 38 + 47?"
        for variables, gray, plain in (({}, GRAY, PLAIN), ({"NO_COLOR": "1"}, "", "")):
            with Terminal(self.daemon, MODEL, variables=variables) as terminal:
                terminal.expect(">>> ")
                for line in ("/set system Think step by step before you answer.", "/set parameter temperature 0"):
                    terminal.type(line + "\r")
                    terminal.expect("Set ")
                    terminal.expect(">>> ")
                terminal.type(question + "\r")
                terminal.expect(question + "\r\n")
                before = terminal.expect("Thinking...")
                self.assertEqual(gray != "", before.endswith(GRAY))
                terminal.expect("...done thinking.\r\n\r\n" + plain)
                self.assertNotIn(GRAY, terminal.expect("85."))
                terminal.type("/bye\r")
                self.assertEqual(0, terminal.ends())

    def test_ctrl_c_at_the_prompt_does_not_leave(self):
        with Terminal(self.daemon, MODEL) as terminal:
            terminal.expect(">>> ")
            terminal.type(CTRL_C)
            terminal.expect("Ctrl-D or /bye")
            terminal.expect(">>> ")
            terminal.type("/bye\r")
            self.assertEqual(0, terminal.ends())

    def test_ctrl_c_stops_an_answer_whenever_it_comes(self):
        with Terminal(self.daemon, MODEL) as terminal:
            terminal.expect(">>> ")
            (runner,) = self.daemon.runner_pids()
            os.kill(runner, signal.SIGSTOP)
            try:
                for wait in (False, True, False, True):
                    terminal.type("Hello!\r")
                    terminal.expect("Hello!\r\n")
                    if wait:
                        self.wait_for_request()
                    terminal.type(CTRL_C)
                    terminal.expect(">>> ")
            finally:
                with contextlib.suppress(ProcessLookupError):  # on a slow machine the daemon ends one that says nothing
                    os.kill(runner, signal.SIGCONT)
            terminal.type("/bye\r")
            self.assertEqual(0, terminal.ends())

    def wait_for_request(self):
        """Until the client has a connection to the daemon."""
        deadline = time.monotonic() + TIMEOUT_S
        wanted = [f"0100007F:{self.daemon.port:04X}", "01"]  # remote address, established
        while not any(line.split()[2:4] == wanted for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def test_lines_break_between_words_at_the_width_of_the_moment(self):
        question = "What is a prefix cache?"
        with Terminal(self.daemon, MODEL) as terminal:
            terminal.expect(">>> ")
            terminal.type("/set parameter temperature 0\r")
            terminal.expect(">>> ")
            terminal.resize(40)
            terminal.type(question + "\r")
            terminal.expect(question + "\r\n")
            shown = terminal.expect(">>> ")
            self.assertIn("A prefix cache keeps the state of", shown)
            lines = [line for line in shown.replace("\r", "").split("\n") if "\x1b" not in line]
            self.assertTrue(lines)
            self.assertLessEqual(max(map(len, lines)), 40)
            terminal.type("/bye\r")
            self.assertEqual(0, terminal.ends())

    def test_set_show_load_and_save(self):
        with Terminal(self.daemon, MODEL) as terminal:
            def does(line, *shown):
                terminal.type(line + "\r")
                for text in shown:
                    terminal.expect(text)
                terminal.expect(">>> ")

            terminal.expect(">>> ")
            does("/set", "/set system TEXT")
            does("/set system Be brief.", "Set system message.")
            does("/show system", "Be brief.")
            does("/set parameter temperature 0", "Set parameter temperature to 0.")
            does('/set parameter stop "AAA" "B B"', "Set parameter stop")
            does("/show parameters", "Set in this session:", "temperature", '["AAA","B B"]')
            does("/set nowordwrap", "Set nowordwrap mode.")
            does("/set nohistory", "Set nohistory mode.")
            does("/set verbose", "Set verbose mode.")
            does("Hello!", "eval rate:")
            does("/set quiet", "Set quiet mode.")
            does("/show info", "architecture")
            does("/show license", "\r\n")
            does("/show", "/show modelfile")
            does("/save kept", "Created new model 'kept'.")
            does("/load kept", "Loaded model 'kept'.")
            does("/show modelfile", "FROM ", "SYSTEM Be brief.", "PARAMETER temperature 0", "MESSAGE user Hello!")
            does("/load nobody", "not found")
            does("/clear", "Cleared session context.")
            does("/nonsense", "Unknown command '/nonsense'")
            does("/?", "/save NAME")
            terminal.type("/bye\r")
            self.assertEqual(0, terminal.ends())
        shown = self.daemon.post("/api/show", {"model": "kept"}).json
        self.assertEqual(shown["system"], "Be brief.")
        self.assertEqual(shown["messages"][0], {"role": "user", "content": "Hello!"})
        history = pathlib.Path(self.daemon.environment["HOME"]) / ".quire_history"
        self.assertNotIn("nonsense", history.read_text() if history.exists() else "")

    def test_a_system_message_of_several_lines(self):
        with Terminal(self.daemon, MODEL) as terminal:
            terminal.expect(">>> ")
            terminal.type('/set system """one\r')
            terminal.expect("... ")
            terminal.type('two"""\r')
            terminal.expect("Set system message.")
            terminal.expect(">>> ")
            terminal.type("/show system\r")
            terminal.expect("one\r\ntwo")
            terminal.expect(">>> ")
            terminal.type("/bye\r")
            self.assertEqual(0, terminal.ends())

    def test_an_unknown_model_is_told_at_once(self):
        with Terminal(self.daemon, "127.0.0.1:1/library/no-such-model") as terminal:
            terminal.expect("is not here; pulling it")
            terminal.expect("Error: ")
            self.assertEqual(1, terminal.ends())


class SlowServer(http.server.ThreadingHTTPServer):
    """Answers a chat in two pieces, each when the test wants it: the progress of the prompt, and the answer."""

    def __init__(self):
        steps = self.steps = [threading.Event(), threading.Event()]
        progress = {"total": 36013, "cache": 0, "processed": 12000, "time_ms": 60000}
        self.models = models = []  # of /api/ps
        lines = [{"message": {"role": "assistant", "content": ""}, "done": False, "prompt_progress": progress},
                 {"message": {"role": "assistant", "content": "ok"}, "done": True}]

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.reply([json.dumps({"models": models}).encode()])

            def do_POST(self):
                self.body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path == "/api/show":
                    return self.reply([b"{}"])
                assert self.body["return_progress"] is True
                self.reply(self.lines())

            def lines(self):
                for step, line in zip(steps, lines):
                    step.wait(TIMEOUT_S)
                    yield json.dumps(line).encode() + b"\n"

            def reply(self, pieces):
                self.send_response(200)
                self.end_headers()
                for piece in pieces:
                    self.wfile.write(piece)

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def environment(self):
        return os.environ | {"OLLAMA_HOST": f"127.0.0.1:{self.server_port}"}


class Waiting(unittest.TestCase):
    def test_a_request_that_gets_no_answer_waits(self):
        with Daemon() as daemon, Terminal(daemon, MODEL) as terminal:
            terminal.expect(">>> ")
            (runner,) = daemon.runner_pids()
            os.kill(runner, signal.SIGSTOP)
            try:
                terminal.type("Hello!\r")
                terminal.expect("waiting for " + MODEL)
            finally:
                os.kill(runner, signal.SIGCONT)
            terminal.expect("\r\x1b[K")
            terminal.expect(">>> ")
            terminal.type("/bye\r")
            self.assertEqual(0, terminal.ends())

    def test_load_and_prompt_are_shown_in_one_line(self):
        server = SlowServer()
        with Terminal(server, "slow", "a long prompt") as terminal:
            terminal.expect("loading slow")
            server.models.append({"name": "slow:latest", "loading": {"progress": 0.42, "stage": "quantizing weights"}})
            terminal.expect("loading slow (42%, quantizing weights)")
            server.models[:] = [{"name": "slow:latest"}]
            terminal.expect("waiting for slow")
            server.steps[0].set()
            terminal.expect("prefilling 12,000 of 36,013 tokens, 200 tokens/s, 2 min 1 s left")
            server.steps[1].set()
            self.assertNotIn("\n", terminal.expect("\r\x1b[Kok"))
            self.assertEqual(0, terminal.ends())
        server.shutdown()
        server.server_close()


def need_terminals():
    """Ends as skipped (77) where there are none, as in a chroot without /dev/pts."""
    try:
        for end in pty.openpty():
            os.close(end)
    except OSError as error:
        print(f"not run: no pseudo-terminals here: {error}")
        sys.exit(77)


if __name__ == "__main__":
    need_terminals()
    unittest.main(verbosity=2)
