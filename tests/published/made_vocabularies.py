"""Small vocabularies of every kind that tokenizer.json describes, with added tokens of every kind. Standard library only.

`vocabularies()` gives {name: document}: the text of a tokenizer.json as JSON. The name is STYLE_SET. A style is one of STYLES: a
model with its normalizer, pre-tokenizer and decoder as published. A set is one of SETS: the added tokens. `gguf_forms(NAME)`
has the forms (gguf_vocabulary.py) in which a GGUF file can describe it.
"""
import base64
import itertools
import random
import re

from border_texts import MARK
from charsmap import charsmap

CORPUS = """The quick brown fox jumps over the lazy dog. The dog sleeps; the fox reads the words of the world, hello world!
This is what the caller returned: 12 tables, 20 rows, 2024 numbers. Don't ask them whether it's foo bar or bar foo.
def read(self, text): return self.text if text == 10 else [word for word in text.split(", ")]  # returned words
for (int i = 0; i < 10; ++i) { table[i] = word + text; } // there are words in tables
<table><td>12</td></table> <div class="a">hello</div> they thought that through, there and then, word by word.
the rest of the text follows the lead; leading and ending words are read as the reader reads these words."""
OTHER = ["\u65e5\u672c\u8a9e \u65e5\u672c \u4f60\u597d \u4e16\u754c", "\u041f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440", "\u00e9t\u00e9 caf\u00e9",
         "\U0001f642 \U0001f642\U0001f642"]
MERGES = 170
CHARACTERS_OF_OTHER = "\u65e5\u672c\u8a9e\u4f60\u041f\u0440\u0438\u0432\u00e9\U0001f642e\u0301"  # others are spelled in bytes

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def byte_alphabet():
    """{byte: character} of byte-level vocabularies, as GPT-2 has it."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = (byte for byte in range(256) if byte not in set(plain))
    return {**{byte: chr(byte) for byte in plain}, **{byte: chr(256 + i) for i, byte in enumerate(others)}}


def trained(words, merges):
    """The merges that join the most frequent neighbors of `words`, tuples of characters, one after the other."""
    counts = {}
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    learned = []
    for _ in range(merges):
        pairs = {}
        for word, count in counts.items():
            for pair in zip(word, word[1:]):
                pairs[pair] = pairs.get(pair, 0) + count
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        learned.append(best)
        joined = {}
        for word, count in counts.items():
            parts, at = [], 0
            while at < len(word):
                both = word[at:at + 2] == best
                parts.append(word[at] + word[at + 1] if both else word[at])
                at += 2 if both else 1
            joined[tuple(parts)] = joined.get(tuple(parts), 0) + count
        counts = joined
    return learned


def marked_pieces():
    """Pieces of more than one character in the order of their scores, and characters, for text with marks for spaces."""
    text = " ".join([CORPUS, *OTHER]).replace("\n", " ")
    words = [tuple(MARK + word) for word in text.split()]
    characters = [MARK, *sorted({*"".join(CORPUS.split()), *CHARACTERS_OF_OTHER})]
    pieces = dict.fromkeys(left + right for left, right in trained(words, MERGES))
    return [piece for piece in pieces if set(piece) <= set(characters)], characters


def every_split(pieces, known):
    """Merges of each piece, from all pairs of entries that make it, as transformers writes them for SentencePiece."""
    return [[piece[:cut], piece[cut:]] for piece in pieces for cut in range(1, len(piece))
            if piece[:cut] in known and piece[cut:] in known]


def runs(character, longest):
    return [character * count for count in range(longest, 1, -1)]


# ---- models ----


def bpe(entries, merges, **options):
    vocab = {entry: number for number, entry in enumerate(dict.fromkeys(entries))}
    return {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
            "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, **options, "vocab": vocab, "merges": merges}


def llama_model():
    pieces, characters = marked_pieces()
    return bpe(["<unk>", "<s>", "</s>", *BYTES, *pieces, *characters], every_split(pieces, {*pieces, *characters}),
               unk_token="<unk>", fuse_unk=True, byte_fallback=True)


def gemma_model():
    """Runs of line breaks, of spaces and HTML tags stand before the bytes, and runs merge before words."""
    pieces, characters = marked_pieces()
    characters = [*characters, "\n", "\t"]
    spaces = [*runs("\n", 8), *runs(MARK, 31), *runs("\t", 6)]
    entries = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "[multimodal]", "<unused0>", "<unused1>", "<start_of_turn>",
               "<end_of_turn>", "\n", *runs("\n", 8)[::-1], *runs(MARK, 31)[::-1], "<table>", "</table>", "<br>", "<b>", "</b>"]
    return bpe([*entries, *BYTES, *runs("\t", 6)[::-1], *pieces, *characters],
               every_split([*spaces, *pieces], {*spaces, *pieces, *characters}), unk_token="<unk>", fuse_unk=True, byte_fallback=True)


def byte_level_model(**options):
    alphabet = byte_alphabet()
    words = []
    for word in re.findall(r" ?[A-Za-z]+| ?\d{1,3}| ?[^\w\s]+|\s+", CORPUS) + re.findall(r" ?\S+", " ".join(OTHER)):
        words.append(tuple(alphabet[byte] for byte in word.encode()))
    words += [("\u0120",) * 8] * 9 + [("\u010a",) * 4] * 5 + [("\u0109",) * 4] * 5
    merges = trained(words, MERGES)
    return bpe([*(alphabet[byte] for byte in range(256)), *(left + right for left, right in merges)], [list(m) for m in merges],
               **options)


def unigram_model(byte_fallback):
    """Scores are multiples of 1/1024: sums of them are exact, whatever the type."""
    pieces, characters = marked_pieces()
    draw = random.Random("unigram")
    vocab = [["<pad>", 0.0], ["</s>", 0.0], ["<unk>", 0.0], *([byte, 0.0] for byte in BYTES if byte_fallback)]
    vocab += [[piece, -draw.randint(2000 + 30 * i, 2600 + 40 * i) / 1024] for i, piece in enumerate(pieces)]
    vocab += [[character, -draw.randint(9000, 12000) / 1024] for character in characters]
    return {"type": "Unigram", "unk_id": 2, "vocab": vocab, "byte_fallback": byte_fallback}


def wordpiece_model():
    pieces, characters = marked_pieces()
    begin = dict.fromkeys(piece.strip(MARK) for piece in [*pieces, *characters] if piece.strip(MARK))
    entries = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *begin, *("##" + piece for piece in begin)]
    return {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
            "vocab": {entry: number for number, entry in enumerate(dict.fromkeys(entries))}}


# ---- the steps around a model ----


def sequence(kind, *steps):
    return {"type": "Sequence", {"pre": "pretokenizers"}.get(kind, kind + "s"): list(steps)}


def replace(old, new):
    return {"type": "Replace", "pattern": {"String": old}, "content": new}


def split(pattern, behavior="Isolated"):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": False}


def metaspace(scheme, cut):
    return {"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": cut}


PREPEND = sequence("normalizer", {"type": "Prepend", "prepend": MARK}, replace(" ", MARK))
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
MARKS_TO_TEXT = [replace(MARK, " "), {"type": "ByteFallback"}, {"type": "Fuse"}]
DROP_ONE_SPACE = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
CHARSMAP = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap()).decode()}
SQUASH = {"type": "Replace", "pattern": {"Regex": " {2,}"}}


def style(model, normalizer=None, pre_tokenizer=None, decoder=None):
    return {"model": model, "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "decoder": decoder}


def metaspace_style(model, scheme, cut, normalizer=None):
    step = metaspace(scheme, cut)
    return style(model, normalizer, step, step)


def new_llama(scheme, cut):
    decoder = sequence("decoder", *MARKS_TO_TEXT, *([] if scheme == "never" else [DROP_ONE_SPACE]))
    return style(llama_model(), None, metaspace(scheme, cut), decoder)


STYLES = {
    "llama2": lambda: style(llama_model(), PREPEND, None, sequence("decoder", *MARKS_TO_TEXT, DROP_ONE_SPACE)),
    "gemma": lambda: style(gemma_model(), replace(" ", MARK), {"type": "Split", "pattern": {"String": " "}, "behavior":
                           "MergedWithPrevious", "invert": False}, sequence("decoder", *MARKS_TO_TEXT)),
    "first": lambda: new_llama("first", False),
    "first_split": lambda: new_llama("first", True),
    "always": lambda: new_llama("always", False),
    "always_split": lambda: new_llama("always", True),
    "never": lambda: new_llama("never", False),
    "never_split": lambda: new_llama("never", True),
    "gpt2": lambda: style(byte_level_model(), None, {**BYTE_LEVEL, "use_regex": True}, BYTE_LEVEL),
    "gpt2_prefix": lambda: style(byte_level_model(), None, {**BYTE_LEVEL, "use_regex": True, "add_prefix_space": True}, BYTE_LEVEL),
    "llama3": lambda: style(byte_level_model(ignore_merges=True), None, sequence("pre", split(LLAMA3), BYTE_LEVEL), BYTE_LEVEL),
    "qwen2": lambda: style(byte_level_model(), {"type": "NFC"}, sequence("pre", split(QWEN2), BYTE_LEVEL), BYTE_LEVEL),
    "smollm": lambda: style(byte_level_model(), None, sequence("pre", {"type": "Digits", "individual_digits": True},
                            {**BYTE_LEVEL, "use_regex": True}), BYTE_LEVEL),
    "bert": lambda: style(wordpiece_model(), {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                          "strip_accents": None, "lowercase": True}, {"type": "BertPreTokenizer"}, {"type": "WordPiece", "prefix": "##",
                          "cleanup": False}),
    "unigram": lambda: metaspace_style(unigram_model(False), "always", True),
    "unigram_bytes": lambda: style(unigram_model(True), PREPEND, None, sequence("decoder", *MARKS_TO_TEXT, DROP_ONE_SPACE)),
    "t5": lambda: metaspace_style(unigram_model(False), "always", True, sequence(
        "normalizer", CHARSMAP, {"type": "Strip", "strip_left": False, "strip_right": True}, {**SQUASH, "content": MARK})),
    "t5_old": lambda: style(unigram_model(False), CHARSMAP, sequence("pre", {"type": "WhitespaceSplit"}, metaspace("always", True)),
                            metaspace("always", True)),
    "xlmr": lambda: metaspace_style(unigram_model(False), "always", True, sequence("normalizer", CHARSMAP, {**SQUASH, "content": " "})),
}


# ---- added tokens ----

MARKUP = ["<|im_start|>", "<|im_end|>", "[INST]", "[/INST]", "<|tool", "<|tool|>"]
TAGS = ["<br>", "</table>", "<b", "<b>", "<td>"]
TEXTS = ["2024", "20", "\U0001f642", "\U0001f642\U0001f642", "\u65e5\u672c", "ab", "bcd", "word", "\n\n", "\n\n\n\n", "\t\t", "\r\n"]
SPACED = ["  ", "    ", " lead", "tail ", "foo bar", "foo bar baz"]
MARKED = [MARK * 2, MARK * 4, "a" + MARK + "b", MARK + "the"]
# What normal forms and charsmaps change. Characters from U+00A1 to U+0143 would be decoded as bytes in
# byte-level vocabularies: they are the library's spelling of bytes, and it looks no further.
CHANGING = ["a\u0323x", "\u1ea1y", "\ufb01n", "o\u0323", "\uff21B"]
FLAGS = ("normalized", "lstrip", "rstrip", "single_word")


def token(content, special=False, **flags):
    return {"content": content, "special": special, **{flag: flags.get(flag, False) for flag in FLAGS}}


def flagged():
    """Each combination of flags: on markup, special and not in turn, and on a word. Some are the beginning of another."""
    tokens = []
    for number, values in enumerate(itertools.product([False, True], repeat=len(FLAGS))):
        flags = dict(zip(FLAGS, values))
        letters = "".join(flag[0] for flag, value in flags.items() if value)
        tokens.append(token(f"<f{letters}>", special=number % 2 == 0, **flags))
        tokens.append(token(f"Zap{letters}", special=number % 3 == 0, **flags))
    return tokens


def plain():
    return [*(token(t, True) for t in MARKUP), *map(token, TAGS + TEXTS)]


SETS = {
    "plain": plain,
    "config": plain,
    "spaced": lambda: [*plain(), *map(token, SPACED)],
    "marked": lambda: [*plain(), *map(token, MARKED)],
    "flags": flagged,
    "normal": lambda: [token(t, t in MARKUP, normalized=True) for t in MARKUP + TAGS + TEXTS + SPACED + MARKED + CHANGING],
}


def added_of_model(model):
    """The entries of a model that its tokenizer.json lists as added tokens too."""
    if model["type"] == "Unigram":
        return [token("<pad>", True), token("</s>", True), token("<unk>", True)]
    if "<bos>" in model["vocab"]:
        entries = list(model["vocab"])
        return [token(entry, entry in ("<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"))
                for entry in entries[:entries.index("<0x00>")]]
    named = [token(entry, True) for entry in ("<unk>", "<s>", "</s>", "[PAD]", "[UNK]", "[CLS]", "[SEP]") if entry in model["vocab"]]
    return named + [token(entry, True, lstrip=True) for entry in ("[MASK]",) if entry in model["vocab"]]


def without(style_name, entry):
    """Gemma has runs of its own, of which a GGUF file writes marks as spaces: other tokens of spaces, or that begin with one, would be
    confused with them. A token that T5's normalizer empties has no meaning: the library hangs. Of two tokens that one
    normalizer makes equal it takes either."""
    content = entry["content"]
    if style_name == "gemma":
        return not content.strip(" \t") or content.startswith(" ")
    if not entry["normalized"]:
        return False
    blank_is_space = style_name in ("t5", "t5_old", "xlmr", "bert")
    return not content.strip(MARK) or blank_is_space and not content.strip() and (content != "  " or style_name == "t5")


def document(style_name, set_name):
    """Added tokens that the model lacks have the ids behind its own."""
    parts = STYLES[style_name]()
    model = parts["model"]
    vocab = {entry: number for number, (entry, _) in enumerate(model["vocab"])} if model["type"] == "Unigram" else model["vocab"]
    tokens = {entry["content"]: entry for entry in [*added_of_model(model), *SETS[set_name]()]
              if not without(style_name, entry)}
    ids = dict(vocab)
    for content in tokens:
        ids.setdefault(content, len(ids))
    added = sorted(({"id": ids[content], **entry} for content, entry in tokens.items()), key=lambda entry: entry["id"])
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": parts["normalizer"],
            "pre_tokenizer": parts["pre_tokenizer"], "post_processor": None, "decoder": parts["decoder"], "model": model}


def files_of(name, document):
    """The tokenizer.json and tokenizer_config.json of a document. Of the set "config" only the second lists the added tokens that the
    model lacks; transformers adds them."""
    entries = {entry if isinstance(entry, str) else entry[0] for entry in document["model"]["vocab"]}
    added = [token for token in document["added_tokens"] if not name.endswith("_config") or token["content"] in entries]
    return {**document, "added_tokens": added}, config_of(document)


def config_of(document):
    contents = [entry["content"] for entry in document["added_tokens"] if entry["special"]]
    ends = (("bos_token", ("<bos>", "<s>")), ("eos_token", ("<eos>", "</s>", "<|im_end|>")))
    named = {key: next(content for content in names if content in contents) for key, names in ends if set(names) & set(contents)}
    decoder = {str(entry["id"]): {key: value for key, value in entry.items() if key != "id"} for entry in document["added_tokens"]}
    return {"added_tokens_decoder": decoder, **named, "clean_up_tokenization_spaces": False,
            "tokenizer_class": "PreTrainedTokenizerFast"}


# By style. A GGUF file has no flags of added tokens, and a space for each mark in one that is not special.
GGUF_FORMS = {"llama2": ["scores"], "gemma": ["scores", "marks", "merges"], "never": ["scores"], "gpt2": ["gpt-2"], "llama3": ["llama-bpe"],
              "qwen2": ["qwen2"], "smollm": ["smollm"], "unigram_bytes": ["unigram"], "t5": ["unigram"]}


def gguf_forms(name):
    style_name, _, set_name = name.rpartition("_")
    return GGUF_FORMS.get(style_name, []) if set_name in ("plain", "spaced") else []


def in_gguf(document, form, text):
    """Whether a GGUF file must read a text as its tokenizer.json does. The file does not tell a mark from a space in added tokens, and in
    a Gemma 4 not that an entry of the model is an added token. Metaspace takes a literal mark for one of its own; SentencePiece,
    whose keys the file has, does not."""
    if form == "merges":
        made = {left + right for left, right in document["model"]["merges"]} | {entry for entry in document["model"]["vocab"] if len(entry) == 1}
        lost = [token["content"] for token in document["added_tokens"] if token["content"] in made and token["content"].strip("\n" + MARK)]
        return MARK not in text and not any(content in text for content in lost)
    confused = form in ("scores", "unigram") and any(token["content"].startswith(" ") for token in document["added_tokens"])
    takes_marks = (document["pre_tokenizer"] or {}).get("prepend_scheme", "never") != "never"
    return MARK not in text or not (confused or takes_marks)


def decodes_alike(name):
    """Whether a GGUF file gives the text of its tokenizer.json. SentencePiece drops all spaces at the beginning where it removes extra
    ones; Metaspace drops the marks of the first token."""
    return not name.startswith("t5_")


def vocabularies():
    return {f"{style_name}_{set_name}": document(style_name, set_name) for style_name in STYLES for set_name in SETS}
