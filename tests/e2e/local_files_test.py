"""`quire` beside its daemon: files and folders as models, Unix sockets, answers without end, and what errors say."""
import fcntl
import http.server
import json
import os
import pathlib
import pty
import shutil
import struct
import subprocess
import tempfile
import termios
import threading
import unittest

import suites
from evil_registry import Evil
from harness import BIN, ROOT, TIMEOUT_S, Daemon
from standin_hub import sha256

MODELS = ROOT / "packaging/models"
WEIGHTS = MODELS / "quire-demo-Q8_0.gguf"


class Files(unittest.TestCase):
    def setUp(self):
        self.daemon = self.enterContext(Daemon())
        self.folder = pathlib.Path(self.daemon.folder.name) / "files"
        self.folder.mkdir()
        self.file = self.folder / "My model.gguf"
        shutil.copy(WEIGHTS, self.file)

    def blob(self):
        return pathlib.Path(self.daemon.folder.name) / "models/blobs" / f"sha256-{sha256(WEIGHTS.read_bytes())}"

    def run_file(self, path, **variables):
        ran = subprocess.run([BIN / "quire", "run", path, "Hello!"], env=self.daemon.environment | variables, text=True,
                             capture_output=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL, cwd=self.folder)
        return ran

    def test_a_file_is_linked_once_and_chats(self):
        first = self.run_file("./My model.gguf")
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertTrue(first.stdout.strip())
        self.assertIn("linked My model.gguf into the store", first.stderr)
        self.assertEqual(self.blob().stat().st_ino, self.file.stat().st_ino)
        (name,) = [model["name"] for model in self.daemon.get("/api/tags").json["models"] if model["name"].startswith("file/")]
        self.assertRegex(name, r"^file/my_model:[0-9a-f]{12}$")
        again = self.run_file(self.file)
        self.assertEqual((again.returncode, again.stderr), (0, ""))
        self.assertTrue(again.stdout.strip())
        # Another file of that name is another model.
        self.file.unlink()
        shutil.copy(MODELS / "quire-demo-F16.gguf", self.file)
        other = self.run_file(self.file)
        self.assertEqual(other.returncode, 0, other.stderr)
        self.assertIn("success", other.stderr)
        self.assertEqual(self.blob().read_bytes(), WEIGHTS.read_bytes())

    def test_a_file_that_is_rewritten_leaves_no_wrong_blob(self):
        self.assertEqual(self.run_file(self.file).returncode, 0)
        self.assertTrue(self.blob().exists())
        self.file.write_bytes((MODELS / "quire-demo-F16.gguf").read_bytes())  # in place
        self.assertEqual(self.run_file(self.file).returncode, 0)
        self.assertFalse(self.blob().exists())

    def test_a_model_that_is_created_is_no_link(self):
        made = self.daemon.cli("create", "mine", "-f", "-", stdin=f"FROM {self.file}\n")
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertRegex(made.stderr, "(copied|cloned) My model.gguf into the store")
        self.assertNotEqual(self.blob().stat().st_ino, self.file.stat().st_ino)

    def test_a_store_of_another_daemon_is_left_alone_and_the_file_sent(self):
        other = self.folder / "other"
        (other / "blobs").mkdir(parents=True)
        ran = self.run_file(self.file, OLLAMA_MODELS=str(other))
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertNotIn("linked", ran.stderr)
        self.assertEqual(list((other / "blobs").iterdir()), [])
        self.assertNotEqual(self.blob().stat().st_ino, self.file.stat().st_ino)

    def test_a_file_of_another_file_system_is_copied(self):
        shm = pathlib.Path("/dev/shm")
        if not os.access(shm, os.W_OK) or shm.stat().st_dev == self.folder.stat().st_dev:
            self.skipTest("no other file system")
        with tempfile.TemporaryDirectory(dir=shm) as folder:
            file = pathlib.Path(folder) / "demo.gguf"
            shutil.copy(WEIGHTS, file)
            ran = self.run_file(file)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertIn("copied demo.gguf into the store", ran.stderr)
        self.assertEqual(self.blob().read_bytes(), WEIGHTS.read_bytes())

    def test_a_folder_and_what_is_none(self):
        ran = self.run_file(f"{MODELS}/quire-demo/")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertTrue(ran.stdout.strip())
        for path, why in (("./absent.gguf", "no such file"), (f"{ROOT}/docs/", "no *.gguf")):
            ran = self.run_file(path)
            self.assertEqual(ran.returncode, 1, path)
            self.assertIn(why, ran.stderr)


class Speaker(http.server.ThreadingHTTPServer):
    """Answers every question with one piece over and over, and counts them."""

    def __init__(self, shown):
        server = self
        self.pieces, self.asked = 0, []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.answer([b'{"models": []}'])

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path == "/api/show":
                    return self.answer([json.dumps(shown).encode()])
                server.asked.append((self.path, body))
                self.answer(self.endless())

            def endless(self):
                while True:
                    server.pieces += 1
                    yield json.dumps({"message": {"role": "assistant", "content": "3<"}, "done": False}).encode() + b"\n"

            def answer(self, pieces):
                self.send_response(200)
                self.end_headers()
                try:
                    for piece in pieces:
                        self.wfile.write(piece)
                except OSError:  # it has heard enough
                    pass

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def cli(self, *arguments):
        return subprocess.run([BIN / "quire", *arguments], env=os.environ | {"OLLAMA_HOST": f"127.0.0.1:{self.server_port}"},
                              text=True, capture_output=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL)

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


def bare_gguf(data):
    """The file without its chat template, whose key is renamed."""
    key = b"tokenizer.chat_template"
    assert data.count(key) == 1
    return data.replace(key, b"tokenizer.chat_templatX")


class WithoutEnd(unittest.TestCase):
    def test_an_answer_that_repeats_itself_is_stopped(self):
        with Speaker({}) as server:
            ran = server.cli("run", "some", "Hello")
            self.assertEqual(ran.returncode, 0, ran.stderr)
            self.assertIn("stopped: the answer repeats itself", ran.stderr)
            self.assertLess(len(ran.stdout), 2048)

    def test_a_model_without_a_template_of_its_own_completes_a_bounded_text(self):
        note = "no chat template: using the Gemma 3 format, from the vocabulary; a TEMPLATE replaces it"
        with Speaker({"template": "x", "repairs": [note]}) as server:
            ran = server.cli("run", "base", "Once upon")
            self.assertIn("base has no chat template of its own: completing each text by itself", ran.stderr)
            ((path, body),) = server.asked
            self.assertEqual((path, body["prompt"], body["raw"], body["options"]),
                             ("/api/generate", "Once upon", True, {"num_predict": 512}))
        with Speaker({"template": "x", "repairs": [note], "parameters": "num_predict    7"}) as server:
            server.cli("run", "base", "Once upon")
            self.assertNotIn("options", server.asked[0][1])

    def test_a_base_model_says_where_it_stopped(self):
        with Daemon() as daemon:
            path = pathlib.Path(daemon.folder.name) / "base.gguf"
            path.write_bytes(bare_gguf(WEIGHTS.read_bytes()))
            ran = daemon.cli("run", str(path), "Once upon a time")
            self.assertEqual(ran.returncode, 0, ran.stderr)
            self.assertIn("completing each text by itself", ran.stderr)
            self.assertTrue(ran.stdout.strip())


class Sockets(unittest.TestCase):
    def test_a_unix_socket_beside_an_address_and_in_place_of_one(self):
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/quire.sock"
            with Daemon({"QUIRE_UNIX_SOCKET": path}) as daemon:
                daemon.environment["OLLAMA_HOST"] = f"unix://{path}"
                listed = daemon.cli("list")
                self.assertIn("quire-demo", listed.stdout, listed.stderr)
                del daemon.environment["OLLAMA_HOST"]  # QUIRE_UNIX_SOCKET says it, too
                self.assertIn("quire-demo", daemon.cli("list").stdout)
                looked = daemon.cli("doctor")
                self.assertRegex(looked.stdout, rf"ok    daemon: version [0-9.]+ answers at unix://{path}\n")
            gone = daemon.cli("list")
            self.assertEqual(gone.returncode, 1)
            self.assertIn(f"could not connect to unix://{path}", gone.stderr)
            self.assertIn('start a daemon with "quire serve"', gone.stderr)
            environment = os.environ | {"HOME": folder, "OLLAMA_HOST": f"unix://{path}", "OLLAMA_MODELS": f"{folder}/models"}
            server = subprocess.Popen([BIN / "quire", "serve"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                      text=True)
            for line in server.stderr:
                if "listening" in line:
                    break
            self.assertIn(f"address=unix:{path}", line)
            listed = subprocess.run([BIN / "quire", "list"], env=environment, text=True, capture_output=True, timeout=TIMEOUT_S)
            self.assertIn("quire-demo", listed.stdout, listed.stderr)
            server.terminate()
            server.communicate()
            self.assertEqual(server.returncode, 0)


class Errors(unittest.TestCase):
    def test_no_daemon_is_a_note_of_the_doctor_with_the_way_to_start_one(self):
        daemon = Daemon({"OLLAMA_HOST": "127.0.0.1:9"})
        looked = daemon.cli("doctor")
        self.assertRegex(looked.stdout, r'note  daemon: could not connect to http://127.0.0.1:9 .*: start a daemon with "quire serve"\n')
        daemon.folder.cleanup()

    def test_errors_of_usage_name_the_command(self):
        daemon = Daemon()
        for arguments, text in ((("pull",), "Error: quire pull: MODEL is required; see quire pull --help\n"),
                                (("run", "--bogus", "x"), "Error: quire run: "), (("cp", "x"), "Error: quire cp: DESTINATION ")):
            ran = daemon.cli(*arguments)
            self.assertEqual((ran.returncode, ran.stdout), (1, ""))
            self.assertTrue(ran.stderr.startswith(text), ran.stderr)
        daemon.folder.cleanup()

    def test_a_daemon_with_keys_names_the_variable(self):
        with tempfile.TemporaryDirectory() as folder:
            keys = pathlib.Path(folder) / "keys"
            made = subprocess.run([BIN / "quire", "key", "me", "--append", keys], text=True, capture_output=True, check=True)
            self.assertTrue(made.stdout)
            with Daemon({"QUIRE_KEYS": str(keys)}) as daemon:
                self.assertIn("set QUIRE_API_KEY", daemon.cli("list").stderr)
                daemon.environment["QUIRE_API_KEY"] = "wrong"
                self.assertIn("see the key in QUIRE_API_KEY", daemon.cli("list").stderr)

    def test_a_registry_without_tls_says_so(self):
        with Evil() as registry, Daemon({"QUIRE_REGISTRIES": "127.0.0.1"}) as daemon:
            pulled = daemon.cli("pull", f"{registry.host}/owner/repo")
            self.assertEqual(pulled.returncode, 1)
            self.assertIn("it speaks HTTP, not HTTPS; for a registry, use --insecure", pulled.stderr)

    def test_the_status_line_is_on_a_terminal_that_only_errors_go_to(self):
        try:
            master, slave = pty.openpty()
        except OSError as error:
            self.skipTest(str(error))
        fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        with Speaker({}) as server:
            environment = os.environ | {"OLLAMA_HOST": f"127.0.0.1:{server.server_port}", "TERM": "vt100"}
            with subprocess.Popen([BIN / "quire", "run", "some"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=slave, text=True) as process:
                process.stdin.write("Hello")
                process.stdin.close()
                self.assertTrue(process.stdout.read().startswith("3<3<"))
            self.assertTrue(server.asked[0][1]["return_progress"])  # for that line
        os.close(slave)
        os.close(master)


if __name__ == "__main__":
    suites.run()
