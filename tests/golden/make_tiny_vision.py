#!/usr/bin/env python3
"""Writes tests/data/vision.json: towers of random weights, patches, and what transformers makes of them.

usage: make_tiny_vision.py OUT

Needs what make_golden.py needs. Weights and patches are noise that tests make again: [shape, offset, scale] and the
tensor's name say which. Patches are in the order of the family's processor; a grid is rows and columns.
"""
import json
import math
import pathlib
import re
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file

TEXT = {"hidden_size": 8, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
        "num_key_value_heads": 1, "vocab_size": 40, "head_dim": 4}
TOWER = {"hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 2, "patch_size": 4}
MROPE = {"rope_type": "default", "mrope_section": [1, 1, 0], "rope_theta": 10000.0}
QWEN = {"depth": 3, "num_heads": 2, "patch_size": 4, "spatial_merge_size": 2, "in_channels": 3, "temporal_patch_size": 2}
GEMMA4_TEXT = TEXT | {"model_type": "gemma4_text", "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0,
                      "global_head_dim": 4, "layer_types": ["full_attention"]}

UNREAD = ("dtype", "initializer_range", "attention_dropout", "tokens_per_second")


def image_of(patches, rows, columns):
    cut = patches.reshape(rows, columns, 3, 4, 4).permute(2, 0, 3, 1, 4)
    return cut.reshape(3, rows * 4, columns * 4)


def qwen(model, rows, columns, patches):
    pixels = patches.reshape(-1, 3, 1, 16).repeat(1, 1, 2, 1).reshape(rows * columns, -1)
    return model.model.get_image_features(pixels, torch.tensor([[1, rows, columns]]))


def smolvlm(model, rows, columns, patches):
    return model.model.get_image_features(image_of(patches, rows, columns)[None, None], None)


def mistral3(model, rows, columns, patches):
    sizes = torch.tensor([[rows * 4, columns * 4]])
    return model.model.get_image_features(image_of(patches, rows, columns)[None], sizes)


def gemma4(model, rows, columns, patches):
    places = torch.meshgrid(torch.arange(columns), torch.arange(rows), indexing="xy")
    return model.model.get_image_features(patches[None], torch.stack(places, -1).reshape(1, -1, 2))


# family: its configuration's type, keys of the model and of the tower, how images go through it, grids
FAMILIES = {
    "qwen2_vl": ("qwen2_vl", {"text_config": TEXT | {"rope_scaling": MROPE}}, QWEN | {
        "embed_dim": 32, "hidden_size": 8, "mlp_ratio": 2}, qwen, [(4, 6)]),
    "qwen2_5_vl": ("qwen2_5_vl", {"text_config": TEXT | {"rope_scaling": MROPE}}, QWEN | {
        "hidden_size": 32, "intermediate_size": 40, "window_size": 16, "fullatt_block_indexes": [1],
        "out_hidden_size": 8}, qwen, [(10, 6), (2, 6)]),
    "smolvlm": ("smolvlm", {"scale_factor": 2, "text_config": TEXT | {"model_type": "llama"}},
                TOWER | {"image_size": 24}, smolvlm, [(6, 6), (4, 4)]),
    "mistral3": ("mistral3", {"spatial_merge_size": 2, "multimodal_projector_bias": False, "vision_feature_layer": -1,
                              "text_config": TEXT | {"model_type": "mistral", "rms_norm_eps": 1e-4}},
                 TOWER | {"model_type": "pixtral", "head_dim": 16, "image_size": 64, "hidden_act": "silu"}, mistral3,
                 [(6, 4), (2, 8)]),
    "gemma4": ("gemma4", {"text_config": GEMMA4_TEXT, "audio_config": None}, TOWER | {
        "num_key_value_heads": 2, "head_dim": 16, "pooling_kernel_size": 3, "position_embedding_size": 16,
        "standardize": True, "use_clipped_linears": True}, gemma4, [(6, 9), (3, 3)]),
}


def noise(seed, count):
    """What test::Noise of random_towers.h gives."""
    state = 0
    for byte in seed.encode():
        state = (state * 31 + byte) % 2 ** 32
    values = []
    for _ in range(count):
        state = (state * 1664525 + 1013904223) % 2 ** 32
        values.append(((state >> 24) - 128) / 128)
    return values


def made(seed, shape, offset, scale):
    tensor = torch.tensor(noise(seed, math.prod(shape)), dtype=torch.float32)
    return (offset + scale * tensor).reshape(shape)


def spread(name, shape):
    """Offset and scale of a tensor's values: states of all layers are of about one size."""
    for end, values in {"std_scale": (1.0, 0.125), "_min": (-1.75, 0.125), "_max": (1.5, 0.125)}.items():
        if name.endswith(end):
            return values
    if "position" in name:
        return 0.0, 0.5
    if len(shape) > 1:
        return 0.0, 2.0 ** round(math.log2(2 / math.prod(shape[1:]) ** 0.5))
    return (0.0 if name.endswith("bias") else 1.0), 0.125


def is_vision(name):
    return any(part in name for part in ("visual", "vision", "multi_modal_projector", "connector"))


def stored(model):
    """The tower's tensors as a checkpoint names them, filled."""
    with tempfile.TemporaryDirectory() as saved:
        model.save_pretrained(saved)
        path = pathlib.Path(saved) / "model.safetensors"
        weights = load_file(path)
        listed = {}
        for name in filter(is_vision, weights):
            shape = list(weights[name].shape)
            listed[name] = [shape, *spread(name, shape)]
            weights[name] = made(name, *listed[name])
        save_file(weights, path, {"format": "pt"})
        filled = type(model).from_pretrained(saved, dtype=torch.float32, attn_implementation="eager")
        return filled.eval(), listed, json.loads((pathlib.Path(saved) / "config.json").read_text())


def shortened(listed):
    """Layer 0 for all layers, which are equal."""
    short = {}
    for name, values in listed.items():
        if not re.search(r"(layers|blocks)\.[1-9]", name):
            short[re.sub(r"(layers|blocks)\.0\.", r"\1.{}.", name)] = values
    return short


def describe(family):
    kind, keys, tower, encode, grids = FAMILIES[family]
    config = transformers.AutoConfig.for_model(kind, **keys, vision_config=tower)
    model = transformers.AutoModelForImageTextToText.from_config(config, dtype=torch.float32)
    model, listed, written = stored(model)
    cases = []
    for i, (rows, columns) in enumerate(grids):
        patches = made(f"c{i}", [rows * columns, 48], *((0.5, 0.5) if kind == "gemma4" else (0.0, 1.0)))
        with torch.no_grad():
            embeds = encode(model, rows, columns, patches)
        embeds = getattr(embeds, "pooler_output", embeds)
        if isinstance(embeds, (tuple, list)):
            embeds = torch.cat([one.reshape(-1, one.shape[-1]) for one in embeds])
        embeds = [float(f"{value:.5g}") for value in embeds.flatten().tolist()]
        cases.append({"grid": [rows, columns], "image_embeds": embeds})
    config = {key: value for key, value in written.items() if key == "model_type" or key in keys}
    config["vision_config"] = {key: value for key, value in written["vision_config"].items() if key not in UNREAD}
    text = keys["text_config"]
    config["text_config"] = {key: text[key] for key in ("hidden_size", "rms_norm_eps") if key in text}
    return {"config": config, "tensors": shortened(listed), "cases": cases}


def main():
    out = pathlib.Path(sys.argv[1])
    families = {family: describe(family) for family in FAMILIES}
    out.write_text(json.dumps(families, separators=(",", ":")).replace('"cases"', '\n"cases"') + "\n")


if __name__ == "__main__":
    main()
