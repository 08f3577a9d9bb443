#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "runner/weights/dialects/gguf_edits.h"

namespace quire::runner::weights {
namespace {

constexpr std::string_view kGemmas[] = {"gemma", "gemma2", "gemma3", "gemma4", "gemma3n", "gemma-embedding"};
constexpr const char* kTokens = "tokenizer.ggml.tokens";
constexpr const char* kTypes = "tokenizer.ggml.token_type";
constexpr int64_t kNormalToken = 1, kByteToken = 6;
constexpr int64_t kScaledContext = 131072;  // of the sizes that are published with linear scaling by 8
constexpr size_t kTokensWithoutRowMax = 256;

bool IsSentencePiece(const GgufView& view) {
  const std::string_view model = view.Text("tokenizer.ggml.model");
  return model == "llama" || model == "gemma4";
}

// What no file has that llama.cpp's converter wrote.
bool IsPublishedGemma3(const GgufView& view) {
  return view.HasTensorsOf("v.") || view.HasTensorsOf("mm.") || view.Has(view.Key("mm.tokens_per_image")) ||
         view.Has(view.Key("rope.local.freq_base")) || view.Has(view.Key("rope.global.freq_base")) ||
         view.Has("tokenizer.ggml.add_padding_token") || view.Has("tokenizer.ggml.add_unknown_token") ||
         !view.Has(view.Key("attention.layer_norm_rms_epsilon"));
}

// The vision model's placeholder is a token that the embedding has no row for: the text model never sees it.
api::Result<void> CutVocabulary(const GgufView& view, GgufEdits& edits) {
  const Tensor* embedding = view.FindTensor("token_embd.weight");
  const size_t tokens = view.Count(kTokens);
  if (embedding == nullptr || embedding->shape.size() != 2) return {};
  const auto rows = static_cast<size_t>(embedding->rows());
  if (tokens <= rows) return {};
  if (tokens - rows > kTokensWithoutRowMax) {
    return Contradiction(kTokens, fmt::format("{} tokens, but token_embd.weight has {} rows", tokens, rows));
  }
  for (const char* name : {"bos", "eos", "eot", "unknown", "padding"}) {
    const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
    if (const auto id = view.Integer(key); id && *id >= embedding->rows()) {
      return Contradiction(key, fmt::format("{} is a token that token_embd.weight has no row for", *id));
    }
  }
  for (const char* key : {kTokens, "tokenizer.ggml.scores", kTypes}) {
    if (view.Count(key) == tokens) edits.cuts.push_back({key, rows});
  }
  edits.notes.push_back(fmt::format("{}: the last {} of {} left out, for which token_embd.weight has no row",
                                    kTokens, tokens - rows, tokens));
  return {};
}

// The value of "<0xHH>".
std::optional<int> ByteOf(std::string_view token) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  const size_t high = kDigits.find(token[3]), low = kDigits.find(token[4]);
  if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
  return static_cast<int>(16 * high + low);
}

// Byte tokens that are typed as text would be read as such, and no byte could be written.
void TypeByteTokens(const GgufView& view, GgufEdits& edits) {
  const auto* types = view.Array(kTypes);
  const size_t tokens = view.Count(kTokens);
  if (types == nullptr || types->size() != tokens) return;
  std::array<std::optional<size_t>, 256> id_of;
  for (size_t id = 0; id < tokens; ++id) {
    const auto byte = ByteOf(view.Token(static_cast<int64_t>(id)));
    if (!byte || id_of[static_cast<size_t>(*byte)]) continue;
    if ((*types)[id] != kNormalToken) return;
    id_of[static_cast<size_t>(*byte)] = id;
  }
  if (!std::ranges::all_of(id_of, [](const auto& id) { return id.has_value(); })) return;
  for (const auto& id : id_of) edits.elements.push_back({kTypes, *id, kByteToken});
  edits.notes.push_back(fmt::format("{}: <0x00> to <0xFF> are bytes, not text", kTypes));
}

// Also of Gemma 3's embedding model.
api::Result<void> RepairGemmaText(const GgufView& view, GgufEdits& edits) {
  edits.Alias(view, view.Key("rope.global.freq_base"), view.Key("rope.freq_base"));
  edits.Alias(view, view.Key("rope.local.freq_base"), view.Key("rope.freq_base_swa"));
  return CutVocabulary(view, edits);
}

api::Result<void> RepairGemma3(const GgufView& view, GgufEdits& edits) {
  const std::string type = view.Key("rope.scaling.type");
  const bool large = view.Integer(view.Key("context_length")).value_or(0) >= kScaledContext;
  if (IsPublishedGemma3(view) && large && !view.Has(type)) {
    edits.Set(type, "linear", "absent; every Gemma 3 with this context length is trained with linear, 8");
    edits.Set(view.Key("rope.scaling.factor"), 8.0, "absent; 8");
  }
  return RepairGemmaText(view, edits);
}

api::Result<void> RepairGemma4(const GgufView& view, GgufEdits& edits) {
  constexpr const char* kModel = "tokenizer.ggml.model";
  if (view.Text(kModel) == "llama") {
    if (view.Count("tokenizer.ggml.merges") == 0) {
      return Contradiction(kModel, "is llama, but a Gemma 4 vocabulary needs tokenizer.ggml.merges");
    }
    edits.Set(kModel, "gemma4", "llama, but the vocabulary is merged by rank, as Gemma 4's is");
  }
  constexpr std::string_view kOther = ".ffn_gate_inp.per_expert_scale", kOurs = ".ffn_down_exps.scale";
  for (const Tensor& tensor : view.tensors()) {
    if (!tensor.name.ends_with(kOther)) continue;
    const std::string block = tensor.name.substr(0, tensor.name.size() - kOther.size());
    edits.tensors.push_back({.from = tensor.name, .to = block + std::string(kOurs)});
  }
  if (!edits.tensors.empty()) {
    edits.notes.push_back(fmt::format("tensors *{}: read as *{}", kOther, kOurs));
  }
  return {};
}

}  // namespace

api::Result<GgufEdits> DetectGemma(const GgufView& view) {
  GgufEdits edits;
  if (std::ranges::find(kGemmas, view.architecture()) == std::end(kGemmas)) return edits;
  api::Result<void> done;
  if (view.architecture() == "gemma3") done = RepairGemma3(view, edits);
  if (view.architecture() == "gemma-embedding") done = RepairGemmaText(view, edits);
  if (view.architecture() == "gemma4") done = RepairGemma4(view, edits);
  if (!done) return std::unexpected(done.error());
  if (!IsSentencePiece(view)) return edits;
  TypeByteTokens(view, edits);
  constexpr const char* kPrefix = "tokenizer.ggml.add_space_prefix";
  if (!view.Has(kPrefix)) edits.Set(kPrefix, false, "absent; Gemma puts no space before a text");
  return edits;
}

}  // namespace quire::runner::weights
