"""Writes small BERT checkpoints with made-up weights, with nothing but Python: one that embeds, one that ranks, and a
small Qwen3 that ranks by its answer. Their results mean nothing; a test of the way to them needs no more."""
import json
import math
import pathlib
import random
import shutil
import struct

DATA = pathlib.Path(__file__).resolve().parents[1] / "data/models"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
HIDDEN, WIDE, LAYERS, HEADS, CONTEXT = 32, 64, 2, 4, 64
LETTERS = [chr(c) for c in range(ord("a"), ord("z") + 1)] + list("0123456789.,?!'")
VOCABULARY = SPECIAL + LETTERS + ["##" + letter for letter in LETTERS]


def write_safetensors(path, tensors):
    """tensors: name -> (shape, values)."""
    header, payload = {}, b""
    for name, (shape, values) in tensors.items():
        raw = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(payload), len(payload) + len(raw)]}
        payload += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + payload)


def bert_tokenizer():
    def token(text, kind=0):
        return {"SpecialToken": {"id": text, "type_id": kind}}

    def sequence(name, kind):
        return {"Sequence": {"id": name, "type_id": kind}}
    return {
        "version": "1.0",
        "added_tokens": [{"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True} for i, text in enumerate(SPECIAL)],
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
                       "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [token("[CLS]"), sequence("A", 0), token("[SEP]")],
            "pair": [token("[CLS]"), sequence("A", 0), token("[SEP]"), sequence("B", 1), token("[SEP]", 1)],
            "special_tokens": {text: {"id": text, "ids": [SPECIAL.index(text)], "tokens": [text]}
                               for text in ("[CLS]", "[SEP]")}},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": {text: i for i, text in enumerate(VOCABULARY)}},
    }


def write_bert(folder, ranks=False, seed=1, prompts=None, default_prompt=None):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    draw = random.Random(seed)
    tensors = {}

    def add(name, *shape):
        norm = "LayerNorm" in name
        spread = 0.1 if norm or len(shape) == 1 else 1.5 / math.sqrt(shape[-1])
        center = 1 if norm and name.endswith("weight") else 0
        tensors[name] = (list(shape), [center + draw.gauss(0, spread) for _ in range(math.prod(shape))])

    def linear(name, out, inside):
        add(name + ".weight", out, inside)
        add(name + ".bias", out)

    def norm(name):
        add(name + ".weight", HIDDEN)
        add(name + ".bias", HIDDEN)
    prefix = "bert." if ranks else ""
    add(prefix + "embeddings.word_embeddings.weight", len(VOCABULARY), HIDDEN)
    add(prefix + "embeddings.position_embeddings.weight", CONTEXT, HIDDEN)
    add(prefix + "embeddings.token_type_embeddings.weight", 2, HIDDEN)
    norm(prefix + "embeddings.LayerNorm")
    for layer in range(LAYERS):
        at = f"{prefix}encoder.layer.{layer}."
        for name in ("query", "key", "value"):
            linear(at + "attention.self." + name, HIDDEN, HIDDEN)
        linear(at + "attention.output.dense", HIDDEN, HIDDEN)
        norm(at + "attention.output.LayerNorm")
        linear(at + "intermediate.dense", WIDE, HIDDEN)
        linear(at + "output.dense", HIDDEN, WIDE)
        norm(at + "output.LayerNorm")
    if ranks:
        linear("bert.pooler.dense", HIDDEN, HIDDEN)
        linear("classifier", 1, HIDDEN)
    write_safetensors(folder / "model.safetensors", tensors)
    config = {"architectures": ["BertForSequenceClassification" if ranks else "BertModel"], "model_type": "bert",
              "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
              "intermediate_size": WIDE, "hidden_act": "gelu", "layer_norm_eps": 1e-12,
              "max_position_embeddings": CONTEXT, "type_vocab_size": 2, "vocab_size": len(VOCABULARY),
              "pad_token_id": 0, "torch_dtype": "float32"}
    if ranks:
        config |= {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
    else:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling/config.json").write_text(json.dumps(
            {"word_embedding_dimension": HIDDEN, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}))
        (folder / "modules.json").write_text(json.dumps(
            [{"idx": i, "name": str(i), "path": path, "type": "sentence_transformers.models." + kind}
             for i, (path, kind) in enumerate([("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")])]))
    (folder / "config.json").write_text(json.dumps(config))
    if prompts is not None:
        (folder / "config_sentence_transformers.json").write_text(
            json.dumps({"prompts": prompts, "default_prompt_name": default_prompt}))
    (folder / "tokenizer.json").write_text(json.dumps(bert_tokenizer()))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "BertTokenizer", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]",
         "unk_token": "[UNK]", "mask_token": "[MASK]"}))
    return folder


def write_ranking_decoder(folder):
    """The small Qwen3 of the tests' data, one of whose tokens is called "yes", and a LogitScore."""
    folder = pathlib.Path(folder)
    shutil.copytree(DATA / "qwen3", folder, ignore=shutil.ignore_patterns("golden*"))
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    yes = next(token for token in tokenizer["added_tokens"] if token["content"] == "<tool_call>")
    yes |= {"content": "yes", "special": False}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "1_LogitScore").mkdir()
    (folder / "1_LogitScore/config.json").write_text(json.dumps(
        {"true_token_id": yes["id"], "false_token_id": tokenizer["model"]["vocab"]["no"]}))
    (folder / "modules.json").write_text(json.dumps(
        [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"},
         {"idx": 1, "name": "1", "path": "1_LogitScore",
          "type": "sentence_transformers.cross_encoder.modules.logit_score.LogitScore"}]))
    return folder


def create(daemon, name, folder):
    """The checkpoint as a model of the daemon."""
    modelfile = pathlib.Path(folder) / "Modelfile"
    modelfile.write_text(f"FROM {folder}\n")
    made = daemon.cli("create", name, "-f", str(modelfile))
    assert made.returncode == 0, made.stderr
    return name
