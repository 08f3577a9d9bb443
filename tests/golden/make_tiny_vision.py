#!/usr/bin/env python3
"""Writes tests/data/vision/FAMILY: a vision tower of random weights, patches, and what transformers makes of them.

usage: make_tiny_vision.py OUT [FAMILY...]

Needs what make_golden.py needs. Weights are stored as BF16; the golden is of the stored values. `cN.patches` are in the
order of the family's processor, `cN.grid` is rows and columns.
"""
import json
import pathlib
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file

TEXT = {"hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
        "num_key_value_heads": 1, "vocab_size": 40, "head_dim": 12}
TOWER = {"hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 2, "patch_size": 4}
MROPE = {"rope_type": "default", "mrope_section": [2, 2, 2], "rope_theta": 10000.0}
QWEN = {"depth": 3, "num_heads": 2, "patch_size": 4, "spatial_merge_size": 2, "in_channels": 3, "temporal_patch_size": 2}
GEMMA4 = TOWER | {"num_key_value_heads": 2, "head_dim": 16, "pooling_kernel_size": 3, "position_embedding_size": 16}
GEMMA4_TEXT = TEXT | {"model_type": "gemma4_text", "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0,
                      "global_head_dim": 12, "layer_types": ["full_attention"]}
GEMMA4_GRIDS = [(6, 9), (3, 3), (9, 3)]


def rows_of(image, patch):
    channels, height, width = image.shape
    cut = image.reshape(channels, height // patch, patch, width // patch, patch)
    return cut.permute(1, 3, 0, 2, 4).reshape(-1, channels * patch * patch)


def qwen(model, rows, columns, random):
    patches = torch.rand(rows * columns, 3, 1, 4, 4, generator=random) * 2 - 1
    pixels = patches.repeat(1, 1, 2, 1, 1).reshape(rows * columns, -1)
    grid = torch.tensor([[1, rows, columns]])
    return patches.reshape(rows * columns, -1), model.model.get_image_features(pixels, grid)


def smolvlm(model, rows, columns, random):
    image = torch.rand(3, rows * 4, columns * 4, generator=random) * 2 - 1
    return rows_of(image, 4), model.model.get_image_features(image[None, None], None)


def mistral3(model, rows, columns, random):
    image = torch.rand(3, rows * 4, columns * 4, generator=random) * 2 - 1
    sizes = torch.tensor([[rows * 4, columns * 4]])
    return rows_of(image, 4), model.model.get_image_features(image[None], sizes)


def gemma4(model, rows, columns, random):
    pixels = torch.rand(1, rows * columns, 48, generator=random)
    places = torch.meshgrid(torch.arange(columns), torch.arange(rows), indexing="xy")
    places = torch.stack(places, -1).reshape(1, rows * columns, 2)
    return pixels[0], model.model.get_image_features(pixels, places)


# family: its configuration's type, keys of the model and of the tower, how images go through it, rows and columns
FAMILIES = {
    "qwen2_vl": ("qwen2_vl", {"text_config": TEXT | {"rope_scaling": MROPE}}, QWEN | {
        "embed_dim": 32, "hidden_size": 24, "mlp_ratio": 2}, qwen, [(4, 6), (2, 2)]),
    "qwen2_5_vl": ("qwen2_5_vl", {"text_config": TEXT | {"rope_scaling": MROPE}}, QWEN | {
        "hidden_size": 32, "intermediate_size": 40, "window_size": 16, "fullatt_block_indexes": [1],
        "out_hidden_size": 24}, qwen, [(10, 6), (4, 4), (2, 14)]),
    "smolvlm": ("smolvlm", {"scale_factor": 2, "text_config": TEXT | {"model_type": "llama"}},
                TOWER | {"image_size": 24}, smolvlm, [(6, 6), (4, 4)]),
    "mistral3": ("mistral3", {"spatial_merge_size": 2, "multimodal_projector_bias": False, "vision_feature_layer": -1,
                              "text_config": TEXT | {"model_type": "mistral", "rms_norm_eps": 1e-4}},
                 TOWER | {"model_type": "pixtral", "head_dim": 16, "image_size": 64, "hidden_act": "silu"}, mistral3,
                 [(6, 4), (2, 8), (4, 4)]),
    "gemma4": ("gemma4", {"text_config": GEMMA4_TEXT, "audio_config": None}, GEMMA4, gemma4, GEMMA4_GRIDS),
    "gemma4_clipped": ("gemma4", {"text_config": GEMMA4_TEXT, "audio_config": None}, GEMMA4 | {
        "standardize": True, "use_clipped_linears": True}, gemma4, GEMMA4_GRIDS),
}


def fill(model, random):
    """Random weights of a size that keeps states of all layers visible, rounded to BF16."""
    def put(tensor, values):
        tensor.copy_(values.to(torch.bfloat16).float())

    for name, weight in model.named_parameters():
        noise = torch.randn(weight.shape, generator=random)
        if "position" in name:
            put(weight, 0.4 * noise)
        elif weight.dim() > 1:
            put(weight, noise * 1.3 / weight[0].numel() ** 0.5)
        else:
            put(weight, 0.1 * noise if name.endswith("bias") else 1 + 0.1 * noise)
    for name, buffer in model.named_buffers():
        noise = torch.rand(buffer.shape, generator=random)
        if "vision_tower" not in name:
            continue
        for end, low, width in (("std_bias", -0.1, 0.2), ("std_scale", 0.9, 0.2), ("_min", -1.8, 0.3), ("_max", 1.4, 0.3)):
            if name.endswith(end):
                put(buffer, low + width * noise)


def is_vision(name):
    return any(part in name for part in ("visual", "vision", "multi_modal_projector", "connector"))


def write(out, family):
    kind, keys, tower, encode, grids = FAMILIES[family]
    random = torch.Generator().manual_seed(7)
    config = transformers.AutoConfig.for_model(kind, **keys, vision_config=tower)
    model = transformers.AutoModelForImageTextToText.from_config(config, dtype=torch.float32, attn_implementation="eager")
    model.eval()
    golden = {}
    with torch.no_grad():
        fill(model, random)
        for i, (rows, columns) in enumerate(grids):
            patches, made = encode(model, rows, columns, random)
            made = getattr(made, "pooler_output", made)
            if isinstance(made, (tuple, list)):
                made = torch.cat([one.reshape(-1, one.shape[-1]) for one in made])
            golden[f"c{i}.patches"] = patches.contiguous()
            golden[f"c{i}.grid"] = torch.tensor([rows, columns], dtype=torch.int32)
            golden[f"c{i}.image_embeds"] = made.reshape(-1, made.shape[-1]).contiguous()
    folder = out / family
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as saved:
        model.save_pretrained(saved)
        weights = load_file(pathlib.Path(saved) / "model.safetensors")
        save_file({name: weight.to(torch.bfloat16) for name, weight in weights.items() if is_vision(name)},
                  folder / "model.safetensors")
        written = json.loads((pathlib.Path(saved) / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(written) + "\n")
    save_file(golden, folder / "golden.safetensors")


def main():
    out = pathlib.Path(sys.argv[1])
    for family in sys.argv[2:] or FAMILIES:
        write(out, family)


if __name__ == "__main__":
    main()
