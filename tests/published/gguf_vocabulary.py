"""The vocabulary of a tokenizer.json as llama.cpp's converter writes it into a GGUF file. Standard library only.

A form is what tokenizer.ggml.model and tokenizer.ggml.pre say: "scores" (SentencePiece with scores: Llama 2, Gemma 3), "marks" (the
same as written until 2024, when marks in user-defined tokens were no spaces yet), "merges"
(the same with merges: Gemma 4, whose converter leaves added tokens alone that the model has), "unigram" (T5), or for a
byte-level vocabulary the name of its pre-tokenizer.
"""
import base64

from border_texts import MARK
from gguf_file import ARRAY, BOOL, F32, I8, I32, TEXT, Gguf

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
MODELS = {"scores": "llama", "marks": "llama", "merges": "gemma4", "unigram": "t5"}
KEEPS_MARKS = ("marks", "merges")  # in the text of added tokens
ADDED_SCORE, UNUSED_SCORE = -1000.0, -10000.0


def looks_special(content):
    """Whether the converter calls a token special that its file does not."""
    return (content in ("<pad>", "<mask>", "<2mass>", "[@BOS@]") or (content.startswith("<|") and content.endswith("|>"))
            or (content.startswith("<\uff5c") and content.endswith("\uff5c>"))
            or (content.startswith("<unused") and content.endswith(">")))


def as_gguf(document, form):
    """The document with the special tokens of its GGUF file."""
    tokens = [{**token, "special": token["special"] or form != "merges" and looks_special(token["content"])}
              for token in document["added_tokens"]]
    return {**document, "added_tokens": tokens}


def entries_of(model):
    """{id: text} of a model."""
    if model["type"] == "Unigram":
        return {number: text for number, (text, _) in enumerate(model["vocab"])}
    return {number: text for text, number in model["vocab"].items()}


def pairs_of(model):
    return [merge if isinstance(merge, list) else merge.split(" ") for merge in model["merges"]]


def scores_of(model, count):
    """By id. Merges say the order of the scores; an entry that no merge makes needs none."""
    scores = [UNUSED_SCORE] * count
    if model["type"] == "Unigram":
        scores[:len(model["vocab"])] = [score for _, score in model["vocab"]]
        return scores
    order = dict.fromkeys(left + right for left, right in pairs_of(model))
    for place, piece in enumerate(order):
        scores[model["vocab"][piece]] = -float(place)
    return scores


def is_byte(text):
    return len(text) == 6 and text.startswith("<0x") and text.endswith(">")


def tokens_of(document, form):
    """[(text, type)] by id."""
    entries, added = entries_of(document["model"]), {token["id"]: token for token in document["added_tokens"]}
    special = {token["id"] for token in as_gguf(document, form)["added_tokens"] if token["special"]}
    tokens = []
    for number in range(max([*entries, *added]) + 1):
        text = added[number]["content"] if number in added else entries.get(number)
        if text is None:
            tokens.append((f"[PAD{number}]", UNUSED))
        elif form in MODELS and text == "<unk>":
            tokens.append((text, UNKNOWN))
        elif number in special:
            tokens.append((text, CONTROL))
        elif number in added and (form != "merges" or number not in entries):
            tokens.append((text if form in KEEPS_MARKS else text.replace(MARK, " "), USER_DEFINED))
        else:
            tokens.append(normal_token(text, form, entries))
    return tokens


def normal_token(text, form, entries):
    if form in MODELS and text == "\t" and "<0x09>" not in entries.values():
        return "<0x09>", BYTE  # tokenizer.json of Gemma 1 and 2 spells out one of its bytes
    return text, BYTE if form in MODELS and is_byte(text) else NORMAL


def steps_of(document):
    """The normalizer's and pre-tokenizer's steps, flat."""
    steps, rest = [], [document["normalizer"], document["pre_tokenizer"]]
    while rest:
        step = rest.pop(0)
        inner = (step or {}).get("normalizers") or (step or {}).get("pretokenizers")
        rest[:0] = inner or []
        steps += [step] if step and not inner else []
    return steps


def spaces_of(document):
    """The keys on the treatment of spaces."""
    steps = steps_of(document)
    prefix = any(step["type"] == "Prepend" or step.get("prepend_scheme") in ("always", "first") for step in steps)
    squash = any(step["type"] == "Strip" for step in steps)
    keys = {"add_space_prefix": (BOOL, prefix), "remove_extra_whitespaces": (BOOL, squash)}
    for step in steps:
        if step["type"] == "Precompiled":
            signed = [byte - 256 if byte > 127 else byte for byte in base64.b64decode(step["precompiled_charsmap"])]
            keys["precompiled_charsmap"] = ((ARRAY, I8), signed)
    return keys if squash else {key: keys[key] for key in keys if key != "remove_extra_whitespaces"}


def write_gguf(path, document, form):
    tokens = tokens_of(document, form)
    keys = {"model": (TEXT, MODELS.get(form, "gpt2")), "tokens": ((ARRAY, TEXT), [text for text, _ in tokens]),
            "token_type": ((ARRAY, I32), [kind for _, kind in tokens])}
    if form in ("scores", "marks", "unigram"):
        scores = scores_of(document["model"], len(tokens))
        for token in document["added_tokens"]:
            scores[token["id"]] = ADDED_SCORE
        keys["scores"] = ((ARRAY, F32), scores)
    else:
        # A space inside a part is written as a byte-level vocabulary has it.
        keys["merges"] = ((ARRAY, TEXT), [" ".join(part.replace(" ", "\u0120") for part in pair) for pair in pairs_of(document["model"])])
    keys |= spaces_of(document) if form in MODELS else {"pre": (TEXT, form)}
    file = Gguf()
    file.keys = {"general.architecture": (TEXT, "llama"), **{"tokenizer.ggml." + key: value for key, value in keys.items()}}
    file.write(path)
