#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "runner/weights/dialects/gguf_edits.h"

namespace quire::runner::weights {
namespace {

constexpr std::string_view kQwens[] = {"qwen2",   "qwen2moe", "qwen2vl",    "qwen25vl", "qwen3",
                                       "qwen3vl", "qwen3moe", "qwen3vlmoe", "qwen3next"};

// A vocabulary that is known by its architecture and its markers.
struct KnownVocabulary {
  std::span<const std::string_view> architectures;
  std::string_view marker;  // BOS or EOS; empty: the architecture is enough
  std::string_view pre;
  std::string_view whose;
  size_t tokens_min = 0;
};

constexpr std::string_view kLlama[] = {"llama"}, kLlamaOrMistral[] = {"llama", "mistral3"},
                           kLfm2[] = {"lfm2", "lfm2moe"}, kGptOss[] = {"gpt-oss"},
                           kQwen35[] = {"qwen35", "qwen35moe"};

constexpr KnownVocabulary kVocabularies[] = {
    {kLlama, "<|begin_of_text|>", "llama-bpe", "Llama 3"},
    {kLlama, "<|eot_id|>", "llama-bpe", "Llama 3"},
    // DeepSeek's markers over the vocabulary of Llama 3 or Qwen2.5: models distilled from R1.
    {kLlama, "<｜begin▁of▁sentence｜>", "llama-bpe", "DeepSeek-R1-Distill-Llama", 128256},
    {kQwens, "<｜begin▁of▁sentence｜>", "deepseek-r1-qwen", "DeepSeek-R1-Distill-Qwen"},
    {kQwens, "<|endoftext|>", "qwen2", "Qwen2"},
    {kQwens, "<|im_end|>", "qwen2", "Qwen2"},
    {kQwen35, "", "qwen35", "Qwen3.5"},
    {kLlamaOrMistral, "</s>", "tekken", "Mistral", 131072},
    {kLfm2, "", "lfm2", "LFM2"},
    {kGptOss, "", "gpt-4o", "gpt-oss"},
};

}  // namespace

api::Result<GgufEdits> DetectPreTokenizer(const GgufView& view) {
  GgufEdits edits;
  constexpr const char* kPre = "tokenizer.ggml.pre";
  const std::string_view stated = view.Text(kPre);
  const bool unknown = stated.empty() || stated == "default";
  if (view.Text("tokenizer.ggml.model") != "gpt2" || !unknown) return edits;
  const std::string_view bos = view.Token(view.Integer("tokenizer.ggml.bos_token_id"));
  const std::string_view eos = view.Token(view.Integer("tokenizer.ggml.eos_token_id"));
  const size_t tokens = view.Count("tokenizer.ggml.tokens");
  for (const KnownVocabulary& known : kVocabularies) {
    if (std::ranges::find(known.architectures, view.architecture()) == known.architectures.end()) continue;
    if (!known.marker.empty() && known.marker != bos && known.marker != eos) continue;
    if (tokens < known.tokens_min) continue;
    edits.Set(kPre, std::string(known.pre),
              fmt::format("{}, but the vocabulary is that of {}: read as {}",
                          stated.empty() ? "absent" : "default", known.whose, known.pre));
    break;
  }
  return edits;
}

}  // namespace quire::runner::weights
