"""Writes small seed corpora and dictionaries for the loader fuzzers.

usage: seeds.py FIXTURES OUT

OUT/NAME/ is the corpus of fuzzer quire_NAME_fuzz, OUT/NAME.dict its dictionary. FIXTURES is what QUIRE_FIXTURES names;
its files are cut down to a few hundred bytes each, as short inputs are what a fuzzer is quick with.
"""
import json
import pathlib
import re
import struct
import sys

TEXT = "hello \u00e9 world 12 <s>"


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


def words(seeds):
    """What stands in quotes, and identifiers: the dictionary."""
    found = set()
    for seed in seeds:
        text = seed.decode(errors="replace")
        found.update(re.findall(r'"[^"\\\n\ufffd]{1,40}"', text))
        found.update(re.findall(r"[A-Za-z_][A-Za-z_0-9.]{2,30}", text))
    return found


def write(out, name, seeds, extra=()):
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    seeds = list(seeds)
    for i, seed in enumerate(seeds):
        (folder / f"seed{i:03}").write_bytes(seed)
    lines = []
    for word in sorted(words(seeds) | set(extra)):
        lines.append('"' + "".join(chr(b) if 32 < b < 127 and b not in b'"\\' else f"\\x{b:02x}" for b in word.encode()) + '"')
    (out / f"{name}.dict").write_text("\n".join(lines) + "\n")


def main():
    fixtures, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    write(out, "gguf", gguf_seeds(), ["general.alignment", "\x7f" * 8])
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
    write(out, "model_config", config_seeds(fixtures), ["-1", "1e308", "null", "[]", "{}", "9223372036854775807", "0"])


if __name__ == "__main__":
    main()
