#!/usr/bin/env python3
"""Sampling that a model's files recommend, in every API, through the front door of the real daemon."""
import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import unittest

from harness import ROOT, Daemon

sys.path.append(str(ROOT / "tests/published"))
import gguf_file  # noqa: E402

DIRECTORY = ROOT / "packaging/models/quire-demo"
F16 = ROOT / "packaging/models/quire-demo-F16.gguf"
CHAT = {"messages": [{"role": "user", "content": "Tell me a story about a fox."}]}
TOKENS = 40
# What the files recommend, as PARAMETERs. The rest is the API's default.
RECOMMENDED = {"temperature": 1.5, "top_k": 12, "repeat_penalty": 1.25}
CONFIG = {"temperature": 1.5, "top_k": 12, "repetition_penalty": 1.25, "do_sample": True}
OLLAMA = {"temperature": 0.8, "top_k": 40, "top_p": 0.9, "min_p": 0, "repeat_penalty": 1}
OPENAI = OLLAMA | {"temperature": 1, "top_p": 1}
LLAMA_SERVER = OLLAMA | {"top_p": 0.95, "min_p": 0.05}
# path, defaults, body beside model and sampling, text of the reply
APIS = [
    ("/api/generate", OLLAMA, {"prompt": "Once upon a time", "stream": False, "options": {"num_predict": TOKENS}},
     lambda reply: reply["response"]),
    ("/api/chat", OLLAMA, CHAT | {"stream": False, "options": {"num_predict": TOKENS}},
     lambda reply: reply["message"]["content"]),
    ("/v1/chat/completions", OPENAI, CHAT | {"max_tokens": TOKENS},
     lambda reply: reply["choices"][0]["message"]["content"]),
    ("/v1/completions", OPENAI, {"prompt": "Once upon a time", "max_tokens": TOKENS},
     lambda reply: reply["choices"][0]["text"]),
    ("/v1/responses", OPENAI, {"input": "Tell me a story.", "max_output_tokens": TOKENS},
     lambda reply: reply["output"][0]["content"][0]["text"]),
    ("/v1/messages", OPENAI, CHAT | {"max_tokens": TOKENS}, lambda reply: reply["content"][0]["text"]),
    ("/completion", LLAMA_SERVER, {"prompt": "Once upon a time", "n_predict": TOKENS}, lambda reply: reply["content"]),
    ("/infill", LLAMA_SERVER, {"input_prefix": "int add(int a", "input_suffix": "}", "n_predict": TOKENS},
     lambda reply: reply["content"]),
]


def with_sampling(path, body, **sampling):
    if path.startswith("/api/"):
        return body | {"options": body["options"] | sampling}
    return body | sampling


class Models(unittest.TestCase):
    """Models are made with the command line, of a directory or a GGUF file."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="quire-sampling-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def directory(self, name, config):
        path = self.folder / name
        shutil.copytree(DIRECTORY, path)
        (path / "generation_config.json").write_text(json.dumps({"eos_token_id": self.ends()} | config))
        return path

    @staticmethod
    def ends():
        return json.loads((DIRECTORY / "generation_config.json").read_text())["eos_token_id"]

    def gguf(self, name, **sampling):
        model = gguf_file.Gguf(F16)
        for key, (kind, value) in sampling.items():
            model.keys["general.sampling." + key] = (kind, value)
        path = self.folder / f"{name}.gguf"
        model.write(path)
        return path

    def create(self, daemon, name, source, *arguments, **parameters):
        modelfile = self.folder / "Modelfile"
        lines = [f"FROM {source}", *(f"PARAMETER {key} {value}" for key, value in parameters.items())]
        modelfile.write_text("\n".join(lines))
        made = daemon.cli("create", name, "-f", str(modelfile), *arguments)
        self.assertEqual(0, made.returncode, made.stderr)

    def post(self, daemon, path, body):
        reply = daemon.post(path, body)
        self.assertEqual(200, reply.status, reply.text)
        return reply.json


class Defaults(Models):
    def sources(self):
        """Each with a model that recommends and one of the same weights that does not."""
        yield "generation_config.json", self.directory("with", CONFIG), self.directory("without", {})
        yield "GGUF metadata", self.gguf("with", temp=(gguf_file.F32, 1.5), top_k=(gguf_file.I32, 12),
                                         penalty_repeat=(gguf_file.F32, 1.25)), F16

    def test_the_request_goes_before_the_parameter_before_the_file_before_the_api(self):
        for source, with_values, without in self.sources():
            for off in (False, True):
                with Daemon({"QUIRE_MODEL_SAMPLING": "false"} if off else {}) as daemon:
                    self.create(daemon, "nothing", with_values, seed=3)
                    self.create(daemon, "parameter", with_values, seed=3, top_k=3)
                    for path, api, body, text in APIS:
                        with self.subTest(source=source, off=off, api=path):
                            self.check(daemon, without, path, api | ({} if off else RECOMMENDED), body, text, api, off)

    def check(self, daemon, without, path, expected, body, text, api, off):
        """Each answer is the one of a model whose PARAMETERs are all that is expected to be in force."""
        cases = [("nothing", {}, expected),
                 ("parameter", {}, expected | {"top_k": 3}),
                 ("parameter", {"temperature": 0.7}, expected | {"top_k": 3, "temperature": 0.7})]
        for model, sampling, in_force in cases:
            name = "-".join(str(value) for value in in_force.values())
            if name not in daemon.get("/api/tags").text:
                self.create(daemon, name, without, seed=3, **in_force)
            got = self.post(daemon, path, with_sampling(path, body, **sampling) | {"model": model})
            reference = self.post(daemon, path, body | {"model": name})
            self.assertEqual(text(reference), text(got), (model, sampling))
            if path == "/completion":
                settings = got["generation_settings"]
                self.assertEqual(in_force, {key: round(settings[key], 4) for key in in_force})
            if path == "/v1/responses":
                self.assertEqual((in_force["temperature"], in_force["top_p"]),
                                 (round(got["temperature"], 4), round(got["top_p"], 4)))
            if model == "nothing" and not off:
                name = "-".join(str(value) for value in api.values())
                if name not in daemon.get("/api/tags").text:
                    self.create(daemon, name, without, seed=3, **api)
                self.assertNotEqual(text(self.post(daemon, path, body | {"model": name})), text(got))

    def test_it_is_said_where_they_come_from(self):
        for source, with_values, _ in self.sources():
            with self.subTest(source), Daemon() as daemon:
                self.create(daemon, "plain", with_values, top_k=3)
                self.create(daemon, "small", with_values, "-q", "q8_0", top_k=3)
                for name in ("plain", "small"):
                    sampling = {"temperature": {"value": 1.5, "from": source},
                                "top_k": {"value": 3, "from": "PARAMETER"},
                                "repeat_penalty": {"value": 1.25, "from": source}}
                    self.assertEqual(sampling, self.post(daemon, "/api/show", {"model": name})["sampling"])
                    props = daemon.get(f"/props?model={name}").json
                    self.assertEqual(sampling, props["sampling"])
                    params = props["default_generation_settings"]["params"]
                    self.assertEqual([1.5, 3, 0.95, 1.25], [round(params[key], 4) for key in
                                                            ("temperature", "top_k", "top_p", "repeat_penalty")])
                    self.assertRegex(daemon.cli("show", name).stdout,
                                     rf"Sampling\n +temperature +1\.5 +{source}\n +top_k +3 +PARAMETER\n")
                    self.post(daemon, "/api/generate", {"model": name, "prompt": "x", "stream": False,
                                                        "options": {"num_predict": 1}})
                self.assertEqual(2, daemon.log().count(f"default sampling, from {source}: "
                                                       "temperature 1.5, top_k 12, repeat_penalty 1.25"))

    def test_an_answer_goes_on_in_another_runner(self):
        config = CONFIG | {"begin_suppress_tokens": list(range(100, 200)), "suppress_tokens": [300], "top_p": 0.99}
        body = {"model": "m", "prompt": "Once upon a time", "raw": True,
                "options": {"num_predict": 400, "seed": 7, "ignore_eos": True}}
        with Daemon() as daemon:
            self.create(daemon, "m", self.directory("m", config))
            texts = []
            for kill in (False, True):
                connection = daemon.connect()
                connection.request("POST", "/api/generate", json.dumps(body))
                reply = connection.getresponse()
                lines = [reply.readline() for _ in range(40)]
                if kill:
                    for pid in daemon.runner_pids():
                        os.kill(pid, signal.SIGKILL)
                lines += reply.read().splitlines()
                texts.append("".join(json.loads(line)["response"] for line in lines))
            self.assertIn("resumed model=", daemon.log())
            self.assertEqual(texts[0], texts[1])


class Rules(Models):
    """What generation_config.json says beside numbers."""

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon().start()

    @classmethod
    def tearDownClass(cls):
        cls.daemon.__exit__(None, None, None)

    def complete(self, config, **fields):
        self.create(self.daemon, "ruled", self.directory(f"ruled-{len(list(self.folder.iterdir()))}", config))
        return self.post(self.daemon, "/completion", {"model": "ruled", "prompt": "Once upon a time", "n_predict": 24,
                                                      "return_tokens": True, **fields})

    def test_do_sample_false_is_greedy(self):
        greedy = self.complete({}, temperature=0)
        sampled = [self.complete({"temperature": 1.5}, seed=seed)["tokens"] for seed in (1, 2)]
        self.assertNotEqual(*sampled)
        for seed in (1, 2):
            reply = self.complete({"do_sample": False, "temperature": 1.5}, seed=seed)
            self.assertEqual(greedy["tokens"], reply["tokens"])
            self.assertEqual(0, reply["generation_settings"]["temperature"])
        self.assertEqual(sampled[0], self.complete({"do_sample": False}, seed=1, temperature=1.5)["tokens"])

    def test_tokens_are_banned(self):
        first, second, *_ = self.complete({}, temperature=0)["tokens"]
        for config in ({"suppress_tokens": [first]}, {"bad_words_ids": [[first], [1, 2]]}):
            self.assertNotIn(first, self.complete(config, temperature=0)["tokens"], config)
        self.assertIn("bad_words_ids has words of several tokens; these are read and not obeyed", self.daemon.log())
        begun = self.complete({"begin_suppress_tokens": [first]}, temperature=0)["tokens"]
        self.assertNotEqual(first, begun[0])
        self.assertEqual(first, self.complete({"suppress_tokens": [first]}, temperature=0,
                                              logit_bias={str(first): 20})["tokens"][0], "the request goes before")
        kept = self.complete({"begin_suppress_tokens": [second]}, temperature=0)["tokens"]
        self.assertEqual([first, second], kept[:2], "it counts for the first token only")

    def test_stop_strings_end_every_answer(self):
        text = self.complete({}, temperature=0)["content"]
        word = text.split()[3]
        for stop in ([], ["never seen"]):
            reply = self.complete({"stop_strings": [word]}, temperature=0, stop=stop)
            self.assertEqual((text[:text.index(word)], "word", word),
                             (reply["content"], reply["stop_type"], reply["stopping_word"]))

    def test_values_that_make_no_sense_refuse_no_model(self):
        reply = self.complete({"temperature": -3, "top_k": "many", "top_p": 7, "stop_strings": [1], "num_beams": 4})
        self.assertEqual([0.8, 40, 0.95], [round(reply["generation_settings"][key], 4)
                                           for key in ("temperature", "top_k", "top_p")])
        repairs = self.post(self.daemon, "/api/show", {"model": "ruled"})["repairs"]
        for key in ("temperature", "top_k", "top_p", "stop_strings", "num_beams"):
            self.assertTrue(any(f"generation_config.json: {key} " in repair for repair in repairs), repairs)
            self.assertIn(f"read differently: generation_config.json: {key} ", self.daemon.log())


if __name__ == "__main__":
    unittest.main()
