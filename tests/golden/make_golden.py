#!/usr/bin/env python3
"""Writes golden.json and golden.safetensors for a Hugging Face checkpoint, as quire-golden and the tests read them.

usage: make_golden.py CHECKPOINT [OUT] [--prompts GOLDEN_JSON] [--seed N] [--steps N] [--logit-rows N] [--no-hidden]

Needs Python packages that Quire itself does not: transformers (5.x), torch, safetensors; Debian has them as
python3-transformers and python3-torch. The reference is AutoModelForCausalLM in float32 with eager attention.
CHECKPOINT must be small: every greedy step computes the whole text again, so that no cache can be wrong.
tests/data/README.md describes the arrays.
"""
import argparse
import json
import pathlib
import random

import torch
import transformers
from safetensors.torch import save_file

PROMPT_LENGTHS = (1, 7, 33, 70)
HIDDEN_PROMPT = 2  # its hidden states are recorded
STATE_PROMPT = 3   # the cache states after some of its tokens are recorded
CHAT = [{"role": "user", "content": "Hi! Count to 3, s'il te plaît."}]
CHAT_STEPS = 24


def as_list(ids):
    return [] if ids is None else list(ids) if isinstance(ids, (list, tuple)) else [ids]


def logits_of(model, ids):
    """Raw logits [tokens, vocabulary] of one pass over all of `ids`."""
    return model(torch.tensor([ids]), use_cache=False).logits[0]


def continue_greedily(model, ids, steps):
    """The next `steps` tokens, which may include EOS; their log-probabilities; their leads; the logits after them."""
    ids = list(ids)
    tokens, logprobs, margins = [], [], []
    for _ in range(steps):
        logits = logits_of(model, ids)[-1]
        best = torch.topk(logits, 2).values
        token = int(torch.argmax(logits))
        tokens.append(token)
        logprobs.append(float(torch.log_softmax(logits.double(), 0)[token]))
        margins.append(float(best[0] - best[1]))
        ids.append(token)
    return tokens, logprobs, margins, logits_of(model, ids)[-1]


def rows_of(length, limit):
    """At most `limit` positions of a prompt, evenly spaced, the first and the last among them."""
    if length <= limit:
        return list(range(length))
    return [i * (length - 1) // (limit - 1) for i in range(limit)]


def record_hidden(model, ids, prefix, arrays):
    """The input of layer 0, the output of each layer and that of the final norm, [tokens, hidden size]."""
    outputs = {}
    hooks = [layer.register_forward_hook(
        lambda _, __, output, n=n: outputs.update({n: output[0] if isinstance(output, tuple) else output}))
        for n, layer in enumerate(model.model.layers)]
    states = model(torch.tensor([ids]), use_cache=False, output_hidden_states=True).hidden_states
    for hook in hooks:
        hook.remove()
    named = {"embed": states[0], "final_norm": states[-1]} | {f"layer{n}": output for n, output in outputs.items()}
    for name, state in named.items():
        arrays[f"{prefix}hidden.{name}"] = state.reshape(len(ids), -1)


def record_states(model, ids, prefix, arrays):
    """What each layer's cache holds after `ids`."""
    if getattr(model.config, "kv_lora_rank", None):
        return  # latent attention: other engines cache no keys and values of its heads
    output = model(torch.tensor([ids]), use_cache=True)
    cache = output.past_key_values if "past_key_values" in output else output.cache_params
    recurrent = "delta" if hasattr(model.config, "linear_num_value_heads") else "ssm"
    names = {"keys": "k", "values": "v", "conv_states": "conv", "recurrent_states": recurrent}
    for number, layer in enumerate(cache.layers):
        for attribute, name in names.items():
            state = getattr(layer, attribute, None)
            if state is not None:
                arrays[f"{prefix}state@{len(ids)}.layer{number}.{name}"] = state[0]


def record_prompt(model, number, ids, options, arrays):
    """Adds the arrays of one prompt; returns its entry in golden.json."""
    prefix = f"p{number}."
    logits = logits_of(model, ids)
    rows = rows_of(len(ids), options.logit_rows)
    tokens, logprobs, margins, last = continue_greedily(model, ids, options.steps)
    arrays[prefix + "ids"] = torch.tensor(ids, dtype=torch.int32)
    arrays[prefix + "logits"] = logits[rows]
    if len(rows) < len(ids):
        arrays[prefix + "logit_rows"] = torch.tensor(rows, dtype=torch.int32)
    arrays[prefix + "greedy"] = torch.tensor(tokens, dtype=torch.int32)
    arrays[prefix + "greedy_logprob"] = torch.tensor(logprobs)
    arrays[prefix + "greedy_margin"] = torch.tensor(margins)
    arrays[prefix + "greedy_logits_last"] = last
    if number == HIDDEN_PROMPT and options.hidden:
        record_hidden(model, ids, prefix, arrays)
    if number == STATE_PROMPT:
        for count in (len(ids) * 4 // 7, len(ids))[:2 if options.hidden else 1]:
            record_states(model, ids[:count], prefix, arrays)
    top = torch.topk(torch.log_softmax(logits[-1].double(), 0), min(20, logits.shape[1]))
    return {"ids": ids, "greedy": tokens, "min_margin": min(margins),
            "final_top20": [[int(token), float(value)] for value, token in zip(*top)]}


def record_chat(model, directory):
    """A rendered conversation with its ids, which tokenizer tests read; None without a tokenizer."""
    if not (directory / "tokenizer.json").exists():
        return None, None
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    rendered = tokenizer.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=True)
    ids = tokenizer.encode(rendered, add_special_tokens=False)
    tokens, logprobs, margins, _ = continue_greedily(model, ids, CHAT_STEPS)
    return tokenizer, {"messages": CHAT, "rendered": rendered, "ids": ids, "greedy": tokens,
                       "greedy_logprobs": logprobs, "min_margin": min(margins),
                       "text": tokenizer.decode(tokens, skip_special_tokens=True)}


def prompts_of(options, vocab, special):
    if options.prompts:
        return [prompt["ids"] for prompt in json.loads(options.prompts.read_text())["prompts"]]
    allowed = [token for token in range(vocab) if token not in special]
    chosen = random.Random(options.seed)
    return [chosen.choices(allowed, k=length) for length in PROMPT_LENGTHS]


def record(model, directory, options):
    """(contents of golden.json, arrays of golden.safetensors) of a model whose tokenizer is in `directory`, if any."""
    arrays = {}
    with torch.no_grad():
        tokenizer, chat = record_chat(model, directory)
        vocab = model.get_input_embeddings().weight.shape[0]
        end_ids = as_list(model.generation_config.eos_token_id)
        special = set(end_ids) | set(tokenizer.all_special_ids if tokenizer else [])
        prompts = [record_prompt(model, number, ids, options, arrays)
                   for number, ids in enumerate(prompts_of(options, vocab, special))]
    golden = {"family": model.config.model_type, "hf_class": type(model).__name__, "seed": options.seed,
              "params": sum(weight.numel() for weight in model.parameters()), "vocab_size": vocab,
              "reference": f"transformers {transformers.__version__} / torch {torch.__version__} CPU, float32, "
                           "attn_implementation=eager",
              "eog_ids": end_ids, "bos_id": tokenizer.bos_token_id if tokenizer else None,
              "eos_id": tokenizer.eos_token_id if tokenizer else None, "prompts": prompts}
    if chat:
        golden["chat"] = chat
    return golden, arrays


def write(out, golden, arrays):
    out.mkdir(parents=True, exist_ok=True)
    (out / "golden.json").write_text(json.dumps(golden, ensure_ascii=False) + "\n")
    save_file({name: array.detach().contiguous().clone() for name, array in arrays.items()}, out / "golden.safetensors")
    print(f"{out}: {len(golden['prompts'])} prompts, {len(arrays)} arrays, smallest lead of a greedy token "
          f"{min(prompt['min_margin'] for prompt in golden['prompts']):.2g}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path, nargs="?", help="directory to write to (default: CHECKPOINT)")
    parser.add_argument("--prompts", type=pathlib.Path, help="a golden.json whose prompts to use")
    parser.add_argument("--seed", type=int, default=1, help="of random prompts")
    parser.add_argument("--steps", type=int, default=48, help="greedy tokens per prompt")
    parser.add_argument("--logit-rows", type=int, default=33,
                        help="positions of a prompt whose logits are kept, at least 2")
    parser.add_argument("--no-hidden", dest="hidden", action="store_false",
                        help="no hidden states, and cache states after one part of their prompt only: a smaller file")
    options = parser.parse_args()
    if options.logit_rows < 2 or options.steps < 1:
        parser.error("--logit-rows must be at least 2, --steps at least 1")

    model = transformers.AutoModelForCausalLM.from_pretrained(
        options.checkpoint, dtype=torch.float32, attn_implementation="eager").eval()
    write(options.out or options.checkpoint, *record(model, options.checkpoint, options))


if __name__ == "__main__":
    main()
