"""Writes a model that answers from a script, with nothing but Python: a Llama whose layer adds nothing, so that each token
alone decides the next. The last token of a prompt chooses the answer."""
import json
import pathlib
import struct

HIDDEN, WIDE, HEADS = 512, 64, 8
END = "<|im_end|>"
MARKERS = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
TEMPLATE = ("{#- tools: <tool_call> </tool_call> <think> </think> -#}{% if tools %}{{ tools | tojson }}{% endif %}"
            "{% for m in messages %}\n{{ m.content }}{% for call in m.tool_calls or [] %}{{ call | tojson }}{% endfor %}{% endfor %}"
            "{% if messages[-1].content == 'E' %}<think>\n{% endif %}")


def byte_letters():
    """The letters that byte-level tokenizers write the 256 bytes with."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)]


def write(folder, answers):
    """answers: the last letter of a prompt, or its last line break -> the tokens of the answer. No token but the markers may
    stand in two of them."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    tokens = [END, *MARKERS]
    for answer in answers.values():
        tokens += [token for token in answer if token not in tokens]
    ids = {letter: i for i, letter in enumerate(byte_letters())}
    added = {token: 256 + i for i, token in enumerate(tokens)}
    following = {}
    for first, answer in answers.items():
        at = ord(first)
        for token in [*answer, END]:
            assert following.setdefault(at, added[token]) == added[token], token
            at = added[token]
    count = 256 + len(tokens)
    assert count <= HIDDEN

    def rows(ones, height, width):
        raw = bytearray(4 * height * width)
        for row, column in ones:
            struct.pack_into("<f", raw, 4 * (row * width + column), 1.0)
        return [height, width], raw
    layer = "model.layers.0."
    ones = struct.pack(f"<{HIDDEN}f", *[1.0] * HIDDEN)
    tensors = {
        "model.embed_tokens.weight": rows([(i, i) for i in range(count)], count, HIDDEN),
        "lm_head.weight": rows([(after, before) for before, after in following.items()], count, HIDDEN),
        "model.norm.weight": ([HIDDEN], ones),
        layer + "input_layernorm.weight": ([HIDDEN], ones),
        layer + "post_attention_layernorm.weight": ([HIDDEN], ones),
        **{f"{layer}self_attn.{name}_proj.weight": rows([], HIDDEN, HIDDEN) for name in "qkvo"},
        **{f"{layer}mlp.{name}_proj.weight": rows([], WIDE, HIDDEN) for name in ("gate", "up")},
        layer + "mlp.down_proj.weight": rows([], HIDDEN, WIDE),
    }
    header, payload = {}, bytearray()
    for name, (shape, raw) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(payload), len(payload) + len(raw)]}
        payload += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + payload)
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": WIDE,
        "num_hidden_layers": 1, "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "vocab_size": count,
        "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "hidden_act": "silu", "rope_theta": 10000.0,
        "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False, "eos_token_id": added[END]}))
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
        "added_tokens": [{"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": token == END} for token, i in added.items()],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": ids, "merges": []}}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": END, "chat_template": TEMPLATE}))
    return folder
