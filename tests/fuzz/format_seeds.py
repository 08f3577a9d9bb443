"""Seeds of the fuzzers for output formats, answers, chat templates, and what registries send; seeds.py writes them."""
import json


def schema_seeds(fixtures):
    """A schema, a zero byte, and bytes that choose what is written."""
    choices = bytes([0, 1, 2, 3, 97, 98, 34, 0, 49, 50, 0, 125, 93])
    kept = [entry["schema"] for entry in json.loads((fixtures / "schemas/schemas.json").read_text())["schemas"]]
    for schema in kept + [
            {"type": "string", "pattern": "^[A-Z]{2}-[0-9]+$"}, {"type": "string", "format": "date-time"},
            {"type": "array", "items": {"enum": [1, 2, 3]}, "uniqueItems": True, "minItems": 2, "maxItems": 3},
            {"type": "array", "prefixItems": [{"type": "null"}, {"const": "x"}], "items": False},
            {"allOf": [{"type": "object", "properties": {"a": {"minimum": 2}}, "required": ["a"]},
                       {"properties": {"a": {"maximum": 9, "type": "integer"}, "b": {"type": "string"}}}]},
            {"type": "object", "propertyNames": {"pattern": "^x"}, "additionalProperties": {"type": "boolean"}},
            {"$defs": {"n": {"type": ["number", "null"]}}, "type": "object", "minProperties": 1, "maxProperties": 2,
             "properties": {"a": {"$ref": "#/$defs/n"}, "b": {"exclusiveMinimum": 0.5, "type": "number"}}},
            {"oneOf": [{"type": "string", "minLength": 2, "maxLength": 3}, {"type": "integer"}]}]:
        yield json.dumps(schema, separators=(",", ":")).encode() + b"\0" + choices


def regex_seeds():
    for pattern in (r"^[a-c]+\d{2,4}$", r"(a|b)*abb", r"\w+@\w+\.(com|org)", r"[^\s\"]{3}", r"(?:x?y){2,}z*?", r"\u00e9|\x41",
                    r"(?<year>[0-9]{4})-(0[1-9]|1[0-2])", r"\u{1F600}.", r"[\w\-\]]*", r"a|^b$|c", r"\ud83d\ude00", r"(?=a)b", "é+"):
        yield pattern.encode() + b"\0" + bytes([97, 98, 1, 50, 0])


def grammar_seeds():
    for seed in range(12):
        code = bytes((seed * 37 + i * i * 11 + i) % 251 for i in range(12 + 4 * seed))
        yield code + b"\xff" + bytes((seed + i) % 4 for i in range(10))
    yield bytes([6, 5, 0, 3, 0, 1, 2, 7, 4, 1]) + b"\xff" + b"\0\1\2\0\1"  # rules that call each other
    yield bytes([10, 0, 10, 1, 9, 1, 0]) + b"\xff" + b"\0\1\0\0\1"  # text up to a marker


def answer_seeds():
    """A byte for the format, one for the cuts, and an answer."""
    call = '{"name": "get_weather", "arguments": {"city": "Z\u00fcrich \\"}{\\" \U0001f600"}}'
    answers = [
        'Ok.\n<|tool_call_start|>[get_weather(city="Z\u00fc\\"rich"), now()]<|tool_call_end|> done',
        f"<think>\nhm\n</think>\n\nText\n<tool_call>\n{call}\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
        f"<|python_tag|>{call}; {call}",
        f"[THINK]hm[/THINK]Hi [TOOL_CALLS]now[ARGS]{{}}[TOOL_CALLS] [{call}] tail",
        '<|channel>thought\nhm\n<channel|>Hi\n<|tool_call>call:get_weather{city:<|"|>Z<|"|>,days:1}<tool_call|>',
        '<|channel|>analysis<|message|>hm <|end|><|start|>assistant<|channel|>commentary to=functions.now '
        '<|constrain|>json<|message|>{}<|call|>',
        '<function=add>{"a": 1, "b": null}</function>', f"<TOOLCALL>[{call}]</TOOLCALL>",
        f"<|tool_call|>[{call}]<|/tool_call|>", "<|START_THINKING|>a<|END_THINKING|>b", call, "{\"a\": [1, 2]} text",
    ]
    for i, answer in enumerate(answers):
        for flags in (0, 0x40):
            yield bytes([i | flags, 3 * i % 16]) + answer.encode()
    yield bytes([1, 2]) + b"<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>"
    yield bytes([1, 2]) + b"<tool_call><function=add><parameter=tags>[1]</parameter><parameter=exact>True</parameter></function></tool_call>"
    yield bytes([3, 1]) + b'[TOOL_CALLS]add[CALL_ID]abc123def[ARGS]{"a": 1}'


def chat_seeds(jinja, go):
    """A byte for the language and the conversation, then a template."""
    for i, template in enumerate(jinja):
        yield bytes([2 * i % 64]) + template
    for i, template in enumerate(go):
        yield bytes([2 * i % 64 | 1]) + template
    yield bytes([4]) + (b"{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{{ eos_token }}{% endfor %}"
                        b"{% if add_generation_prompt %}<|assistant|>{% endif %}")


def manifest_seeds():
    digest = "sha256:" + "0123456789abcdef" * 4
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": digest, "size": 5}
    for text in ({"schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
                  "config": {**layer, "mediaType": "application/vnd.docker.container.image.v1+json"},
                  "layers": [layer, {**layer, "mediaType": "application/vnd.ollama.image.template", "size": 0}]},
                 {"model_format": "gguf", "model_family": "llama", "model_families": ["llama"], "model_type": "1B",
                  "file_type": "F16", "requires": "0.1", "renderer": "r", "parser": "p", "rootfs": {"diff_ids": [digest]}},
                 [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "", "thinking": "t"}],
                 {"temperature": 0.5, "stop": ["a"], "num_ctx": 4096, "seed": -1, "min_p": 0.1, "frobnicate": None}):
        yield json.dumps(text, separators=(",", ":")).encode()
    yield digest.encode()
    yield digest.replace(":", "-").encode()


def challenge_seeds():
    yield b'Bearer realm="https://auth.example/token?a=b,c",service="registry.example",scope="repository:a/b:pull"'
    yield b"Basic realm=x"
    yield b'bearer  Realm = "a\\"b\\\\c" , service=s,,error="invalid_token"'
    yield b'Bearer realm="http://[2001:db8::1]:5000/t",location="../x?y"'
    yield b'Basic realm="x", Bearer realm="y'
