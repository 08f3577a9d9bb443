"""Writes small seed corpora and dictionaries for the fuzzers.

usage: seeds.py FIXTURES OUT

OUT/FUZZER/ is the corpus of a fuzzer, OUT/FUZZER.dict its dictionary. FIXTURES is a folder like tests/data or the one that
QUIRE_FIXTURES names; its files are cut down to a few hundred bytes each, because a fuzzer is fast with short inputs.
tests/fuzz/corpus, which CI uses, is written by `seeds.py tests/data tests/fuzz/corpus`; inputs that found a defect are
added to it by hand.
"""
import json
import pathlib
import re
import struct
import sys

import format_seeds

TEXT = "hello \u00e9 world 12 <s>"
ROOT = pathlib.Path(__file__).resolve().parents[2]


def gguf_text(text):
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def gguf_file(pairs, tensors, version=3, alignment=32):
    """pairs: [(key, type, payload)]; tensors: [(name, dims, type, bytes)]."""
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(pairs))
    for key, kind, payload in pairs:
        out += gguf_text(key) + struct.pack("<I", kind) + payload
    data = b""
    for name, dims, kind, size in tensors:
        data += b"\0" * (-len(data) % alignment)
        out += gguf_text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        out += struct.pack("<IQ", kind, len(data))
        data += b"\x11" * size
    out += b"\0" * (-len(out) % alignment)
    return out + data


def gguf_seeds():
    every = [
        ("general.alignment", 4, struct.pack("<I", 32)),
        ("a", 0, b"\xc8"), ("b", 1, b"\xfd"), ("c", 2, b"\x01\x02"), ("d", 3, b"\x01\xff"),
        ("e", 5, struct.pack("<i", -2)), ("f", 6, struct.pack("<f", 1e-5)), ("g", 7, b"\1"),
        ("h", 10, struct.pack("<Q", 1 << 63)), ("i", 11, struct.pack("<q", -9)), ("j", 12, struct.pack("<d", 0.1)),
        ("k", 8, gguf_text("text")), ("l", 9, struct.pack("<IQ", 5, 2) + struct.pack("<2i", 1, -1)),
        ("m", 9, struct.pack("<IQ", 8, 2) + gguf_text("a") + gguf_text("\u00e9")),
        ("n", 9, struct.pack("<IQ", 8, 0)), ("o", 9, struct.pack("<IQ", 6, 1) + struct.pack("<f", 2)),
    ]
    yield gguf_file(every, [("a.w", [4, 3], 0, 48), ("b.w", [32, 2], 8, 68)])
    yield gguf_file(every[:1], [])
    for version in (2, 3):
        yield gguf_file([("general.architecture", 8, gguf_text("t"))], [("x", [2], 1, 4)], version)
    blocks = {2: 18, 3: 20, 6: 22, 7: 24, 8: 34, 20: 18, 30: 64, 39: 17}
    for kind, size in blocks.items():
        yield gguf_file([], [("x", [32], kind, size)])
    for kind, size in {10: 84, 11: 110, 12: 144, 13: 176, 14: 210, 23: 136}.items():
        yield gguf_file([], [("x", [256, 1], kind, size), ("y", [256], kind, size)])


def dialect_seeds():
    """Files as Ollama and early versions of llama.cpp spelled them, of a few bytes each."""
    def number(key, value):
        return key, 4, struct.pack("<I", value)

    def text(key, value):
        return key, 8, gguf_text(value)

    def texts(key, values):
        return key, 9, struct.pack("<IQ", 8, len(values)) + b"".join(map(gguf_text, values))

    def numbers(key, values):
        return key, 9, struct.pack(f"<IQ{len(values)}i", 5, len(values), *values)

    def scaling(architecture):
        return [(f"{architecture}.rope.scale_linear", 6, struct.pack("<f", 4)),
                (f"{architecture}.rope.scaling.beta_fast", 6, struct.pack("<f", 32))]

    def norm(name):
        return name, [2], 0, 8

    def matrix(name, rows=2):
        return name, [2, rows], 0, 8 * rows

    bytes_as_text = [f"<0x{i:02X}>" for i in range(256)]
    tokenizer = [text("tokenizer.ggml.model", "llama"), texts("tokenizer.ggml.merges", ["a b"])]
    yield gguf_file([text("general.architecture", "gemma3"), number("gemma3.context_length", 131072),
                     text("tokenizer.ggml.model", "llama"), texts("tokenizer.ggml.tokens", ["a", "b", "c"]),
                     numbers("tokenizer.ggml.token_type", [1, 1, 4]), number("tokenizer.ggml.eos_token_id", 1),
                     ("gemma3.rope.local.freq_base", 6, struct.pack("<f", 1e4))] + scaling("gemma3"),
                    [matrix("token_embd.weight"), norm("v.a")])
    yield gguf_file([text("general.architecture", "gemma3"), number("gemma3.a", 1)], [matrix("dense.0.weight"), norm("norm.weight")])
    yield gguf_file([text("general.architecture", "gemma4"), texts("tokenizer.ggml.tokens", bytes_as_text),
                     numbers("tokenizer.ggml.token_type", [1] * 256)] + tokenizer,
                    [norm("blk.0.ffn_gate_inp.per_expert_scale"), norm("blk.1.ffn_down_exps.scale")])
    for architecture in ("qwen35", "qwen35moe", "qwen3next"):
        yield gguf_file([text("general.architecture", architecture), number(f"{architecture}.block_count", 2),
                         numbers(f"{architecture}.attention.head_count_kv", [0, 2]),
                         number(f"{architecture}.full_attention_interval", 2),
                         (f"{architecture}.ssm.v_head_reordered", 7, b"\1"),
                         (f"{architecture}.attention.recurrent_layers", 9, struct.pack("<IQ2?", 7, 2, True, False))],
                        [norm("blk.0.ssm_dt"), matrix("mtp.fc.weight"), norm("mtp.norm.weight"),
                         norm("mtp.layers.0.attn_norm.weight"), matrix("mtp.layers.0.mlp.experts.1.up_proj.weight")])
    yield gguf_file([text("general.architecture", "lfm2"), number("lfm2.feed_forward_length", 3),
                     text("tokenizer.ggml.model", "gpt2"), text("tokenizer.ggml.pre", "default")],
                    [norm("output_norm.weight"), matrix("blk.0.ffn_gate.weight")])
    yield gguf_file([text("general.architecture", "gptoss"), number("gptoss.block_count", 1)],
                    [norm("blk.0.attn_sinks"), norm("blk.0.ffn_norm.weight"), norm("blk.0.attn_out.bias"),
                     ("blk.0.ffn_gate_exps.weight", [2, 2, 2], 0, 32)])
    yield gguf_file([text("general.architecture", "llama"), text("tokenizer.ggml.model", "gpt2"),
                     texts("tokenizer.ggml.tokens", ["a", "<|begin_of_text|>"]),
                     number("tokenizer.ggml.bos_token_id", 1)] + scaling("llama"), [])


def safetensors_file(header, data):
    raw = json.dumps(header, separators=(",", ":")).encode() if isinstance(header, dict) else header
    raw += b" " * (-len(raw) % 8)
    return struct.pack("<Q", len(raw)) + raw + b"\x22" * data


def safetensors_seeds():
    yield safetensors_file({}, 0)
    for dtype, size in {"F32": 4, "F16": 2, "BF16": 2, "I64": 8, "U8": 1, "F8_E4M3": 1}.items():
        yield safetensors_file({"a": {"dtype": dtype, "shape": [2, 3], "data_offsets": [0, 6 * size]}}, 6 * size)
    yield safetensors_file({"__metadata__": {"format": "pt"},
                            "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
                            "b": {"dtype": "F16", "shape": [], "data_offsets": [4, 6]}}, 6)


def small_tokenizer(document):
    """A few entries of the vocabulary, the merges among them, one added token."""
    model = document["model"]
    if model["type"] == "BPE":
        names = [n for n in model["vocab"] if re.fullmatch(r"<0x4[01]>|[heloO\u0120\u2581 ]{1,5}|<unk>", n)][:9]
        ids = {name: i for i, name in enumerate(names)}
        model["vocab"] = ids
        parts = [m if isinstance(m, list) else m.split(" ") for m in model["merges"]]
        model["merges"] = [m for m in parts if all(p in ids for p in (*m, "".join(m)))][:4]
    else:
        model["vocab"] = model["vocab"][:3] + [v for v in model["vocab"] if re.fullmatch("[helo\u2581]{1,4}", v[0])][:5]
        ids = {v[0]: i for i, v in enumerate(model["vocab"])}
    added = document["added_tokens"][:1]
    for i, token in enumerate(added):
        token["id"] = ids.get(token["content"], len(ids) + i)
    document["added_tokens"] = added
    document["post_processor"] = None
    for key in ("version", "truncation", "padding"):
        document.pop(key, None)
    return document


def tokenizer_seeds(fixtures):
    steps = [
        {"type": "NFKC"}, {"type": "Strip"}, {"type": "Prepend", "prepend": "_"},
        {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "Replace", "pattern": {"String": "a"}, "content": "bb"}]},
        {"type": "Precompiled", "precompiled_charsmap": "AAAAAA=="},
    ]
    splits = [
        None, {"type": "ByteLevel", "add_prefix_space": True, "use_regex": True}, {"type": "Digits", "individual_digits": True},
        {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": True},
        {"type": "Split", "pattern": {"Regex": "\\s+|[a-z]{1,3}"}, "behavior": "Isolated", "invert": False},
        {"type": "Split", "pattern": {"String": "l"}, "behavior": "MergedWithPrevious", "invert": True},
        {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": "\\p{N}"}, "behavior": "Removed"},
                                               {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}]},
    ]
    tiny = {"a": 0, "b": 1, "ab": 2, "\u0120": 3, "<0x0A>": 4, "\u2581": 5, "l": 6}
    for i, split in enumerate(splits):
        yield {"normalizer": steps[i % len(steps)] if i else None, "pre_tokenizer": split,
               "added_tokens": [{"id": 7, "content": "<s>", "special": True, "lstrip": i % 2 == 0, "normalized": i % 2 == 1}],
               "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"},
                                                            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
               "post_processor": {"type": "TemplateProcessing",
                                  "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                                  "special_tokens": {"<s>": {"id": "<s>", "ids": [7], "tokens": ["<s>"]}}},
               "model": {"type": "BPE", "vocab": tiny, "merges": ["a b"], "byte_fallback": i % 2 == 0, "unk_token": "a",
                         "fuse_unk": True, "ignore_merges": i == 4}}
    yield {"pre_tokenizer": None, "normalizer": None, "added_tokens": [], "decoder": None,
           "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": True,
                     "vocab": [["<unk>", 0.0], ["a", -1.5], ["ab", -2], ["<0x61>", -3]]}}
    seen = set()
    for path in sorted([*fixtures.glob("models/*/tokenizer.json"), *fixtures.glob("tokenizers/*.tokenizer.json")]):
        small = small_tokenizer(json.loads(path.read_text()))
        text = json.dumps(small, separators=(",", ":"), ensure_ascii=False)
        if text not in seen and len(text) < 1000:
            seen.add(text)
            yield small


def template_seeds(fixtures):
    yield from (
        b"{% for m in messages %}{{ m.role }}: {{ m['content'] | trim }}\n{% endfor %}",
        b"{%- if tools -%}{{ tools | tojson(indent=2) }}{%- else %}x{%- endif -%}",
        b"{% set ns = namespace(a=1) %}{% for i in range(3) %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}",
        b"{% macro f(a, b=2, *c, **d) %}{{ a ~ b }}{% endmacro %}{{ f(1, b='x') }}",
        b"{{ [1,2,3][::-1] | join(', ') }}{{ {'a': 1}.items() | list }}{{ 'abc'[1:] }}",
        b"{{ raise_exception('no ' + s) }}", b"{# c #}{{ 7 // 2 ** 3 % 4 - -1 }}{{ 1 < 2 <= 3 and not n }}",
        b"{{ x | selectattr('a', 'equalto', 1) | map(attribute='b') | list | length }}",
        b"{{ s.split(' ')[0].upper() | replace('H', 'J') | indent(2) }}{{ '%s-%d' % ('a', 3) }}",
        b"{% if s is defined and x is iterable and i is not string %}{{ loop }}{% endif %}",
        b"{{ x | sort(reverse=true) | first }}{{ '{:>5}'.format(i) }}{{ (1, 2)|last }}{{ f | round(1) }}",
        b"{% for k, v in messages[0].items() recursive %}{{ loop.index0 }}{{ loop.last }}{% endfor %}",
        b"{% filter upper %}a{% endfilter %}{% call(q) f() %}{% endcall %}{% generation %}x{% endgeneration %}",
        b"{{ s | default('d', true) if n is none else strftime_now('%Y') }}{% break %}{% continue %}",
        "{{ '\u00e9\\u00e9\\n' ~ s | title | capitalize | wordcount }}".encode(),
    )
    for path in sorted(fixtures.glob("models/*/chat_template.jinja")):
        yield path.read_bytes()
    for path in sorted(fixtures.glob("chat_templates/*.json")):
        document = json.loads(path.read_text())
        source = document.get("template", document.get("chat_template", "")) if isinstance(document, dict) else ""
        if isinstance(source, str) and 0 < len(source) < 600:
            yield source.encode()


GGUF_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


def gguf_metadata(raw):
    """Key/values of a GGUF file without its tokenizer's."""
    at = 8
    _, count = struct.unpack_from("<QQ", raw, at)
    at += 16

    def text():
        nonlocal at
        (size,) = struct.unpack_from("<Q", raw, at)
        at += 8 + size
        return raw[at - size:at].decode(errors="replace")

    def value(kind):
        nonlocal at
        if kind == 8:
            return text()
        if kind == 9:
            inner, items = struct.unpack_from("<IQ", raw, at)
            at += 12
            return [value(inner) for _ in range(items)]
        (number,) = struct.unpack_from("<" + GGUF_NUMBERS[kind], raw, at)
        at += struct.calcsize("<" + GGUF_NUMBERS[kind])
        return number

    pairs = {}
    for _ in range(count):
        key = text()
        (kind,) = struct.unpack_from("<I", raw, at)
        at += 4
        pairs[key] = value(kind)
    return {k: v for k, v in pairs.items() if not k.startswith(("tokenizer.", "general.n", "general.t", "general.l", "general.q"))}


def config_seeds(fixtures):
    for path in sorted(fixtures.glob("models/*/config.json")):
        config = json.loads(path.read_text())
        drop = ("transformers_version", "architectures", "torch_dtype", "dtype", "initializer_range", "use_cache",
                "bos_token_id", "pad_token_id", "eos_token_id", "attention_dropout")
        for part in (config, config.get("text_config", {})):
            for key in drop:
                part.pop(key, None)
        yield b"\1" + json.dumps(config, separators=(",", ":")).encode()
    for path in sorted(fixtures.glob("gguf/*.gguf")):
        yield b"\0" + json.dumps(gguf_metadata(path.read_bytes()), separators=(",", ":")).encode()


def gguf_tokenizer_seeds():
    def texts(values):
        return struct.pack("<IQ", 8, len(values)) + b"".join(map(gguf_text, values))

    def numbers(kind, form, values):
        return struct.pack("<IQ", kind, len(values)) + struct.pack(f"<{len(values)}{form}", *values)

    tokens = ["<unk>", "<s>", "</s>", "<0x41>", "\u2581", "h", "e", "l", "o", "he", "ll", "\u2581he"]
    for model in ("llama", "gpt2", "bert"):
        pairs = [("tokenizer.ggml.model", 8, gguf_text(model)), ("tokenizer.ggml.pre", 8, gguf_text("default")),
                 ("tokenizer.ggml.tokens", 9, texts(tokens)),
                 ("tokenizer.ggml.scores", 9, numbers(6, "f", [-float(i) for i in range(len(tokens))])),
                 ("tokenizer.ggml.token_type", 9, numbers(5, "i", [2, 3, 3, 6] + [1] * (len(tokens) - 4))),
                 ("tokenizer.ggml.merges", 9, texts(["h e", "l l", "\u2581 he"])),
                 ("tokenizer.ggml.bos_token_id", 4, struct.pack("<I", 1)),
                 ("tokenizer.ggml.add_bos_token", 7, b"\1")]
        yield gguf_file(pairs, []) + b"\xfe\xfe" + TEXT.encode()


def sentencepiece_seeds():
    def field(number, payload):
        return bytes([number << 3 | 2, len(payload)]) + payload

    def piece(text, score, kind):
        return field(1, field(1, text.encode()) + b"\x15" + struct.pack("<f", score) + bytes([3 << 3, kind]))

    pieces = b"".join([piece("<unk>", 0, 2), piece("<s>", 0, 3), piece("</s>", 0, 3), piece("<0x41>", 0, 6),
                       piece("\u2581", -1, 1), piece("h", -2, 1), piece("he", -1.5, 1), piece("l", -2, 1), piece("x", 0, 4)])
    for kind in (1, 2):  # unigram, BPE
        trainer = field(2, bytes([3 << 3, kind, 35 << 3 & 0x7f | 0x80, 2, 1]))
        yield pieces + trainer + field(3, bytes([3 << 3, 1, 4 << 3, 1])) + b"\xfe\xfe" + TEXT.encode()


def block_seeds():
    for kind in range(32):
        yield bytes([kind]) + bytes((kind * 31 + i * 7) % 256 for i in range(300))
        yield bytes([kind]) + struct.pack("<256f", *(i / 16 - 8 for i in range(256)))


def cache_seeds():
    for mix in range(8):
        yield bytes([mix]) + bytes((mix + i * i * 13) % 256 for i in range(400))


def ipc_seeds():
    version = int(re.search(r"kVersion = (\d+)", (ROOT / "api/ipc/messages.h").read_text())[1])
    for kind in range(1, 28):
        for size in (0, 8, 24, 200):
            yield b"\xff" + b"QIPC" + struct.pack("<HHII", version, kind, size, 0) + b"\0" * size


def body_seeds():
    user = {"role": "user", "content": "hi"}
    tool = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {
        "type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}}}
    call = {"role": "assistant", "content": None, "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"x\":1}"}}]}
    schema = {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": {"type": "string"}}}
    for body in (
            {"model": "m", "prompt": "p", "suffix": "s", "system": "y", "raw": True, "stream": False, "keep_alive": "5m",
             "options": {"temperature": 0.5, "num_predict": 3, "stop": ["a"], "seed": 1}},
            {"model": "m", "messages": [user], "tools": [tool], "format": "json", "think": True, "keep_alive": -1},
            {"model": "m", "messages": [{"role": "system", "content": [{"type": "text", "text": "t"}]}, user, call,
                                        {"role": "tool", "tool_call_id": "1", "content": "2"}], "tools": [tool],
             "tool_choice": "required", "response_format": schema, "n": 2, "logprobs": True, "top_logprobs": 3,
             "stream": True, "stream_options": {"include_usage": True}, "logit_bias": {"5": -100}},
            {"model": "m", "prompt": ["a", [1, 2]], "max_tokens": 2, "echo": True, "best_of": 1, "stop": "x"},
            {"model": "m", "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "t"}]}],
             "instructions": "i", "text": {"format": {"type": "json_object"}}, "max_output_tokens": 4},
            {"model": "m", "max_tokens": 5, "system": [{"type": "text", "text": "s"}], "stop_sequences": ["q"],
             "messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "r"}]}],
             "tools": [{"name": "f", "input_schema": {"type": "object"}}], "tool_choice": {"type": "tool", "name": "f"}},
            {"model": "m", "input": ["a", "b"], "truncate": False, "dimensions": 8, "encoding_format": "base64"},
            {"model": "m", "content": "text", "tokens": [1, 2], "add_special": True, "with_pieces": True},
            {"model": "m", "from": "b", "files": {"a.gguf": "sha256:" + "0" * 64}, "quantize": "q4_K_M",
             "parameters": {"stop": ["a", "b"]}, "messages": [user], "license": ["l"], "template": "{{ .Prompt }}"},
            {"source": "a", "destination": "b"}, {"name": "n", "insecure": True, "verbose": True},
            {"model": "m", "prompt": "a [img]", "images": ["aGk=", "data:image/png;base64,aGk"],
             "messages": [{"role": "user", "content": "a [img] b", "images": ["aGk=", "http://a/b.png"]},
                          {"role": "tool", "content": [{"type": "image_url", "image_url": {"url": "aGk="}}]}]},
            {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": [
                {"type": "text", "text": "t"}, {"type": "image_url", "image_url": "data:;base64,aGk="}, {"type": "image", "source": {
                    "type": "base64", "media_type": "image/png", "data": "aGk="}}]}], "input": [
                {"role": "user", "content": [{"type": "input_image", "image_url": "aGk="}]},
                {"type": "computer_call_output", "call_id": "1", "output": {"type": "computer_screenshot", "image_url": "aGk="}}]}):
        yield json.dumps(body, separators=(",", ":")).encode()


def http_seeds():
    host = b"Host: localhost\r\n"
    yield b"GET / HTTP/1.1\r\n" + host + b"\r\n"
    yield b"GET /api/tags?a=b%20c HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
    yield b"POST /api/chat HTTP/1.1\r\n" + host + b"Content-Length: 5\r\n\r\nhello"
    yield b"POST /api/chat HTTP/1.1\r\n" + host + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}"
    yield b"POST /x HTTP/1.1\r\n" + host + b"Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nT: v\r\n\r\n"
    yield b"POST /x HTTP/1.1\r\n" + host + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n"
    yield b"GET http://h:1/p HTTP/1.1\r\nHost: h:1\r\nAuthorization: Bearer k\r\nCookie: a\r\n\r\nGET / HTTP/1.1\r\n\r\n"
    yield b"OPTIONS * HTTP/1.1\r\nHost: [::1]:80\r\nOrigin: null\r\nX:\t v \r\n\r\n"


def modelfile_seeds():
    yield b"FROM base\nPARAMETER temperature 0.5\nPARAMETER stop \"a b\"\nSYSTEM You are kind.\n"
    yield b"# c\nFROM ./m.gguf\nDRAFT ./d\nTEMPLATE \"\"\"{{ .Prompt }}\n{{ .Response }}\"\"\"\nLICENSE \"\"\"x\"\"\"\n"
    yield b"from b\r\nMESSAGE user hi\r\nMESSAGE assistant \"\"\"a\nb\"\"\"\r\nADAPTER x\r\nREQUIRES 0.1\r\n"


def gotemplate_seeds():
    yield from (
        b"{{ if .System }}<s>{{ .System }}</s>{{ end }}{{ .Prompt }}{{- .Response -}}",
        b"{{- range $i, $m := .Messages }}{{ if eq $m.Role \"user\" }}{{ $m.Content }}{{ else }}x{{ end }}{{ end }}",
        b"{{ $last := len .Messages }}{{ range .Messages }}{{ json . }}{{ break }}{{ end }}",
        b"{{ define \"t\" }}{{ . }}{{ end }}{{ template \"t\" .System }}{{/* c */}}",
        b"{{ with .Messages }}{{ (index . 0).Content | printf \"%s %q %d\" \"a\" 1 }}{{ else with .System }}{{ . }}{{ end }}",
        b"{{ and (or .A .B) (not .C) (ne 1 2) (lt 1 2) (ge 2 1) }}{{ slice .Prompt 0 1 }}{{ `raw` }}{{ 'a' }}{{ 0x1f }}{{ 1.5e3 }}",
    )


SCHEMA_KEYWORDS = ("type properties required items prefixItems additionalProperties propertyNames patternProperties enum const "
                   "anyOf oneOf allOf $ref $defs definitions pattern format minLength maxLength minItems maxItems uniqueItems "
                   "minimum maximum exclusiveMinimum exclusiveMaximum minProperties maxProperties string integer number "
                   "boolean null object array #/$defs/a true false nullable").split()


def words(seeds):
    """What stands in quotes, and identifiers: the dictionary."""
    found = set()
    for seed in seeds:
        text = seed.decode(errors="replace")
        found.update(re.findall(r'"[^"\\\n\ufffd]{1,40}"', text))
        found.update(re.findall(r"[A-Za-z_][A-Za-z_0-9.]{2,30}", text))
    return found


def write(out, name, seeds, extra=()):
    folder = out / (name if name == "cache_fuzz" else f"quire_{name}_fuzz")
    folder.mkdir(parents=True, exist_ok=True)
    seeds = list(seeds)
    for i, seed in enumerate(seeds):
        (folder / f"seed{i:03}").write_bytes(seed)
    if extra is None:  # a binary format
        return
    lines = []
    for word in sorted(words(seeds) | set(extra)):
        lines.append('"' + "".join(chr(b) if 32 < b < 127 and b not in b'"\\' else f"\\x{b:02x}" for b in word.encode()) + '"')
    (out / f"{folder.name}.dict").write_text("\n".join(lines) + "\n")


def main():
    fixtures, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    write(out, "gguf", gguf_seeds(), ["general.alignment", "\x7f" * 8])
    write(out, "dialects", dialect_seeds(), ["nextn_predict_layers", "blk.0.nextn.", "mtp.layers.", "rope.scaling.type",
                                             "split.count", "tokenizer.ggml.eos_token_ids"])
    write(out, "safetensors", safetensors_seeds(), ["18446744073709551615", "9223372036854775808", "-1", "null"])
    write(out, "tokenizer", (json.dumps(s, separators=(",", ":"), ensure_ascii=False).encode() + b"\0" + TEXT.encode()
                             for s in tokenizer_seeds(fixtures)))
    names = ("abs attr batch capitalize default dictsort first float int items join last length list lower map max min "
             "reject rejectattr replace reverse round safe select selectattr slice sort string sum title tojson trim "
             "truncate unique upper urlencode wordcount wordwrap is in not and or if elif else endif for endfor set "
             "endset macro endmacro call endcall filter endfilter raw endraw break continue loop.index namespace dict "
             "cycler joiner lipsum range {%- -%} {{- -}} {# #} ** // ~ | <= >= != == 'x' startswith endswith strip "
             "lstrip rstrip split count find format keys values get pop append extend").split()
    write(out, "jinja", template_seeds(fixtures), names)
    write(out, "gotemplate", gotemplate_seeds(), ["{{-", "-}}", "{{/*", ":=", "else if", "printf", "html", "js", "call"])
    write(out, "http_parser", http_seeds(), ["\r\n", "\r\n\r\n", "HTTP/1.1", "Content-Length: ", "0\r\n\r\n"])
    write(out, "api_bodies", body_seeds(), ["-1", "1e308", "null", "[]", "{}", "9223372036854775807", "\\ud800"])
    write(out, "api_modelfile", modelfile_seeds(), ['"""', "ADAPTER"])
    write(out, "api_ipc", ipc_seeds(), None)
    write(out, "blocks", block_seeds(), None)
    write(out, "cache_fuzz", cache_seeds(), None)
    write(out, "gguf_tokenizer", gguf_tokenizer_seeds(), ["gpt2", "llama", "t5", "tokenizer.ggml.eos_token_id"])
    write(out, "sentencepiece", sentencepiece_seeds(), None)
    write(out, "model_config", config_seeds(fixtures), ["-1", "1e308", "null", "[]", "{}", "9223372036854775807", "0"])
    write(out, "schema", format_seeds.schema_seeds(fixtures), SCHEMA_KEYWORDS)
    write(out, "regex", format_seeds.regex_seeds(), ["(?:", "{2,3}", "\\d", "\\w", "\\s", "[^", "\\u00e9", "\x00"])
    write(out, "grammar", format_seeds.grammar_seeds(), None)
    write(out, "output", format_seeds.answer_seeds(), ["[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<|tool_call>", "<tool_call|>",
          "<|\"|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<think>", "</think>", "<parameter=", "</function>"])
    write(out, "prompt", format_seeds.chat_seeds(template_seeds(fixtures), gotemplate_seeds()), names)
    write(out, "manifest", format_seeds.manifest_seeds(), ["-1", "9223372036854775807", "null"])
    write(out, "challenge", format_seeds.challenge_seeds(), ["https://", "http://", "\\\"", "realm=", "@", "%2f"])


if __name__ == "__main__":
    main()
