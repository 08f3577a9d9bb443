#!/usr/bin/env python3
"""Writes tests/data/tiny: a checkpoint of random weights, some 70 KB with its golden, for each family that has no larger
one in tests/data/models.

usage: make_tiny.py OUT [FAMILY...]

Needs what make_golden.py needs. Weights are random and stored as BF16; the golden is of the stored values. A seed whose
greedy tokens lead by less than MARGIN_MIN is not used: rounding must not choose another token.
"""
import argparse
import json
import math
import pathlib
import sys

import torch
import transformers

import make_golden

MARGIN_MIN = 5e-3
SEEDS = 12
GOLDEN = argparse.Namespace(prompts=None, steps=16, logit_rows=3, hidden=False)

SHAPE = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
         "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 512, "pad_token_id": 0,
         "bos_token_id": None, "eos_token_id": 1}
ATTENTION_FREE = ("vocab_size", "hidden_size", "num_hidden_layers", "pad_token_id", "bos_token_id", "eos_token_id")
SLIDING = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8}
YARN = {"rope_type": "yarn", "beta_fast": 32.0, "beta_slow": 1.0, "factor": 8.0}
DEEPSEEK = {"num_key_value_heads": 2, "head_dim": 16, "first_k_dense_replace": 1, "n_routed_experts": 4, "n_group": 2,
            "topk_group": 1, "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 16,
            "kv_lora_rank": 32, "q_lora_rank": 24, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32,
            "routed_scaling_factor": 2.5, "norm_topk_prob": True, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
            "rope_parameters": YARN | {"mscale": 1.0, "mscale_all_dim": 1.0, "rope_theta": 10000.0,
                                       "original_max_position_embeddings": 64}}
GPT_OSS = SLIDING | {"num_local_experts": 4, "num_experts_per_tok": 2,
                     "rope_parameters": YARN | {"rope_theta": 150000.0, "truncate": False,
                                                "original_max_position_embeddings": 32}}
GRANITE = {"layer_types": ["mamba", "attention"], "position_embedding_type": "nope", "embedding_multiplier": 6.0,
           "residual_multiplier": 0.5, "logits_scaling": 3.0, "mamba_d_conv": 4, "mamba_d_head": 16, "mamba_d_state": 16,
           "mamba_expand": 2, "mamba_n_groups": 1, "mamba_n_heads": 4, "mamba_chunk_size": 16}
MAMBA2 = {"expand": 2, "head_dim": 16, "num_heads": 4, "state_size": 16, "n_groups": 1, "conv_kernel": 4,
          "chunk_size": 16, "rms_norm": True}
# One chunk: the reference adds up several wrongly. On CPUs it also limits time steps by their smallest
# initial value, which no published program does: at 1e-5, logits differ by 2e-3.
NEMOTRON = {"mamba_head_dim": 16, "mamba_num_heads": 4, "n_groups": 2, "ssm_state_size": 16, "chunk_size": 160,
            "time_step_min": 1e-30}
HALF = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
PHI3_ROPE = {"rope_type": "longrope", "rope_theta": 10000.0}

# family: its class in transformers, what differs from SHAPE
FAMILIES = {
    # Half of each head is rotated, as transformers has it for scaled angles alone.
    "bamba": ("bamba", {
        "attn_layer_indices": [1], "mamba_d_conv": 4, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_expand": 2,
        "mamba_n_groups": 1, "mamba_n_heads": 4, "mamba_chunk_size": 160,
        "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}}),
    "cohere": ("cohere", {"logit_scale": 0.25, "use_qk_norm": True}),
    "cohere2": ("cohere2", SLIDING | {"logit_scale": 0.25}),
    "deepseek_v3": ("deepseek_v3", DEEPSEEK),
    "deepseek_v3_noqlora": ("deepseek_v3", DEEPSEEK | {"q_lora_rank": None}),
    "falcon_h1": ("falcon_h1", {
        "mamba_d_ssm": 48, "mamba_d_head": 16, "mamba_n_heads": 3, "mamba_d_state": 16, "mamba_n_groups": 1,
        "mamba_d_conv": 4, "mamba_expand": 2, "mamba_chunk_size": 16, "mamba_rms_norm": False,
        "attention_in_multiplier": 1.0, "attention_out_multiplier": 0.9, "embedding_multiplier": 3.0,
        "key_multiplier": 0.6, "lm_head_multiplier": 0.25, "mlp_multipliers": [0.8, 1.4], "ssm_in_multiplier": 1.25,
        "ssm_multipliers": [0.7, 1.2, 0.8, 1.1, 0.9], "ssm_out_multiplier": 0.5}),
    "gemma": ("gemma", {}),
    "glm4_moe": ("glm4_moe", {
        "first_k_dense_replace": 1, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1, "n_group": 1,
        "topk_group": 1, "moe_intermediate_size": 16, "attention_bias": True, "use_qk_norm": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0, "partial_rotary_factor": 0.5}}),
    "gpt_oss": ("gpt_oss", GPT_OSS),
    "granitemoehybrid": ("granitemoehybrid", GRANITE | {
        "num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 16, "shared_intermediate_size": 24,
        "attention_multiplier": 0.0625, "tie_word_embeddings": True}),
    "granitemoehybrid_dense": ("granitemoehybrid", GRANITE | {
        "num_local_experts": 0, "num_experts_per_tok": 0, "shared_intermediate_size": 48, "attention_multiplier": 0.3,
        "tie_word_embeddings": True}),
    "hy_v3": ("hy_v3", {"num_experts": 4, "num_experts_per_tok": 2, "num_shared_experts": 1, "moe_intermediate_size": 16}),
    "jamba": ("jamba", {
        "attn_layer_offset": 1, "attn_layer_period": 2, "expert_layer_offset": 1, "expert_layer_period": 2,
        "num_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 16, "mamba_d_state": 8, "mamba_d_conv": 4,
        "mamba_dt_rank": 4, "mamba_expand": 2, "use_mamba_kernels": False}),
    "mamba2": ("mamba2", MAMBA2),
    "mamba2_dtlimit": ("mamba2", MAMBA2 | {"time_step_limit": (0.02, 0.25), "use_conv_bias": False}),
    "mellum": ("mellum", SLIDING | {
        "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 500000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}}),
    "nemotron_h": ("nemotron_h", NEMOTRON | {"hybrid_override_pattern": "M-*-", "num_hidden_layers": 4}),
    "nemotron_h_moe": ("nemotron_h", NEMOTRON | {
        "hybrid_override_pattern": "ME*E", "num_hidden_layers": 4, "n_routed_experts": 4, "num_experts_per_tok": 2,
        "n_shared_experts": 1, "moe_intermediate_size": 16, "moe_shared_expert_intermediate_size": 24, "n_group": 1,
        "topk_group": 1, "routed_scaling_factor": 2.5}),
    "olmo": ("olmo", {"clip_qkv": 1.5}),
    "olmo2": ("olmo2", {"num_key_value_heads": 2, "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}}),
    "phi": ("phi", {"rope_parameters": HALF}),
    "phi3": ("phi3", {
        "tie_word_embeddings": True, "original_max_position_embeddings": 512, "max_position_embeddings": 4096,
        "rope_parameters": PHI3_ROPE | {
            "partial_rotary_factor": 0.75, "original_max_position_embeddings": 512,
            "short_factor": [1.0, 1.05, 1.1, 1.15, 1.2, 1.25], "long_factor": [1.0, 1.8, 4.0, 7.6, 12.6, 19.0]}}),
    # Every position uses long_factor, as the context is longer than the original one. The reference takes
    # short_factor for short texts, so both are equal while it computes.
    "phi3_long": ("phi3", {
        "tie_word_embeddings": True, "original_max_position_embeddings": 64,
        "rope_parameters": PHI3_ROPE | {
            "original_max_position_embeddings": 64, "long_factor": [1.0, 1.8, 4.0, 7.6, 12.6, 19.0, 26.8, 36.0],
            "short_factor": [1.0, 1.8, 4.0, 7.6, 12.6, 19.0, 26.8, 36.0]}}),
    "qwen3_moe": ("qwen3_moe", {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2,
                                "moe_intermediate_size": 16, "norm_topk_prob": True}),
    "stablelm": ("stablelm", {
        "qk_layernorm": True, "use_parallel_residual": True, "use_qkv_bias": True, "rope_parameters": HALF}),
    "smollm3": ("smollm3", {"no_rope_layers": [1, 0], "no_rope_layer_interval": 2, "tie_word_embeddings": True}),
}
SHORT_FACTOR = [1.0, 1.05, 1.1, 1.15, 1.2, 1.25, 1.3, 1.35]


def randomize(model, chosen):
    """Weights whose outputs have the size of their inputs; norms, biases and state-space constants beside their defaults."""
    for name, weight in [*model.named_parameters(), *model.named_buffers()]:
        if not weight.is_floating_point():
            continue
        if "e_score_correction_bias" in name or weight.dim() == 1 or "A_log" in name:
            if "inv_freq" not in name:
                weight.add_(0.1 * torch.randn(weight.shape, generator=chosen))
        elif "embed" in name:
            weight.normal_(generator=chosen)
        elif weight.dim() >= 2:
            weight.normal_(std=1.5 / math.sqrt(weight.shape[-1]), generator=chosen)


def finish(family, out):
    """Files and keys as published checkpoints have them."""
    path = out / "config.json"
    config = json.loads(path.read_text())
    if family.startswith("nemotron_h"):
        differing = FAMILIES[family][1]
        config |= {key: differing[key] for key in ("hybrid_override_pattern", "num_hidden_layers")}
        for key in ("layers_block_type", "mtp_layers_block_type"):
            config.pop(key, None)
    if family == "phi3_long":
        config["rope_parameters"]["short_factor"] = SHORT_FACTOR
    path.write_text(json.dumps(config) + "\n")
    (out / "generation_config.json").unlink(missing_ok=True)


def make(family, out):
    model_type, differing = FAMILIES[family]
    shape = SHAPE if model_type != "mamba2" else {key: SHAPE[key] for key in ATTENTION_FREE}
    config = transformers.AutoConfig.for_model(model_type, **(shape | differing))
    for seed in range(1, SEEDS + 1):
        chosen = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        with torch.no_grad():
            randomize(model, chosen)
        model.to(torch.bfloat16).save_pretrained(out)
        # What has no place in a checkpoint, such as the frequencies of RoPE, is float32 again.
        model = transformers.AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32,
                                                                  attn_implementation="eager").eval()
        GOLDEN.seed = seed
        golden, arrays = make_golden.record(model, out, GOLDEN)
        if min(prompt["min_margin"] for prompt in golden["prompts"]) >= MARGIN_MIN:
            finish(family, out)
            return make_golden.write(out, golden, arrays)
    raise ValueError(f"no seed has a margin of {MARGIN_MIN}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("families", nargs="*")
    options = parser.parse_args()
    failed = 0
    for family in options.families or FAMILIES:
        try:
            make(family, options.out / family)
        except Exception as error:  # the others are made
            failed += 1
            print(f"{family}: {type(error).__name__}: {error}", file=sys.stderr)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
