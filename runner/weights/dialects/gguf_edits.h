// What a dialect changes in the view of a GGUF file that the engine reads, and the dialects themselves.
//
// A dialect looks at a file and answers with edits; it changes nothing itself. Its edits restate what the
// file says in the spelling of llama.cpp's converter. Where the file contradicts itself there are no edits
// but an error that names the key or tensor: nothing is assumed. Edits are bounded by the arrays and tensors
// of the file, never by a number that the file states.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "api/base/error.h"
#include "runner/weights/dialects/gguf_view.h"

namespace quire::runner::weights {

struct GgufEdits {
  using Value = std::variant<bool, int64_t, double, std::string, std::vector<bool>, std::vector<int64_t>>;
  struct Key {
    std::string key;
    Value value;
  };
  struct Element {  // of an array of integers
    std::string array;
    size_t index = 0;
    int64_t value = 0;
  };
  struct Cut {  // an array keeps its first `count` elements
    std::string array;
    size_t count = 0;
  };
  struct Name {  // of a tensor
    std::string from;
    std::string to;
    bool plus_one = false;  // a norm that is stored zero-centered: 1 is added to each weight
  };

  std::string architecture = {};  // the new one; keys "OLD.x" become "NEW.x". Empty: unchanged
  std::vector<Key> keys = {};     // replace or add
  std::vector<Element> elements = {};
  std::vector<Cut> cuts = {};
  std::vector<Name> tensors = {};
  std::vector<std::string> notes = {};  // what was repaired, a line each

  bool empty() const { return notes.empty(); }
  // Sets the key, with the note "KEY: REASON".
  void Set(const std::string& key, Value value, std::string_view reason);
  // Reads `from` under the name `to`, unless `to` is there.
  void Alias(const GgufView& view, const std::string& from, const std::string& to);
  // Every tensor "blk.N" + `from` becomes "blk.N" + `to`.
  void RenameInBlocks(const GgufView& view, std::string_view from, std::string_view to);
  // An absent expert_feed_forward_length is the width of blk.0's experts.
  void SetExpertWidth(const GgufView& view);
};

// kBadModel "KEY: REASON".
std::unexpected<api::Error> Contradiction(std::string_view key, std::string_view reason);

using Dialect = api::Result<GgufEdits>(const GgufView& view);

// Names of architectures that llama.cpp spells otherwise, or that Quire reads as their text model.
Dialect DetectArchitectureName;
// Rotary scaling in spellings of other converters, and of llama.cpp before 2024.
Dialect DetectRopeSpelling;
// Gemma 3 and 4 as Ollama publishes them: one file with vision tensors, tokens without embedding, no rotary
// scaling, byte tokens without their type.
Dialect DetectGemma;
// Qwen3-Next and Qwen3.5 as Ollama published them: KV heads per layer, ssm_dt, "mtp." tensors.
Dialect DetectQwenNext;
// LFM2 with an output_norm, or with the feed-forward width before its adjustment.
Dialect DetectLfm2;
// Qwen3-MoE as Ollama converts it: the norm of the experts' weights under another name.
Dialect DetectQwenMoe;
// OLMo 2 and 3: YaRN's magnitude as a whole.
Dialect DetectOlmo;
// Phi-3 with a magnitude but no rotary factors.
Dialect DetectPhi3;
// Mistral 3 as Ollama published it: the growth of queries under another name.
Dialect DetectMistral3;
// GLM-4.7-Flash as Ollama published it, after its name: the lengths of a head and of a cached token
// exchanged.
Dialect DetectDeepSeek;
// Nemotron-H with experts: other names of the projections around the experts.
Dialect DetectNemotron;
// gpt-oss, after its name.
Dialect DetectGptOss;
// A normalization of SentencePiece in base64, as Snowflake Arctic Embed 2 has it.
Dialect DetectCharsmap;
// A missing tokenizer.ggml.pre, or "default": taken from architecture, BOS and EOS.
Dialect DetectPreTokenizer;

}  // namespace quire::runner::weights
