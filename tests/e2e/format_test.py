#!/usr/bin/env python3
"""Structured output through the front door: every answer with a format is valid, what cannot be enforced is refused.

With QUIRE_FIXTURES the schemas of the shared set are asked for too.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import unittest

import jsonschema

from harness import MODEL, Daemon

DOCUMENTS = 20  # per schema
TRIES = 600

PERSON = {"type": "object", "properties": {
    "name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
    "mood": {"enum": ["happy", "sad"]}, "born": {"type": "string", "format": "date"}},
    "required": ["name", "age", "mood", "born"], "additionalProperties": False}
TREE = {"$defs": {"node": {"type": "object", "properties": {
    "v": {"type": "integer"}, "kids": {"type": "array", "maxItems": 2, "items": {"$ref": "#/$defs/node"}}},
    "required": ["v", "kids"], "additionalProperties": False}}, "$ref": "#/$defs/node"}
SHAPE = {"type": "array", "minItems": 1, "maxItems": 3, "items": {"oneOf": [
    {"type": "object", "properties": {"kind": {"const": "circle"}, "r": {"type": "number", "exclusiveMinimum": 0}},
     "required": ["kind", "r"]},
    {"type": "object", "properties": {"kind": {"const": "日本 \"q\""}, "code": {"type": "string", "pattern": "^[A-Z]{2}-\\d+$"}},
     "required": ["kind", "code"], "additionalProperties": False}]}}
TAGS = {"type": "array", "uniqueItems": True, "minItems": 2, "maxItems": 5,
        "items": {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "number", "minimum": 0, "maximum": 2}]}}
COLORS = {"type": "array", "uniqueItems": True, "minItems": 4, "items": {"enum": ["red", "rose", "rosy", 1, 1.0, None]}}


def schemas():
    """Name -> schema and a document of it, which the prompt shows so that the small model ends its own."""
    named = {"person": (PERSON, '{"name":"A","age":1,"mood":"sad","born":"2000-01-01"}'),
             "tree": (TREE, '{"v":1,"kids":[]}'), "shape": (SHAPE, '[{"kind":"circle","r":1}]'),
             "tags": (TAGS, '["a",1]'), "colors": (COLORS, '["red","rose",1,null]')}
    fixtures = os.environ.get("QUIRE_FIXTURES")
    if fixtures:
        shared = json.loads((pathlib.Path(fixtures) / "schemas/schemas.json").read_text())
        named |= {entry["name"]: (entry["schema"], entry["valid"][0]) for entry in shared["schemas"]}
    return named


def free(daemon, schema, example, seed, _bias):
    """The text of an answer, None where its length cut it."""
    reply = daemon.post("/api/chat", {
        "model": MODEL, "stream": False, "format": schema,
        "messages": [{"role": "user", "content": f"Answer {example}"}],
        "options": {"temperature": 1, "top_k": 0, "top_p": 1, "seed": seed, "num_predict": 250}}).json
    return None if reply["done_reason"] == "length" else reply["message"]["content"]


def biased(daemon, schema, example, seed, bias):
    """As free(), of a model that likes to close what it opened: recursion would hardly ever end otherwise."""
    choice = daemon.post("/v1/chat/completions", {
        "model": MODEL, "messages": [{"role": "user", "content": f"Answer {example}"}], "temperature": 1, "seed": seed,
        "max_tokens": 250, "logit_bias": bias,
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}).json["choices"][0]
    return None if choice["finish_reason"] == "length" else choice["message"]["content"]


class Documents(unittest.TestCase):
    def test_every_document_is_valid_at_temperature_1(self):
        with Daemon() as daemon, concurrent.futures.ThreadPoolExecutor(16) as pool:
            tokens = [daemon.post("/tokenize", {"model": MODEL, "content": text}).json["tokens"] for text in '"]}']
            bias = {str(token): 5 for token, in tokens}
            for name, (schema, example) in schemas().items():
                checker = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
                valid = 0
                for first in range(0, TRIES, DOCUMENTS):
                    ask = free if first // DOCUMENTS % 2 == 0 else biased
                    seeds = range(first, first + DOCUMENTS)
                    for text in pool.map(lambda seed: ask(daemon, schema, example, seed, bias), seeds):
                        if text is None:
                            continue  # a beginning only
                        with self.subTest(schema=name, text=text):
                            checker.validate(json.loads(text))
                        valid += 1
                    if valid >= DOCUMENTS:
                        break
                self.assertGreaterEqual(valid, DOCUMENTS, name)


class Routes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon().start()

    @classmethod
    def tearDownClass(cls):
        cls.daemon.__exit__(None, None, None)

    def openai(self, **fields):
        return self.daemon.post("/v1/chat/completions", {
            "model": MODEL, "messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 200, **fields})

    def answer(self, **fields):
        reply = self.openai(**fields)
        self.assertEqual(reply.status, 200, reply.text)
        return reply.json["choices"][0]["message"]["content"]

    def test_openai_forms(self):
        schema = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON}}
        jsonschema.validate(json.loads(self.answer(response_format=schema)), PERSON)
        self.assertRegex(self.answer(guided_regex="[a-c]{3}-\\d"), re.compile(r"[a-c]{3}-\d\Z"))
        self.assertIn(self.answer(guided_choice=["red", "green"]), ["red", "green"])
        self.assertIn(self.answer(structured_outputs={"choice": ["é\n", "日"]}), ["é\n", "日"])

    def test_every_other_route(self):
        typed = {"type": "json_schema", "name": "person", "schema": PERSON}
        reply = self.daemon.post("/v1/responses", {"model": MODEL, "input": "Hello!", "max_output_tokens": 200,
                                                   "text": {"format": typed}}).json
        jsonschema.validate(json.loads(reply["output"][0]["content"][0]["text"]), PERSON)
        self.assertEqual(typed, reply["text"]["format"])
        reply = self.daemon.post("/v1/completions", {
            "model": MODEL, "prompt": "Hello", "max_tokens": 200,
            "response_format": {"type": "json_schema", "json_schema": {"name": "p", "schema": PERSON}}}).json
        jsonschema.validate(json.loads(reply["choices"][0]["text"]), PERSON)
        reply = self.daemon.post("/v1/messages", {
            "model": MODEL, "max_tokens": 200, "messages": [{"role": "user", "content": "Hello!"}],
            "output_config": {"format": typed}}).json
        jsonschema.validate(json.loads(reply["content"][0]["text"]), PERSON)

    def test_streamed_deltas_make_the_document(self):
        reply = self.daemon.post("/api/generate", {"model": MODEL, "prompt": "x", "format": PERSON,
                                                   "options": {"seed": 4, "temperature": 1, "num_predict": 300}})
        text = "".join(line["response"] for line in reply.lines)
        jsonschema.validate(json.loads(text), PERSON)

    def test_logprobs_are_the_models_own(self):
        free = self.openai(temperature=0, logprobs=True, max_tokens=1).json["choices"][0]["logprobs"]["content"][0]
        held = self.openai(temperature=0, logprobs=True, max_tokens=1, top_logprobs=1,
                           guided_choice=["{}"]).json["choices"][0]["logprobs"]["content"][0]
        self.assertEqual(held["top_logprobs"][0]["logprob"], free["logprob"])
        self.assertLess(held["logprob"], free["logprob"])

    def test_what_is_not_enforced_is_refused_before_the_stream(self):
        bad = {"type": "object", "properties": {"a": {"contains": {"type": "null"}}}}
        reply = self.daemon.post("/api/chat", {"model": MODEL, "format": bad,
                                               "messages": [{"role": "user", "content": "x"}]})
        self.assertEqual(reply.status, 400)
        self.assertIn("#/properties/a", reply.json["error"])
        self.assertIn('"contains"', reply.json["error"])
        for fields in ({"response_format": {"type": "json_schema", "json_schema": {"schema": bad}}},
                       {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "strin"}}}},
                       {"guided_regex": "("}, {"guided_json": "{"}, {"stream": True, "guided_regex": "(?=a)"}):
            reply = self.openai(**fields)
            self.assertEqual(reply.status, 400, fields)
            self.assertEqual(reply.json["error"]["type"], "invalid_request_error")

    def test_items_that_cannot_all_differ_are_refused(self):
        def unique(items, **more):
            return {"type": "array", "uniqueItems": True, "items": items, **more}

        for schema, reason in ((unique({"enum": ["a", "b"]}, minItems=3), "matches no text"),
                               (unique({"enum": [1, 1.0]}, minItems=2), "matches no text"),
                               (unique({"type": "object"}), "uniqueItems"), ({"uniqueItems": True}, "uniqueItems")):
            reply = self.openai(guided_json=schema)
            self.assertEqual(reply.status, 400, schema)
            self.assertIn(reason, reply.json["error"]["message"])
        every = unique({"type": ["boolean", "null"]}, minItems=3)
        self.assertCountEqual(json.loads(self.answer(guided_json=every)), [True, False, None])

    def test_hostile_formats_are_done_or_refused(self):
        deep = {"type": "integer"}
        for _ in range(400):
            deep = {"type": "array", "items": deep}
        some = [{"anyOf": [{"type": "object", "properties": {f"a{i}": {"const": j}}, "required": [f"a{i}"]}
                           for j in range(3)]} for i in range(14)]
        loop = {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}
        states = {"type": "string", "pattern": "^(a|b)*a(a|b){20}$"}
        refused = [{"guided_json": one} for one in (deep, {"allOf": some}, loop, states, {"$ref": "#"})]
        refused += [{"guided_regex": one} for one in ("a" * 900_000, "((a{1,100}){1,100}){1,100}", "(", "a{9999999999}")]
        for fields in refused:
            reply = self.openai(**fields)
            self.assertEqual(reply.status, 400, str(fields)[:200])
            self.assertEqual(reply.json["error"]["type"], "invalid_request_error")
        enum = [f"value {i}" for i in range(10_000)]
        self.assertIn(json.loads(self.answer(guided_json={"enum": enum})), enum)
        self.assertRegex(self.answer(guided_regex="(a|b){100}"), r"^[ab]{100}\Z")


if __name__ == "__main__":
    unittest.main()
