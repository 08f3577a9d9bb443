"""Writes a model that calls a tool and then ends: the stand-in for a large model in tests of agents.

It is a Llama of one layer with zero attention and feed-forward weights, so that the next token depends on the last one
only. The chat template ends with one token where the model is to call a tool and with another where it is to answer. A result
that has "call again" in it is followed by another call.
Names and arguments of the call come from the daemon's constrained decoding; among what that allows the model prefers
the tools it is given here, and "ls" for texts.
"""
import json
import pathlib
import struct
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEMO = ROOT / "packaging/models/quire-demo"
HIDDEN = 128
CONTEXT = 131072
CALL, ANSWER = "<|tool_list_end|>", "<|pad|>"  # the template's last tokens

TEMPLATE = r"""{{- bos_token -}}
{%- set ns = namespace(done=true) -%}
{%- if tools -%}
{{- "<|im_start|>system\nList of tools: <|tool_list_start|>" + (tools | tojson) + "<|im_end|>\n" -}}
{%- endif -%}
{%- for message in messages -%}
{%- if message.role == "user" -%}{%- set ns.done = false -%}{%- endif -%}
{%- if message.role == "tool" -%}{%- set ns.done = "call again" not in message.content -%}{%- endif -%}
{{- "<|im_start|>" + message.role + "\n" -}}
{%- if message.tool_calls -%}{{- "<|tool_call_start|>" + (message.tool_calls | tojson) + "<|tool_call_end|>" -}}{%- endif -%}
{{- (message.content or "") + "<|im_end|>\n" -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- "<|im_start|>assistant\n" -}}
{{- "CALL" if tools and not ns.done else "ANSWER" -}}
{%- endif -%}
""".replace('"CALL"', f'"{CALL}"').replace('"ANSWER"', f'"{ANSWER}"')


def spell(text, vocabulary):
    """Tokens of a text, longest first: not the tokenizer's, but a grammar of bytes takes any."""
    shown = text.replace(" ", "Ġ").replace("\n", "Ċ")
    tokens = []
    while shown:
        size = next(n for n in range(len(shown), 0, -1) if shown[:n] in vocabulary)
        tokens.append(vocabulary[shown[:size]])
        shown = shown[size:]
    return tokens


class Weights:
    def __init__(self, size):
        self.size = size
        self.embedding = [{0: 1.0} for _ in range(size)]
        self.head = [{} for _ in range(size)]
        self.dimensions = {}

    def prefer(self, token, strength):
        self.head[token][0] = strength

    def follow(self, token, following, strength=60.0, alike=None):
        """`following` is likely behind `token`, and behind all others of the same `alike`."""
        dimension = self.dimensions.setdefault(alike or token, len(self.dimensions) + 1)
        assert dimension < HIDDEN
        self.embedding[token][dimension] = 1.0
        self.head[following][dimension] = strength

    @staticmethod
    def matrix(rows, columns):
        out = bytearray(4 * columns * len(rows))
        for at, row in enumerate(rows):
            for column, value in row.items():
                struct.pack_into("<f", out, 4 * (at * columns + column), value)
        return bytes(out)


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, (shape, data) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, data in tensors.values()))


def zeros(*shape):
    size = 4
    for one in shape:
        size *= one
    return list(shape), bytes(size)


def ones(size):
    return [size], struct.pack("<f", 1.0) * size


def write(folder, tools):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = json.loads((DEMO / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    weights = Weights(len(vocabulary))
    # Where nothing follows anything in particular: the end, else the end of what is open.
    for strength, token in enumerate(["1", "}", "]", ")", '"', "<|tool_call_end|>", "<|im_end|>"]):
        weights.prefer(vocabulary[token], 10.0 + strength)
    weights.follow(vocabulary[CALL], vocabulary["<|tool_call_start|>"])
    weights.follow(vocabulary["<|tool_call_start|>"], vocabulary["["])  # not a longer token that decides the name
    answer = spell("Done", vocabulary)
    for before, token in zip([vocabulary[ANSWER]] + answer, answer):
        weights.follow(before, token)
    text = spell("ls", vocabulary)
    for shown, token in vocabulary.items():
        if shown.endswith('"'):
            weights.follow(token, text[0], alike="quote")
    for before, token in zip(text, text[1:]):
        weights.follow(before, token)
    weights.follow(text[-1], vocabulary['"'], 90.0)
    for tool in tools:
        name = spell(tool, vocabulary)
        weights.follow(vocabulary["["], name[0], 80.0)
        weights.follow(vocabulary['"'], name[0], 50.0, alike="quote")
        for before, token in zip(name, name[1:]):
            weights.follow(before, token, 80.0)
    intermediate, head = 32, 32
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": len(vocabulary),
              "hidden_size": HIDDEN, "intermediate_size": intermediate, "num_hidden_layers": 1,
              "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": head,
              "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "hidden_act": "silu", "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 7,
              "attention_bias": False, "mlp_bias": False, "torch_dtype": "float32"}
    layer = "model.layers.0."
    write_safetensors(folder / "model.safetensors", {
        "model.embed_tokens.weight": ([len(vocabulary), HIDDEN], Weights.matrix(weights.embedding, HIDDEN)),
        "lm_head.weight": ([len(vocabulary), HIDDEN], Weights.matrix(weights.head, HIDDEN)),
        "model.norm.weight": ones(HIDDEN),
        layer + "input_layernorm.weight": ones(HIDDEN),
        layer + "post_attention_layernorm.weight": ones(HIDDEN),
        layer + "self_attn.q_proj.weight": zeros(head, HIDDEN),
        layer + "self_attn.k_proj.weight": zeros(head, HIDDEN),
        layer + "self_attn.v_proj.weight": zeros(head, HIDDEN),
        layer + "self_attn.o_proj.weight": zeros(HIDDEN, head),
        layer + "mlp.gate_proj.weight": zeros(intermediate, HIDDEN),
        layer + "mlp.up_proj.weight": zeros(intermediate, HIDDEN),
        layer + "mlp.down_proj.weight": zeros(HIDDEN, intermediate),
    })
    (folder / "config.json").write_text(json.dumps(config))
    for name in ["tokenizer.json", "tokenizer_config.json"]:
        (folder / name).write_text((DEMO / name).read_text())
    (folder / "generation_config.json").write_text(json.dumps({"bos_token_id": 1, "eos_token_id": 7}))
    (folder / "chat_template.jinja").write_text(TEMPLATE)


if __name__ == "__main__":
    write(sys.argv[1], sys.argv[2:])
