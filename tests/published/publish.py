"""Rewrites a GGUF file into the spelling in which Ollama, or an early llama.cpp, published the same model.

usage: publish.py ROW GGUF_FOLDER PLAIN PUBLISHED

ROW is a name of ROWS. PLAIN is the file in the spelling of llama.cpp's converter, with what the published model
has beside it (a trained length, an MTP layer); PUBLISHED says the same otherwise. Both compute the same. Written
from Ollama's converter and its compatibility layer.
"""
import base64
import pathlib
import struct
import sys

from gguf_file import ARRAY, BOOL, F32, I32, TEXT, TYPE_F32, U32, Gguf, floats


# ---- rows: each edits (plain, published), which are the same file to begin with ----


def gemma3(plain, published):
    for file in (plain, published):
        file.keys[file.key("context_length")] = (U32, 131072)
    g = published
    g.drop(g.key("rope.scaling.type"), g.key("rope.scaling.factor"), g.key("attention.layer_norm_rms_epsilon"),
           "tokenizer.ggml.add_space_prefix")
    g.keys[g.key("rope.local.freq_base")] = g.keys.pop(g.key("rope.freq_base_swa"))
    g.keys[g.key("rope.global.freq_base")] = g.keys.pop(g.key("rope.freq_base"))
    g.keys[g.key("mm.tokens_per_image")] = (U32, 256)
    g.keys[g.key("vision.block_count")] = (U32, 1)
    g.keys["tokenizer.ggml.eos_token_ids"] = ((ARRAY, I32), [1, 5])
    for name, extra in (("tokens", "<image_soft_token>"), ("scores", -1000.0), ("token_type", 4)):
        g.keys["tokenizer.ggml." + name][1].append(extra)
    g.add("v.blk.0.attn_q.weight", [8, 8])
    g.add("mm.mm_input_projection.weight", [64, 8])


def gemma4_tokenizer(g):
    tokens = g.keys["tokenizer.ggml.tokens"][1]
    g.keys["tokenizer.ggml.model"] = (TEXT, "llama")
    g.keys["tokenizer.ggml.pre"] = (TEXT, "gemma4")
    g.keys["tokenizer.ggml.scores"] = ((ARRAY, F32), [float(i) for i in range(len(tokens))])
    types = g.keys["tokenizer.ggml.token_type"][1]
    for i, token in enumerate(tokens):
        if token.startswith("<0x"):
            types[i] = 1
    g.drop("tokenizer.ggml.add_space_prefix")
    g.add("a.blk.0.attn_q.weight", [8, 8])
    g.add("v.blk.0.attn_q.weight", [8, 8])


def gemma4_e(_, published):
    gemma4_tokenizer(published)


def gemma4_moe(_, published):
    g = published
    gemma4_tokenizer(g)
    g.rename(".ffn_down_exps.scale", ".ffn_gate_inp.per_expert_scale")
    for name in [n for n in g.tensors if n.endswith(".ffn_gate_up_exps.weight")]:
        (hidden, both, experts), kind, raw = g.tensors.pop(name)
        half = len(raw) // experts // 2
        parts = [raw[i * half:(i + 1) * half] for i in range(2 * experts)]
        for start, part in ((0, "gate"), (1, "up")):
            g.tensors[name.replace("gate_up", part)] = ([hidden, both // 2, experts], kind, b"".join(parts[start::2]))


def kv_heads_per_layer(g):
    """An array with zeros in place of recurrent_layers, which it replaces; ssm_dt without its ending."""
    heads, recurrent = g.get("attention.head_count_kv"), g.get("attention.recurrent_layers")
    g.keys[g.key("attention.head_count_kv")] = ((ARRAY, U32), [0 if r else heads for r in recurrent])
    g.drop(g.key("attention.recurrent_layers"))
    g.rename(".ssm_dt.bias", ".ssm_dt")


def qwen3_5(_, published):
    g = published
    kv_heads_per_layer(g)
    g.keys[g.key("rope.dimension_sections")][1].pop()
    g.keys[g.key("ssm.v_head_reordered")] = (BOOL, True)
    g.keys[g.key("rope.mrope_interleaved")] = (BOOL, True)
    g.keys[g.key("vision.block_count")] = (U32, 1)
    g.add("v.blk.0.attn_q.weight", [8, 8])


def add_mtp(g):
    """An MTP layer as llama.cpp's converter writes one: the last layer once more, and a join."""
    blocks = g.get("block_count")
    last = f"blk.{blocks - 1}."
    for name in [n for n in g.tensors if n.startswith(last)]:
        g.tensors[f"blk.{blocks}." + name[len(last):]] = g.tensors[name]
    hidden = g.get("embedding_length")
    nextn = f"blk.{blocks}.nextn."
    values = [((7 * i) % 13 - 6) / 32 for i in range(2 * hidden * hidden)]
    g.tensors[nextn + "eh_proj.weight"] = ([2 * hidden, hidden], TYPE_F32,
                                           struct.pack(f"<{len(values)}f", *values))
    for name in ("enorm", "hnorm", "shared_head_norm"):
        g.tensors[nextn + name + ".weight"] = g.tensors["output_norm.weight"]
    g.keys[g.key("block_count")] = (U32, blocks + 1)
    g.keys[g.key("nextn_predict_layers")] = (U32, 1)
    g.keys[g.key("attention.recurrent_layers")][1].append(False)


def spell_mtp(g):
    """The MTP layer under the checkpoint's names; norms without the 1 that the converter adds."""
    blocks = g.get("block_count") - 1
    block = f"blk.{blocks}."
    shared = {"nextn.eh_proj": "mtp.fc", "nextn.enorm": "mtp.pre_fc_norm_embedding",
              "nextn.hnorm": "mtp.pre_fc_norm_hidden", "nextn.shared_head_norm": "mtp.norm"}
    for name in [n for n in g.tensors if n.startswith(block)]:
        dims, kind, raw = g.tensors.pop(name)
        rest = name[len(block):]
        stem = rest.removesuffix(".weight")
        if stem.endswith("norm"):
            values = [w - 1 for w in floats((dims, kind, raw))]
            raw = struct.pack(f"<{len(values)}f", *values)
        if stem in shared:
            g.tensors[shared[stem] + ".weight"] = (dims, kind, raw)
        elif stem.endswith("_exps"):
            one = len(raw) // dims[2]
            for expert in range(dims[2]):
                part = stem.removeprefix("ffn_").removesuffix("_exps")
                g.tensors[f"mtp.layers.0.mlp.experts.{expert}.{part}_proj.weight"] = (
                    dims[:2], kind, raw[expert * one:(expert + 1) * one])
        else:
            g.tensors["mtp.layers.0." + rest] = (dims, kind, raw)
    g.keys[g.key("block_count")] = (U32, blocks)
    g.drop(g.key("nextn_predict_layers"))
    g.keys[g.key("attention.recurrent_layers")][1].pop()


def qwen3_5_mtp(plain, published):
    for file in (plain, published):
        add_mtp(file)
    spell_mtp(published)
    qwen3_5(plain, published)


def qwen3_next_mtp(plain, published):
    for file in (plain, published):
        # The last layer is recurrent here, the one before it attends.
        blocks = file.get("block_count")
        for name in [n for n in file.tensors if n.startswith(f"blk.{blocks - 1}.")]:
            del file.tensors[name]
        file.keys[file.key("block_count")] = (U32, blocks - 1)
        file.keys[file.key("attention.recurrent_layers")][1].pop()
        add_mtp(file)
    spell_mtp(published)
    kv_heads_per_layer(published)


def qwen3_next(_, published):
    kv_heads_per_layer(published)
    published.keys[published.key("norm_top_k_prob")] = (BOOL, True)


def qwen3_next_early(_, published):
    """As llama.cpp wrote it before December 2025: one input matrix, which goes by key heads, and experts one by one."""
    g = published
    key_heads, value_heads = g.get("ssm.group_count"), g.get("ssm.time_step_rank")
    key, values = g.get("ssm.state_size"), g.get("ssm.inner_size") // key_heads
    assert value_heads % key_heads == 0
    for name in [n for n in g.tensors if n.endswith(".attn_qkv.weight")]:
        (hidden, channels), kind, both = g.tensors.pop(name)
        _, _, gate = g.tensors.pop(name.replace("attn_qkv", "attn_gate"))
        row = len(both) // channels
        keys = key_heads * key

        def rows(data, start, count):
            return data[start * row:(start + count) * row]
        parts = []
        for head in range(key_heads):
            parts += [rows(both, head * key, key), rows(both, keys + head * key, key),
                      rows(both, 2 * keys + head * values, values), rows(gate, head * values, values)]
        g.tensors[name.replace("attn_qkv", "ssm_in")] = ([hidden, channels + key_heads * values], kind, b"".join(parts))
    experts_one_by_one(g)


def experts_one_by_one(g):
    for name in [n for n in g.tensors if n.endswith("_exps.weight")]:
        dims, kind, raw = g.tensors.pop(name)
        one = len(raw) // dims[2]
        for expert in range(dims[2]):
            g.tensors[name.replace("_exps.weight", f".{expert}.weight")] = (dims[:2], kind, raw[expert * one:(expert + 1) * one])


def lfm2_moe_early(_, published):
    experts_one_by_one(published)


def lfm2(_, published):
    g = published
    g.rename("token_embd_norm.weight", "output_norm.weight")
    g.keys[g.key("feed_forward_length")] = (U32, 3 * g.get("feed_forward_length") // 2)
    g.keys["tokenizer.ggml.pre"] = (TEXT, "default")


def lfm2_moe(_, published):
    published.rename("token_embd_norm.weight", "output_norm.weight")
    published.drop("tokenizer.ggml.pre")


def llama3(_, published):
    g = published
    g.drop("tokenizer.ggml.pre")
    tokens = g.keys["tokenizer.ggml.tokens"][1]
    g.keys["tokenizer.ggml.eos_token_id"] = (U32, tokens.index("<|end_of_text|>"))


def llama_linear(plain, published):
    """Linear scaling as llama.cpp wrote it in 2023."""
    for file in (plain, published):
        del file.tensors["rope_freqs.weight"]
    plain.keys[plain.key("rope.scaling.type")] = (TEXT, "linear")
    plain.keys[plain.key("rope.scaling.factor")] = (F32, 4.0)
    published.keys[published.key("rope.scale_linear")] = (F32, 4.0)


def deepseek_distill(_, published):
    published.keys["tokenizer.ggml.pre"] = (TEXT, "deepseek-r1-qwen")


def gpt_oss(_, published):
    g = published
    g.drop(g.key("expert_feed_forward_length"), g.key("rope.scaling.type"), "tokenizer.ggml.pre")
    g.call("gptoss")
    for new, old in ((".attn_out.weight", ".attn_output.weight"), (".attn_out.bias", ".attn_output.bias"),
                     (".attn_sinks", ".attn_sinks.weight"), (".ffn_norm.weight", ".post_attention_norm.weight")):
        g.rename(old, new)


def yarn(g, factor=8.0, context=2):
    g.set(TEXT, rope__scaling__type="yarn")
    g.set(F32, rope__scaling__factor=factor)
    g.set(U32, rope__scaling__original_context_length=context)


def olmo3(plain, published):
    for file in (plain, published):
        yarn(file)
        file.set(U32, attention__sliding_window=2)
        file.keys[file.key("attention.sliding_window_pattern")] = ((ARRAY, BOOL), [True, True, True, False])
    published.set(F32, rope__scaling__attn_factor=1.2079441541679836)
    published.call("olmo3")


def phi3(plain, published):
    """Phi-3 with 4k tokens: no factors, which Ollama's converter writes nevertheless."""
    for file in (plain, published):
        file.drop(file.key("rope.scaling.attn_factor"), file.key("rope.scaling.original_context_length"))
        for name in ("rope_factors_long.weight", "rope_factors_short.weight"):
            del file.tensors[name]
    published.set(U32, rope__scaling__original_context_length=0)
    for name in ("rope_factors_long.weight", "rope_factors_short.weight"):
        published.add(name, [0])


def mistral3_text(g):
    g.call("mistral3")
    del g.tensors["rope_freqs.weight"]


def ministral3(plain, published):
    for file in (plain, published):
        mistral3_text(file)
        yarn(file)
    plain.set(F32, rope__scaling__yarn_beta_fast=16.0, rope__scaling__yarn_beta_slow=2.0,
              rope__scaling__yarn_log_multiplier=1.0, attention__temperature_scale=0.125)
    g = published
    g.set(F32, rope__scaling__beta_fast=16.0, rope__scaling__beta_slow=2.0, rope__scaling__mscale=1.0,
          rope__scaling__mscale_all_dim=1.0, rope__scaling_beta=0.125)
    g.add_vision()


def mistral_small(plain, published):
    """Mistral Small 3: no scaling, of which the converter writes every key."""
    for file in (plain, published):
        mistral3_text(file)
    g = published
    g.set(TEXT, rope__scaling__type="")
    g.set(F32, rope__scaling__factor=0.0, rope__scaling__yarn_beta_fast=0.0, rope__scaling__yarn_beta_slow=0.0)
    g.add_vision()


def qwen_vl(plain, published, name, other):
    for file in (plain, published):
        if file.architecture == "llama":  # to Qwen2, with its biases
            del file.tensors["rope_freqs.weight"]
            for block in range(file.get("block_count")):
                for part in "qkv":
                    rows = file.tensors[f"blk.{block}.attn_{part}.weight"][0][1]
                    file.add(f"blk.{block}.attn_{part}.bias", [rows], 0.25)
        file.call(name)
    published.call(other)
    published.keys[published.key("rope.mrope_section")] = ((ARRAY, I32), [2, 3, 3])
    published.keys[published.key("rope.dimension_sections")] = ((ARRAY, I32), [2, 3, 3, 0])
    published.add_vision()


def qwen25vl(plain, published):
    qwen_vl(plain, published, "qwen2", "qwen25vl")


def qwen2vl(plain, published):
    qwen_vl(plain, published, "qwen2", "qwen2vl")


def qwen3vl(plain, published):
    qwen_vl(plain, published, "qwen3", "qwen3vl")


def qwen3vlmoe(plain, published):
    qwen_vl(plain, published, "qwen3moe", "qwen3vlmoe")
    published.set(BOOL, norm_top_k_prob=True)
    published.drop(published.key("expert_feed_forward_length"))


def part(tensor, axis, keep):
    """The tensor with those indices of an axis that `keep` has, of floats of 16 bits."""
    dims, kind, raw = tensor
    inner = 2
    for dim in dims[:axis]:
        inner *= dim
    row = inner * dims[axis]
    out = b"".join(raw[at + i * inner:at + (i + 1) * inner] for at in range(0, len(raw), row) for i in keep)
    return dims[:axis] + [len(keep)] + dims[axis + 1:], kind, out


def narrow_heads(g):
    """Heads of 24 + 16 with values of 16, so that no two lengths of a head and of a cached token are the same."""
    heads, key, value = g.get("attention.head_count"), 24, 16
    old_key = g.get("attention.key_length_mla") - 16
    rows = [h * (old_key + 16) + i for h in range(heads) for i in [*range(key), *range(old_key, old_key + 16)]]
    values = [h * g.get("attention.value_length_mla") + i for h in range(heads) for i in range(value)]
    for block in range(g.get("block_count")):
        for name, axis, keep in (("attn_q_b", 1, rows), ("attn_k_b", 0, range(key)), ("attn_v_b", 1, range(value)),
                                 ("attn_output", 0, values)):
            name = f"blk.{block}.{name}.weight"
            g.tensors[name] = part(g.tensors[name], axis, keep)
    g.set(U32, attention__key_length_mla=key + 16, attention__value_length_mla=value)


def join_kv_b(g):
    """Keys and values of a head in one matrix, as the checkpoint has them."""
    for name in [n for n in g.tensors if n.endswith(".attn_k_b.weight")]:
        (key, latent, heads), kind, keys = g.tensors.pop(name)
        (_, value, _), _, values = g.tensors.pop(name.replace("k_b", "v_b"))
        raw = b""
        for head in range(heads):
            at = head * latent * key
            raw += b"".join(keys[2 * (at + j * key + i):][:2] for i in range(key) for j in range(latent))
            raw += values[2 * head * latent * value:2 * (head + 1) * latent * value]
        g.tensors[name.replace("k_b", "kv_b")] = ([latent, heads * (key + value)], kind, raw)


def deepseek3(plain, published):
    """As Ollama's converter writes it; groups of experts are not among its keys."""
    for file in (plain, published):
        narrow_heads(file)
        file.drop(file.key("expert_group_count"), file.key("expert_group_used_count"))
    g = published
    join_kv_b(g)
    g.set(U32, attention__key_length=g.get("attention.key_length_mla"), attention__head_count_kv=4,
          attention__value_length=g.get("attention.value_length_mla"))
    g.drop(g.key("attention.key_length_mla"), g.key("attention.value_length_mla"))


def nemotron_omni(plain, published):
    """Nemotron 3 with experts behind a latent projection, vision, audio and an MTP layer in one file."""
    hidden = plain.get("embedding_length")
    for file, down, up in ((plain, "down", "up"), (published, "in", "out")):
        for name in [n for n in file.tensors if n.endswith(".ffn_up_exps.weight")]:
            block = name.removesuffix("ffn_up_exps.weight")
            for part, sign in ((down, 1), (up, -1)):
                values = [sign * ((5 * i) % 11 - 5) / 64 for i in range(hidden * hidden)]
                file.tensors[f"{block}ffn_latent_{part}.weight"] = (
                    [hidden, hidden], TYPE_F32, struct.pack(f"<{len(values)}f", *values))
    plain.set(U32, moe_latent_size=hidden)
    g = published
    g.call("nemotron_h_omni")
    g.add_vision()
    g.add("a.blk.0.attn_q.weight", [8, 8])
    g.add("mtp.layers.0.mixer.experts.0.up_proj.weight", [8, 8])


def arctic_embed2(_, published):
    key = "tokenizer.ggml.precompiled_charsmap"
    coded = base64.b64encode(bytes(value & 255 for value in published.keys[key][1])).decode()
    published.keys[key] = ((ARRAY, TEXT), list(coded))


def embeddinggemma(plain, published):
    for file in (plain, published):
        file.set(F32, rope__freq_base=500000.0, rope__freq_base_swa=20000.0)
    g = published
    g.drop(*[g.key(f"dense_{i}_feat_{end}") for i in (2, 3) for end in ("in", "out")], "tokenizer.ggml.add_space_prefix")
    g.call("gemma3")
    g.keys[g.key("rope.local.freq_base")] = g.keys.pop(g.key("rope.freq_base_swa"))
    g.keys[g.key("rope.global.freq_base")] = g.keys.pop(g.key("rope.freq_base"))
    for old, new in (("dense_2.weight", "dense.0.weight"), ("dense_3.weight", "dense.1.weight"),
                     ("output_norm.weight", "norm.weight")):
        g.tensors[new] = g.tensors.pop(old)


def glm4moelite(plain, published):
    for file in (plain, published):
        narrow_heads(file)
    g = published
    head, cached = [(g.get("attention.key_length" + end), g.get("attention.value_length" + end)) for end in ("_mla", "")]
    g.set(U32, attention__key_length=head[0], attention__value_length=head[1], attention__key_length_mla=cached[0],
          attention__value_length_mla=cached[1], attention__head_count_kv=4)
    g.call("glm4moelite")


ROWS = {
    "olmo3": ("olmo2.f16", olmo3),
    "phi3": ("phi3.f16", phi3),
    "ministral3": ("llama.f16", ministral3),
    "mistral_small": ("llama.f16", mistral_small),
    "qwen25vl": ("llama.f16", qwen25vl),
    "qwen2vl": ("llama.f16", qwen2vl),
    "qwen3vl": ("qwen3.f32", qwen3vl),
    "qwen3vlmoe": ("qwen3_moe.f16", qwen3vlmoe),
    "nemotron_omni": ("nemotron_h_moe.f16", nemotron_omni),
    "arctic_embed2": ("xlm_roberta.f16", arctic_embed2),
    "embeddinggemma": ("embedding_gemma.f16", embeddinggemma),
    "deepseek3": ("deepseek_v3.f16", deepseek3),
    "glm4moelite": ("deepseek_v3.f16", glm4moelite),
    "gpt_oss": ("gpt_oss_mxfp4.f16", gpt_oss),
    "gemma3": ("gemma3.f16", gemma3),
    "gemma4": ("gemma4_e.f16", gemma4_e),
    "gemma4_moe": ("gemma4_moe.f16", gemma4_moe),
    "qwen3_5": ("qwen3_5.f16", qwen3_5),
    "qwen3_5_mtp": ("qwen3_5.f16", qwen3_5_mtp),
    "qwen3_next": ("qwen3_next.f16", qwen3_next),
    "qwen3_next_mtp": ("qwen3_next.f16", qwen3_next_mtp),
    "qwen3_next_early": ("qwen3_next.f16", qwen3_next_early),
    "lfm2_moe_early": ("lfm2_moe.f16", lfm2_moe_early),
    "lfm2": ("lfm2.f16", lfm2),
    "lfm2_moe": ("lfm2_moe.f16", lfm2_moe),
    "llama3": ("llama.f16", llama3),
    "llama_linear": ("llama.f16", llama_linear),
    "deepseek_distill": ("qwen3.f32", deepseek_distill),
}


def main():
    row, folder, plain_path, published_path = sys.argv[1:]
    source, edit = ROWS[row]
    path = pathlib.Path(folder) / (source + ".gguf")
    plain, published = Gguf(path), Gguf(path)
    edit(plain, published)
    plain.write(plain_path)
    published.write(published_path)


if __name__ == "__main__":
    main()
