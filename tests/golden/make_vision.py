#!/usr/bin/env python3
"""Writes goldens of the kind "vision" (vision_golden.h): small checkpoints of random weights, their processors and
pictures, and what transformers makes of some prompts, from pixels to logits.

usage: make_vision.py FIXTURES OUT [FAMILY...]

FIXTURES: a folder with images/ (a.png, b.png, c.jpg) and the tokenizers of qwen3_vl/ and lfm2_vl/. Needs transformers,
torch, torchvision and Pillow. quire-golden OUT/FAMILY OUT/FAMILY then compares.
"""
import importlib
import json
import math
import pathlib
import shutil
import sys

import numpy as np
import torch
import transformers
from PIL import Image
from safetensors.torch import save_file

SEED, STEPS = 3, 8
PICTURES = ["a.png", "b.png", "c.jpg"]
CASES = [[0], [1], [2], [0, 2]]
VOCAB = 544
TEXT = {"vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 512, "pad_token_id": 0, "bos_token_id": 2,
        "eos_token_id": 1}
QWEN_TOWER = {"depth": 2, "hidden_size": 32, "num_heads": 2, "patch_size": 8, "spatial_merge_size": 2,
              "temporal_patch_size": 2, "in_channels": 3}
WIDE = QWEN_TOWER | {"intermediate_size": 48}
SIGLIP = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2, "patch_size": 8,
          "image_size": 32}
PIXTRAL = SIGLIP | {"model_type": "pixtral", "head_dim": 16, "image_size": 64}
GEMMA_TOWER = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
               "num_key_value_heads": 2, "head_dim": 16, "patch_size": 8, "pooling_kernel_size": 2,
               "position_embedding_size": 64, "default_output_length": 70}
GEMMA = TEXT | {"layer_types": ["sliding_attention", "full_attention", "full_attention"], "sliding_window": 5,
                "global_head_dim": 32, "num_kv_shared_layers": 0, "vocab_size_per_layer_input": VOCAB}
CHAT = "<|im_start|>user\n{}What is in the picture?<|im_end|>\n<|im_start|>assistant\n"
QWEN_IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"


def rope(sections, **more):
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": sections} | more}


QWEN2 = {key: value for key, value in TEXT.items() if key != "head_dim"} | {"hidden_size": 64} | rope([2, 3, 3])
QWEN35 = TEXT | rope([2, 1, 1], mrope_interleaved=True, partial_rotary_factor=0.5) | {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4, "layer_types": ["linear_attention", "full_attention", "linear_attention"]}


def module(name, what):
    return getattr(importlib.import_module(f"transformers.models.{name}"), what)


def qwen(fixtures, name, prefix):
    images = module("qwen2_vl.image_processing_qwen2_vl", "Qwen2VLImageProcessor")(
        patch_size=8, merge_size=2, temporal_patch_size=2, size={"shortest_edge": 1024, "longest_edge": 9216},
        image_mean=[0.48, 0.45, 0.4], image_std=[0.26, 0.25, 0.27])
    of_videos = "qwen3_vl" if name == "qwen3_vl" else "qwen2_vl"
    videos = module(f"{of_videos}.video_processing_{of_videos}", f"{'Qwen3' if '3' in of_videos else 'Qwen2'}VLVideoProcessor")
    return module(f"{name}.processing_{name}", f"{prefix}Processor")(
        image_processor=images, tokenizer=transformers.AutoTokenizer.from_pretrained(fixtures / "qwen3_vl"),
        video_processor=videos(), chat_template=(fixtures / "qwen3_vl/chat_template.jinja").read_text())


def tokenizer(fixtures, more):
    made = transformers.AutoTokenizer.from_pretrained(fixtures / "lfm2_vl")
    made.add_special_tokens({"additional_special_tokens": more})
    return made


def idefics(fixtures):
    tiles = [f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5)]
    return transformers.Idefics3Processor(
        image_processor=transformers.Idefics3ImageProcessor(size={"longest_edge": 96}, max_image_size={"longest_edge": 32}),
        tokenizer=tokenizer(fixtures, ["<fake_token_around_image>", "<global-img>", "<end_of_utterance>", *tiles]),
        image_seq_len=4)


def pixtral(fixtures, merge):
    return transformers.PixtralProcessor(
        image_processor=transformers.PixtralImageProcessor(size={"longest_edge": 64}, patch_size={"height": 8, "width": 8}),
        tokenizer=tokenizer(fixtures, ["[IMG]", "[IMG_BREAK]", "[IMG_END]"]), patch_size=8, spatial_merge_size=merge)


def gemma4(fixtures):
    names = {"boi_token": "<|image>", "image_token": "<|image|>", "eoi_token": "<image|>", "audio_token": "<|audio|>",
             "boa_token": "<|audio>", "eoa_token": "<audio|>", "video_token": "<|video|>"}
    words = tokenizer(fixtures, list(names.values()))
    for name, text in names.items():
        setattr(words, name, text)
        setattr(words, name + "_id", words.convert_tokens_to_ids(text))
        words.init_kwargs[name] = text
    return transformers.Gemma4Processor(
        image_processor=transformers.Gemma4ImageProcessor(patch_size=8, max_soft_tokens=70, pooling_kernel_size=2),
        tokenizer=words, feature_extractor=module("gemma4.feature_extraction_gemma4", "Gemma4AudioFeatureExtractor")(),
        video_processor=module("gemma4.video_processing_gemma4", "Gemma4VideoProcessor")())


# family: model type, text_config, vision_config, more of the configuration, processor, placeholder
FAMILIES = {
    "qwen2_vl": ("qwen2_vl", QWEN2, QWEN_TOWER | {"embed_dim": 32, "hidden_size": 64, "mlp_ratio": 2}, {},
                 lambda f: qwen(f, "qwen2_vl", "Qwen2VL"), QWEN_IMAGE),
    "qwen2_5_vl": ("qwen2_5_vl", QWEN2, WIDE | {"out_hidden_size": 64, "window_size": 32, "fullatt_block_indexes": [1]}, {},
                   lambda f: qwen(f, "qwen2_5_vl", "Qwen2_5_VL"), QWEN_IMAGE),
    "qwen3_5": ("qwen3_5", QWEN35, WIDE | {"out_hidden_size": 32, "num_position_embeddings": 64}, {},
                lambda f: qwen(f, "qwen3_vl", "Qwen3VL"), QWEN_IMAGE),
    "idefics3": ("idefics3", TEXT | {"model_type": "llama"}, SIGLIP, {"scale_factor": 2}, idefics, "<image>"),
    "smolvlm": ("smolvlm", TEXT | {"model_type": "llama"}, SIGLIP, {"scale_factor": 2}, idefics, "<image>"),
    "mistral3": ("mistral3", TEXT | {"model_type": "mistral", "sliding_window": None}, PIXTRAL, {"spatial_merge_size": 2},
                 lambda f: pixtral(f, 2), "[IMG]"),
    "pixtral": ("llava", TEXT | {"model_type": "mistral", "sliding_window": None}, PIXTRAL,
                {"vision_feature_layer": -1, "vision_feature_select_strategy": "full"}, lambda f: pixtral(f, 1), "[IMG]"),
    "gemma4": ("gemma4", GEMMA | {"use_bidirectional_attention": "vision", "hidden_size_per_layer_input": 0}, GEMMA_TOWER,
               {"audio_config": None}, gemma4, "<|image|>"),
    "gemma4_e": ("gemma4", GEMMA | {"hidden_size_per_layer_input": 8}, GEMMA_TOWER, {"audio_config": None}, gemma4,
                 "<|image|>"),
}


def randomize(model, image):
    chosen = torch.Generator().manual_seed(SEED)
    for name, weight in [*model.named_parameters(), *model.named_buffers()]:
        if not weight.is_floating_point() or any(part in name for part in ("inv_freq", "std_", "_min", "_max")):
            continue
        if weight.dim() <= 1:
            weight.add_(0.1 * torch.randn(weight.shape, generator=chosen))
        elif "embed" in name and "patch" not in name:
            weight.normal_(generator=chosen)
        else:
            weight.normal_(std=1.5 / math.sqrt(weight[0].numel()), generator=chosen)
    model.get_output_embeddings().weight[image] *= 0.01  # the reference's continuations leave it out


def make_model(model_type, text, vision, more, image, out):
    tokens = {"image_token_id": image}
    if model_type.startswith("qwen"):
        tokens |= {"video_token_id": 509, "vision_start_token_id": 506, "vision_end_token_id": 507}
    else:
        tokens |= {"image_token_index": image}
    if model_type != "gemma4":
        tokens |= {"tie_word_embeddings": False}
    config = transformers.AutoConfig.for_model(model_type, text_config=text, vision_config=vision, **tokens, **more)
    torch.manual_seed(SEED)
    model = transformers.AutoModelForImageTextToText.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        randomize(model, image)
    model.to(torch.bfloat16).save_pretrained(out)
    return transformers.AutoModelForImageTextToText.from_pretrained(
        out, dtype=torch.float32, attn_implementation="eager").eval()


class Recorder:
    """The input of the text model in its first call."""

    def __init__(self, model):
        inner = model.model
        text = inner.language_model if hasattr(inner, "language_model") else inner.text_model
        self.seen = None
        text.register_forward_pre_hook(self.record, with_kwargs=True)

    def record(self, _module, _args, given):
        if self.seen is None:
            self.seen = given


def record_case(model, recorder, processor, images, rendered, image, arrays, prefix):
    inputs = processor(text=[rendered], images=images, return_tensors="pt", add_special_tokens=False)
    ids = inputs.pop("input_ids")[0].tolist()
    pixels = {key: value for key, value in inputs.items() if not key.endswith(("_mask", "token_type_ids"))}
    typed = model.config.model_type.startswith(("qwen", "gemma4"))

    def logits_of(tokens):
        batch = torch.tensor([tokens])
        types = {"mm_token_type_ids": (batch == image).long()} if typed else {}
        with torch.no_grad():
            return model(input_ids=batch, use_cache=False, **pixels, **types).logits[0]

    recorder.seen = None
    arrays[prefix + "logits"] = logits_of(ids).contiguous()
    rows = torch.tensor(ids) == image
    arrays[prefix + "image_embeds"] = recorder.seen["inputs_embeds"][0][rows].detach().contiguous()
    positions = recorder.seen.get("position_ids")
    if positions is not None and positions.dim() == 3:
        arrays[prefix + "position_ids"] = positions[:, 0].to(torch.int32).contiguous()
    for k, plane in enumerate(recorder.seen.get("deepstack_visual_embeds") or []):
        arrays[f"{prefix}deepstack{k}"] = plane.contiguous()
    if len(images) == 1:
        arrays[prefix + "pixel_values"] = pixels["pixel_values"].float().contiguous()
    arrays[prefix + "input_ids"] = torch.tensor([ids], dtype=torch.int32)
    greedy, margin = [], math.inf
    for _ in range(STEPS):
        last = logits_of(ids + greedy)[-1]
        last[image] = -math.inf
        first, second = torch.topk(last, 2).values.tolist()
        margin = min(margin, first - second)
        greedy.append(int(last.argmax()))
    arrays[prefix + "greedy"] = torch.tensor(greedy, dtype=torch.int32)
    return {"rendered": rendered, "ids": ids, "greedy": greedy, "min_margin": margin, "n_image_tokens": int(rows.sum())}


def make(family, fixtures, out):
    model_type, text, vision, more, make_processor, placeholder = FAMILIES[family]
    shutil.rmtree(out, ignore_errors=True)
    (out / "images").mkdir(parents=True)
    processor = make_processor(fixtures)
    image = processor.tokenizer.convert_tokens_to_ids(processor.image_token)
    model = make_model(model_type, text, vision, more, image, out)
    processor.save_pretrained(out)
    recorder, arrays, pictures, cases = Recorder(model), {}, [], []
    for i, name in enumerate(PICTURES):
        shutil.copy(fixtures / "images" / name, out / "images" / name)
        pictures.append(Image.open(out / "images" / name).convert("RGB"))
        arrays[f"img{i}.decoded_rgb"] = torch.from_numpy(np.array(pictures[-1]))
    for i, chosen in enumerate(CASES):
        rendered = CHAT.format(placeholder * len(chosen))
        images = [pictures[number] for number in chosen]
        case = record_case(model, recorder, processor, images, rendered, image, arrays, f"c{i}.")
        cases.append({"images": chosen} | case)
    save_file(arrays, out / "golden.safetensors")
    golden = {"family": family, "kind": "vision", "vocab_size": VOCAB, "images": PICTURES, "cases": cases}
    (out / "golden.json").write_text(json.dumps(golden) + "\n")
    print(family, [case["n_image_tokens"] for case in cases], min(case["min_margin"] for case in cases), flush=True)


def main():
    fixtures, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    for family in sys.argv[3:] or FAMILIES:
        make(family, fixtures, out / family)


if __name__ == "__main__":
    main()
