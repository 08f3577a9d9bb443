#include "runner/weights/gguf_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "runner/weights/gguf.h"
#include "runner/weights/tensor_index.h"

namespace quire::runner::weights {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kControlToken = 3;  // of tokenizer.ggml.token_type

struct EndText {
  std::string_view text;
  // Text that may also be an ordinary piece of a vocabulary; the others end a generation whatever their type,
  // as converters get that wrong.
  bool only_as_control = false;
};

// Tokens that end a turn or a text in the published model families. Files often name only one of them as eos.
constexpr auto kEndTexts = std::to_array<EndText>({
    {"<|im_end|>"},      {"<|eot_id|>"},         {"<|eom_id|>"},
    {"<|endoftext|>"},   {"<|end_of_text|>"},    {"<|end_of_turn|>"},
    {"<end_of_turn>"},   {"<end_of_utterance>"}, {"<turn|>"},
    {"<eos>"},           {"<|tool_response>"},   {"<｜end▁of▁sentence｜>"},
    {"<|end|>", true},   {"<|return|>", true},   {"<|call|>", true},
    {"<|calls|>", true}, {"<|flush|>", true},    {"</s>", true},
    {"<EOT>", true},     {"_<EOT>", true},       {"[EOT]", true},
    {"[EOS]", true},
});

const ordered_json* FindArray(const ordered_json& config, const char* key) {
  const auto found = config.find(key);
  return found != config.end() && found->is_array() ? &*found : nullptr;
}

std::string FindString(const ordered_json& config, const char* key) {
  const auto found = config.find(key);
  return found != config.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::optional<int64_t> FindInteger(const ordered_json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end() || !found->is_number_integer()) return std::nullopt;
  if (found->is_number_unsigned() && found->get<uint64_t>() > uint64_t{INT64_MAX}) return std::nullopt;
  return found->get<int64_t>();
}

// An id beyond the vocabulary is how converters write "none": it is left out.
std::vector<int32_t> EndIds(const ordered_json& config) {
  std::vector<int32_t> ids;
  const auto add = [&ids](int64_t id) {
    if (std::ranges::find(ids, id) == ids.end()) ids.push_back(static_cast<int32_t>(id));
  };
  const ordered_json* tokens = FindArray(config, "tokenizer.ggml.tokens");
  const int64_t token_count = tokens == nullptr ? std::numeric_limits<int32_t>::max() : std::ssize(*tokens);
  for (const char* key :
       {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    const auto id = FindInteger(config, key);
    if (id && *id >= 0 && *id < token_count) add(*id);
  }
  const ordered_json* types = FindArray(config, "tokenizer.ggml.token_type");
  if (tokens == nullptr || types == nullptr) return ids;
  std::map<std::string_view, int64_t> ends;
  for (size_t id = 0; id < std::min(tokens->size(), types->size()); ++id) {
    const ordered_json& token = (*tokens)[id];
    if (!token.is_string()) continue;
    const auto* end = std::ranges::find(kEndTexts, token.get_ref<const std::string&>(), &EndText::text);
    if (end == kEndTexts.end() || (end->only_as_control && (*types)[id] != kControlToken)) continue;
    ends.emplace(end->text, static_cast<int64_t>(id));
  }
  // In the Harmony format <|end|> only closes one channel of a turn.
  if (ends.contains("<|return|>") && ends.contains("<|call|>")) ends.erase("<|end|>");
  for (const auto& [text, id] : ends) add(id);
  return ids;
}

class GgufModel : public ModelFiles {
 public:
  GgufModel(MappedFile file, GgufContents contents)
      : file_(std::move(file)),
        config_(std::move(contents.metadata)),
        tensors_(std::move(contents.tensors)),
        end_ids_(EndIds(*config_)) {}

  Format format() const override { return Format::kGguf; }
  std::string path() const override { return file_.path(); }
  std::string architecture() const override { return FindString(*config_, "general.architecture"); }
  const Tensor* Find(std::string_view name) const override { return tensors_.Find(name); }
  const std::vector<Tensor>& tensors() const override { return tensors_.all(); }
  const ordered_json& config() const override { return *config_; }
  const ordered_json& generation_config() const override { return none_; }
  const ordered_json& tokenizer_config() const override { return none_; }
  const std::string& tokenizer_json() const override { return no_text_; }
  std::string chat_template() const override { return FindString(*config_, "tokenizer.chat_template"); }
  std::vector<int32_t> end_of_generation_ids() const override { return end_ids_; }

 private:
  const MappedFile file_;  // first: the tensors point into it
  const std::shared_ptr<const ordered_json> config_;
  const TensorIndex tensors_;
  const std::vector<int32_t> end_ids_;
  const ordered_json none_;
  const std::string no_text_;
};

}  // namespace

api::Result<std::shared_ptr<const ModelFiles>> OpenGgufModel(MappedFile file) {
  auto contents = ParseGguf(file.bytes(), file.path());
  if (!contents) return std::unexpected(contents.error());
  const auto refuse = [&file](std::string_view reason) {
    return api::Fail(api::ErrorCode::kBadModel, fmt::format("{}: {}", file.path(), reason));
  };
  if (FindString(*contents->metadata, "general.architecture").empty())
    return refuse("no general.architecture");
  if (FindInteger(*contents->metadata, "split.count").value_or(0) > 1) {
    return refuse("one of several splits; merge them into one file");
  }
  return std::make_shared<const GgufModel>(std::move(file), *std::move(contents));
}

}  // namespace quire::runner::weights
