#!/usr/bin/env python3
"""Writes tests/data/tiny/FAMILY of encoders: random weights, ids without texts, and what transformers computes from them.

usage: make_tiny_encoder.py OUT [FAMILY...]

Needs what make_golden.py needs. Weights are stored as BF16; the golden is of the stored values.
"""
import argparse
import json
import pathlib
import random

import torch
import transformers
from safetensors.torch import save_file

import make_tiny

SHAPE = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
         "max_position_embeddings": 96, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
XLM = {"pad_token_id": 1, "bos_token_id": 0, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
ALTERNATING = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 16}

# family: its configuration's type, its class in transformers, what differs from SHAPE, pooling, sizes of
# dense layers
FAMILIES = {
    "bert": ("bert", "BertModel", {"layer_norm_eps": 1e-12}, "cls", []),
    "xlm_roberta": ("xlm-roberta", "XLMRobertaModel", XLM, "cls", []),
    "xlm_roberta_rerank": ("xlm-roberta", "XLMRobertaForSequenceClassification", XLM | {"num_labels": 1}, "rank", []),
    "modernbert": ("modernbert", "ModernBertModel", {
        "global_attn_every_n_layers": 2, "local_attention": 16, "cls_token_id": 1, "sep_token_id": 2, "norm_eps": 1e-5,
        "global_rope_theta": 160000.0, "local_rope_theta": 10000.0}, "cls", []),
    "embedding_gemma": ("gemma3_text", "Gemma3TextModel", ALTERNATING | {
        "head_dim": 16, "num_key_value_heads": 1, "query_pre_attn_scalar": 16, "use_bidirectional_attention": True,
        "tie_word_embeddings": True, "bos_token_id": 2, "eos_token_id": 1,
        "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e6},
                            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}}, "mean", [48, 32]),
}


def write_modules(out, pooling, dense, chosen):
    """The files of Sentence Transformers that say what becomes of the hidden states; returns the dense layers' weights."""
    kinds = ["Transformer", "Pooling", *("Dense" for _ in dense), "Normalize"]
    modules = [{"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "",
                "type": f"sentence_transformers.models.{kind}"} for i, kind in enumerate(kinds)]
    (out / "modules.json").write_text(json.dumps(modules) + "\n")
    (out / "1_Pooling").mkdir(exist_ok=True)
    (out / "1_Pooling/config.json").write_text(json.dumps(
        {"word_embedding_dimension": SHAPE["hidden_size"], "pooling_mode_cls_token": pooling == "cls",
         "pooling_mode_mean_tokens": pooling == "mean", "pooling_mode_max_tokens": False,
         "pooling_mode_mean_sqrt_len_tokens": False}) + "\n")
    weights, wide = [], SHAPE["hidden_size"]
    for number, size in enumerate(dense, 2):
        folder = out / f"{number}_Dense"
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(
            {"in_features": wide, "out_features": size, "bias": False,
             "activation_function": "torch.nn.modules.linear.Identity"}) + "\n")
        weights.append(torch.randn((size, wide), generator=chosen) / wide**0.5)
        save_file({"linear.weight": weights[-1]}, folder / "model.safetensors")
        wide = size
    return weights


def record(model, ids, pooling, dense):
    """The arrays of one prompt."""
    output = model(torch.tensor([ids]), output_hidden_states=True)
    hidden = output.hidden_states[-1][0] if pooling == "rank" else output.last_hidden_state[0]
    arrays = {"ids": torch.tensor(ids, dtype=torch.int32), "last_hidden": hidden}
    if pooling == "rank":
        arrays["score"] = output.logits[0].reshape(1)
        return arrays
    vector = hidden[0] if pooling == "cls" else hidden.mean(0)
    for weight in dense:
        vector = weight @ vector
    arrays["embedding"] = torch.nn.functional.normalize(vector, dim=0)
    return arrays


def make(family, out):
    config_type, name, differing, pooling, sizes = FAMILIES[family]
    config = transformers.AutoConfig.for_model(config_type, **(SHAPE | differing))
    chosen = torch.Generator().manual_seed(1)
    torch.manual_seed(1)
    model_class = getattr(transformers, name)
    out.mkdir(parents=True, exist_ok=True)
    with torch.no_grad():
        model = model_class(config)
        make_tiny.randomize(model, chosen)
        model.to(torch.bfloat16).save_pretrained(out)
        model = model_class.from_pretrained(out, dtype=torch.float32, attn_implementation="eager").eval()
        dense = write_modules(out, pooling, sizes, chosen) if pooling != "rank" else []
        begin, end = SHAPE["bos_token_id"], SHAPE["eos_token_id"]
        if "bos_token_id" in differing:
            begin, end = differing["bos_token_id"], differing.get("eos_token_id", end)
        words, prompts, arrays = random.Random(1), [], {}
        for number, length in enumerate((1, 7, 33, 70)):
            ids = [begin, *words.choices(range(4, SHAPE["vocab_size"]), k=length), end]
            recorded = record(model, ids, pooling, dense)
            if number > 1:
                recorded.pop("last_hidden")  # their vectors or scores are compared
            prompts.append({"ids": ids, "score": float(recorded["score"][0]) if "score" in recorded else None})
            arrays |= {f"p{number}.{key}": value for key, value in recorded.items()}
    golden = {"family": family, "kind": "reranker" if pooling == "rank" else "embedding",
              "vocab_size": SHAPE["vocab_size"], "pooling": pooling,
              "reference": f"transformers {transformers.__version__} / torch {torch.__version__} CPU, float32, eager",
              "prompts": prompts}
    (out / "golden.json").write_text(json.dumps(golden) + "\n")
    save_file({key: value.detach().contiguous().clone() for key, value in arrays.items()}, out / "golden.safetensors")
    print(f"{out}: {len(prompts)} prompts, {len(arrays)} arrays")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("families", nargs="*")
    options = parser.parse_args()
    for family in options.families or FAMILIES:
        make(family, options.out / family)


if __name__ == "__main__":
    main()
