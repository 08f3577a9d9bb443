"""Pictures in chats, of recorded vision models: answers, dialects, caches, restarts, and files that are no pictures."""
import base64
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import threading
import unittest
import zlib

import suites
from harness import ROOT, Daemon
from terminal_test import Terminal

FIXTURES = ROOT.parent / "shared/fixtures-2/vision"
QUESTION = "What is in the picture?"
GREEDY = {"temperature": 0, "num_predict": 16, "seed": 1, "top_k": 0, "repeat_penalty": 1}
FAMILIES = ("gemma3_vl", "lfm2_vl", "qwen3_vl")


def golden(family):
    return json.loads((FIXTURES / family / "golden.json").read_text())


def picture(name):
    return (FIXTURES / "images" / name).read_bytes()


def text64(data):
    return base64.b64encode(data).decode()


def png(width, height, color):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = (b"\0" + bytes(color) * width) * height
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


class Pictures(unittest.TestCase):
    environment = {}

    def setUp(self):
        if not FIXTURES.exists():
            self.skipTest(f"{FIXTURES} is not there")
        self.daemon = self.enterContext(Daemon(self.environment))

    def make(self, family):
        """The model of the family's directory."""
        folder = pathlib.Path(self.daemon.folder.name) / family
        folder.mkdir()
        for file in (FIXTURES / family).iterdir():
            if not file.name.startswith("golden") and file.suffix != ".gguf":
                shutil.copy(file, folder)
        made = self.daemon.cli("create", family, "-f", "-", stdin=f"FROM {folder}\n")
        self.assertEqual(made.returncode, 0, made.stderr)

    def make_of_files(self, family):
        folder = FIXTURES / family
        made = self.daemon.cli("create", f"{family}-gguf", "-f", "-",
                               stdin=f"FROM {folder}/{family}.f16.gguf\nFROM {folder}/mmproj-{family}.f16.gguf\n")
        self.assertEqual(made.returncode, 0, made.stderr)

    def ask(self, model, images, question=QUESTION, **fields):
        message = {"role": "user", "content": question, "images": [text64(image) for image in images]}
        return self.daemon.post("/api/chat", {"model": model, "messages": [message], "stream": False, "options": GREEDY, **fields})

    def answer(self, model, images, question=QUESTION):
        reply = self.ask(model, images, question)
        self.assertEqual(reply.status, 200, reply.json)
        return reply.json["message"]["content"], reply.json["prompt_eval_count"], reply.json.get("prompt_eval_cached_count", 0)

    def text_of(self, model, ids):
        return self.daemon.post("/detokenize", {"model": model, "tokens": ids}).json["content"]

    def check_answers(self, model, family):
        recorded = golden(family)
        for case in recorded["cases"]:
            images = [picture(recorded["images"][i]) for i in case["images"]]
            with self.subTest(model=model, images=case["images"]):
                first, tokens, _ = self.answer(model, images)
                self.assertEqual(tokens, len(case["ids"]))
                expected = self.text_of(model, case["greedy"]).replace("</think>", "")  # which no answer shows
                self.assertEqual(first.encode(), expected.encode())
                again, _, cached = self.answer(model, images)
                self.assertEqual(again, first)
                self.assertGreater(cached, tokens // 2)


class Answers(Pictures):
    # As recorded: weights and activations as the reference has them.
    environment = {"QUIRE_KV_CACHE_TYPE": "f32"}

    def test_directories(self):
        for family in FAMILIES:
            self.make(family)
            self.check_answers(family, family)

    def test_a_projector_file(self):
        self.make_of_files("gemma3_vl")
        self.check_answers("gemma3_vl-gguf", "gemma3_vl")

    def test_an_image_is_told_from_another(self):
        self.make("gemma3_vl")
        red, blue = png(60, 60, (250, 5, 5)), png(60, 60, (5, 5, 250))
        alone, _, _ = self.answer("gemma3_vl", [blue])
        first, _, _ = self.answer("gemma3_vl", [red])
        self.assertNotEqual(first, alone)
        self.assertEqual(self.answer("gemma3_vl", [blue])[0], alone)
        self.assertEqual(self.answer("gemma3_vl", [red])[0], first)

    def test_capability(self):
        self.make("lfm2_vl")
        self.make_of_files("gemma3_vl")
        self.assertIn("vision", self.daemon.post("/api/show", {"model": "lfm2_vl"}).json["capabilities"])
        shown = self.daemon.post("/api/show", {"model": "gemma3_vl-gguf"}).json
        self.assertIn("vision", shown["capabilities"])
        self.assertEqual(shown["projector_info"]["clip.projector_type"], "gemma3")


class Dialects(Pictures):
    def test_all_give_the_same_answer(self):
        self.make("gemma3_vl")
        image = text64(picture("c.jpg"))
        url = f"data:image/jpeg;base64,{image}"
        expected, tokens, _ = self.answer("gemma3_vl", [picture("c.jpg")])
        common = {"model": "gemma3_vl", "temperature": 0, "seed": 1}
        chat = self.daemon.post("/v1/chat/completions", common | {"max_tokens": 16, "messages": [{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": QUESTION}]}]}).json
        self.assertEqual((chat["choices"][0]["message"]["content"], chat["usage"]["prompt_tokens"]), (expected, tokens))
        responses = self.daemon.post("/v1/responses", common | {"max_output_tokens": 16, "input": [{"role": "user", "content": [
            {"type": "input_image", "image_url": url}, {"type": "input_text", "text": QUESTION}]}]}).json
        self.assertEqual(responses["output"][0]["content"][0]["text"], expected)
        messages = self.daemon.post("/v1/messages", common | {"max_tokens": 16, "messages": [{"role": "user", "content": [
            {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": image}},
            {"type": "text", "text": QUESTION}]}]}).json
        self.assertEqual(messages["content"][0]["text"], expected)
        self.assertEqual(messages["usage"]["input_tokens"] + messages["usage"].get("cache_read_input_tokens", 0), tokens)
        generate = self.daemon.post("/api/generate", {"model": "gemma3_vl", "prompt": QUESTION, "images": [image], "stream": False,
                                                      "options": GREEDY}).json
        self.assertEqual(generate["response"], expected)

    def test_what_is_no_picture_fails_alone(self):
        self.make("gemma3_vl")
        good = picture("a.png")
        expected, _, _ = self.answer("gemma3_vl", [good])
        cut = good[:len(good) // 2]
        thin = png(1, 100_000, (1, 2, 3))
        bomb = png(9000, 9000, (0, 0, 0))
        for name, data in (("empty", b""), ("text", b"hello"), ("cut", cut), ("bomb", bomb), ("gif", b"GIF89a" + bytes(40))):
            with self.subTest(name):
                reply = self.ask("gemma3_vl", [data])
                self.assertEqual(reply.status, 400, reply.json)
                self.assertIn("images[0]", reply.json["error"])
        self.assertIn(self.ask("gemma3_vl", [thin]).status, (200, 400))
        for url in ("https://example.com/a.png", "http://127.0.0.1/a.png", "file:///etc/passwd"):
            reply = self.daemon.post("/v1/chat/completions", {"model": "gemma3_vl", "messages": [{"role": "user", "content": [
                {"type": "image_url", "image_url": {"url": url}}]}]})
            self.assertEqual(reply.status, 400, reply.json)
        pids = self.daemon.runner_pids()
        self.assertEqual(self.answer("gemma3_vl", [good])[0], expected)
        self.assertEqual(self.daemon.runner_pids(), pids)

    def test_a_tools_result_and_the_history_show_pictures(self):
        self.make("lfm2_vl")
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": text64(picture("a.png"))}}
        history = [{"role": "user", "content": "Look."},
                   {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "look", "input": {}}]},
                   {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [image]}]}]
        without = [*history[:2], {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "none"}]}]
        tools = [{"name": "look", "input_schema": {"type": "object"}}]
        def ask(messages):
            reply = self.daemon.post("/v1/messages", {"model": "lfm2_vl", "max_tokens": 8, "messages": messages, "tools": tools})
            self.assertEqual(reply.status, 200, reply.json)
            return sum(reply.json["usage"].get(key, 0) for key in ("input_tokens", "cache_read_input_tokens"))
        self.assertNotEqual(ask(history), ask(without))


class CommandLine(Pictures):
    def test_a_prompt_names_its_pictures(self):
        self.make("gemma3_vl")
        for name in ("a.png", "c.jpg"):
            path = FIXTURES / "images" / name
            done = self.daemon.cli("run", "gemma3_vl", f"'{path}' {QUESTION}")
            self.assertEqual(0, done.returncode, done.stderr)
            self.assertIn(f"Added image '{path}'", done.stderr)
            alone = self.ask("gemma3_vl", [picture(name)], options={}).json
            logged = [line for line in self.daemon.log().splitlines() if "path=/api/chat" in line][-2:]
            self.assertIn(f"prompt_tokens={alone['prompt_eval_count']} ", logged[0])
        lost = self.daemon.cli("run", "gemma3_vl", f"./nowhere.png {QUESTION}")
        self.assertEqual(0, lost.returncode, lost.stderr)
        self.assertIn("No image './nowhere.png'; sent as text", lost.stderr)

    def test_a_picture_dropped_on_a_terminal_stays_in_the_conversation(self):
        self.make("qwen3_vl")
        path = FIXTURES / "images/b.png"
        with Terminal(self.daemon, "qwen3_vl") as terminal:
            terminal.expect(">>> ")
            terminal.type("/set parameter num_predict 8\r")
            terminal.expect("Set parameter")
            terminal.expect(">>> ")
            terminal.type(f"{path} {QUESTION}\r")  # an absolute path is no command
            terminal.expect("Added image")
            terminal.expect(">>> ")
            terminal.type("And now?\r")
            terminal.expect(">>> ")
            terminal.type("/bye\r")
            self.assertEqual(0, terminal.ends())
        tokens = [int(found) for found in re.findall(r"path=/api/chat status=200 .* prompt_tokens=(\d+) ", self.daemon.log())]
        self.assertEqual(2, len(tokens))
        case = next(case for case in golden("qwen3_vl")["cases"] if case["images"] == [1])
        self.assertEqual(len(case["ids"]), tokens[0])
        self.assertGreater(tokens[1], tokens[0], "the picture of the first turn is there")


class Caches(Pictures):
    environment = {"QUIRE_SNAPSHOT_BYTES": "1GiB"}

    def test_a_restart_and_a_crash_change_nothing(self):
        for family in FAMILIES:
            self.make(family)
        images = [picture("b.png"), picture("c.jpg")]
        expected = {family: self.answer(family, images)[0] for family in FAMILIES}
        self.assertEqual(self.daemon.stop(), 0)
        self.daemon.log_path.unlink()
        self.daemon.start()
        reused = 0
        for family in FAMILIES:
            text, _, cached = self.answer(family, images)
            self.assertEqual(text, expected[family])
            reused += cached
        self.assertGreater(reused, 0)  # of models so small computing is the faster way at times
        for pid in self.daemon.runner_pids():
            os.kill(pid, signal.SIGKILL)
        for family in FAMILIES:
            self.assertEqual(self.answer(family, images)[0], expected[family])

    def test_a_stream_goes_on_when_its_runner_dies(self):
        for family in FAMILIES:
            self.make(family)
            message = {"role": "user", "content": QUESTION, "images": [text64(picture(name)) for name in ("b.png", "c.jpg")]}
            body = {"model": family, "messages": [message], "options": GREEDY | {"num_predict": 400, "ignore_eos": True, "num_ctx": 1024}}
            expected = self.daemon.post("/api/chat", body | {"stream": False}).json["message"]["content"]
            connection = self.daemon.connect()
            connection.request("POST", "/api/chat", json.dumps(body))
            text, killed = "", False
            for line in connection.getresponse():
                text += json.loads(line)["message"]["content"]
                if len(text) > 40 and not killed:
                    killed = True
                    for pid in self.daemon.runner_pids():
                        os.kill(pid, signal.SIGKILL)
            self.assertTrue(killed)
            self.assertEqual(expected, text, family)

    def test_many_at_once_give_the_same(self):
        self.make("qwen3_vl")
        names = ("a.png", "b.png", "c.jpg")
        expected = {name: self.answer("qwen3_vl", [picture(name)])[0] for name in names}
        self.daemon.post("/api/generate", {"model": "qwen3_vl", "keep_alive": 0})
        seen = []
        def ask(name):
            seen.append((name, self.answer("qwen3_vl", [picture(name)])[0]))
        threads = [threading.Thread(target=ask, args=(names[i % 3],)) for i in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(seen), 12)
        for name, text in seen:
            self.assertEqual(text, expected[name])


if __name__ == "__main__":
    suites.run()
