#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runner/weights/dialects/repair_gguf.h"
#include "runner/weights/gguf.h"
#include "runner/weights/mapped_file.h"
#include "runner/weights/model_formats.h"
#include "runner/weights/packed_model.h"
#include "runner/weights/tensor_index.h"
#include "runner/weights/text.h"

namespace quire::runner::weights {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kSplitsMax = 4096;
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
std::vector<int32_t> EndIdsOfGguf(const ordered_json& config) {
  std::vector<int32_t> ids;
  std::set<int64_t> added;
  const auto add = [&](int64_t id) {
    if (added.insert(id).second) ids.push_back(static_cast<int32_t>(id));
  };
  const ordered_json* tokens = FindArray(config, "tokenizer.ggml.tokens");
  const int64_t token_count = tokens == nullptr ? std::numeric_limits<int32_t>::max() : std::ssize(*tokens);
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id", "tokenizer.ggml.fim_pad_token_id",
                          "tokenizer.ggml.fim_rep_token_id", "tokenizer.ggml.fim_sep_token_id"}) {
    const auto id = FindInteger(config, key);
    if (id && *id >= 0 && *id < token_count) add(*id);
  }
  if (const ordered_json* several = FindArray(config, "tokenizer.ggml.eos_token_ids"); several != nullptr) {
    for (const ordered_json& id : *several) {
      const int64_t number = id.is_number_integer() ? id.get<int64_t>() : -1;
      if (number >= 0 && number < token_count) add(number);
    }
  }
  return ids;
}

// The template that llama.cpp has under this name, for vocabularies with a token of two line breaks.
constexpr std::string_view kWorldTemplateName = "rwkv-world";
constexpr const char* kWorldTemplate =
    "{%- for message in messages -%}"
    "{%- if message.role == 'system' -%}{{ 'System: ' + message.content | trim + '\n\n' }}"
    "{%- elif message.role == 'assistant' -%}{{ 'Assistant: ' + message.content | trim + '\n\n' }}"
    "{%- elif message.role == 'user' -%}{{ 'User: ' + message.content | trim + '\n\n' }}"
    "{%- else -%}{{ raise_exception('only system, user and assistant are supported') }}{%- endif -%}"
    "{%- endfor -%}{%- if add_generation_prompt -%}{{ 'Assistant:' }}{%- endif -%}";

std::string TemplateOfGguf(const ordered_json& config) {
  std::string text = FindString(config, "tokenizer.chat_template");
  if (text.empty()) text = FindString(config, "tokenizer.chat_template.default");
  return text == kWorldTemplateName ? kWorldTemplate : text;
}

class GgufModel : public ModelFiles {
 public:
  // `files` and the tensors of `contents` are those of all splits, the rest of `contents` that of the first.
  GgufModel(std::vector<MappedFile> files, GgufContents contents, GgufRepairs repairs)
      : files_(std::move(files)),
        repairs_(std::move(repairs)),
        config_(std::move(contents.metadata)),
        tensors_(std::move(contents.tensors)),
        integers_(std::move(contents.integers)),
        end_ids_(EndIdsOfGguf(*config_)) {}

  Format format() const override { return Format::kGguf; }
  std::string path() const override { return files_.front().path(); }
  std::string architecture() const override { return FindString(*config_, "general.architecture"); }
  const Tensor* Find(std::string_view name) const override { return tensors_.Find(name); }
  const std::vector<Tensor>& tensors() const override { return tensors_.all(); }
  std::span<const IntegerTensor> integer_tensors() const override { return integers_; }
  const ordered_json& config() const override { return *config_; }
  const ordered_json& generation_config() const override { return none_; }
  const ordered_json& tokenizer_config() const override { return none_; }
  const std::string& tokenizer_json() const override { return no_text_; }
  std::string chat_template() const override { return TemplateOfGguf(*config_); }
  std::string named_chat_template(std::string_view name) const override {
    return FindString(*config_, fmt::format("tokenizer.chat_template.{}", name).c_str());
  }
  std::vector<int32_t> end_of_generation_ids() const override { return end_ids_; }
  std::span<const std::string> repairs() const override { return repairs_.notes; }

 private:
  const std::vector<MappedFile> files_;  // first: the tensors point into them
  const GgufRepairs repairs_;            // and into its memory
  const std::shared_ptr<const ordered_json> config_;
  const TensorIndex tensors_;
  const std::vector<IntegerTensor> integers_;
  const std::vector<int32_t> end_ids_;
  const ordered_json none_;
  const std::string no_text_;
};

std::unexpected<api::Error> Refuse(const std::string& file, std::string_view reason) {
  return api::Fail(api::ErrorCode::kBadModel, fmt::format("{}: {}", file, reason));
}

// "-00002-of-00003.gguf", how names of splits end.
std::string SplitEnding(int64_t number, int64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", number, count);
}

// Which of how many files this one says it is, counted from 0.
struct SplitPlace {
  int64_t number = 0;
  int64_t count = 1;
};

SplitPlace PlaceOf(const ordered_json& config) {
  return {FindInteger(config, "split.no").value_or(0), FindInteger(config, "split.count").value_or(1)};
}

// Adds the other splits' files and tensors to those of the first, split 0 of `count` > 1.
api::Result<void> AddSplits(const ModelSource& source, int64_t count, std::vector<MappedFile>& files,
                            GgufContents& all) {
  const std::string first = source.path().filename().string();
  const std::string ending = SplitEnding(1, count);
  if (!first.ends_with(ending)) {
    return Refuse(source.path().string(),
                  fmt::format("the first of {} files, but its name does not end in {}", count, ending));
  }
  const std::string stem = first.substr(0, first.size() - ending.size());
  std::set<std::string> names;
  for (const Tensor& tensor : all.tensors) names.insert(tensor.name);
  for (const IntegerTensor& tensor : all.integers) names.insert(tensor.name);
  for (int64_t number = 1; number < count; ++number) {
    const std::string name = stem + SplitEnding(number + 1, count);
    const std::string path = source.PathOf(name).string();
    auto file = source.Open(name);
    if (!file && file.error().code == api::ErrorCode::kNotFound) {
      return Refuse(path, fmt::format("missing; the model is in {} files, of which this is number {}", count,
                                      number + 1));
    }
    if (!file) return std::unexpected(file.error());
    auto contents = ParseGguf(file->bytes(), path);
    if (!contents) return std::unexpected(contents.error());
    const SplitPlace place = PlaceOf(*contents->metadata);
    if (place.number != number || place.count != count) {
      return Refuse(path, fmt::format("split.no is {} of {}, not {} of {}: it belongs to another model",
                                      place.number, place.count, number, count));
    }
    const auto add = [&names](auto& from, auto& to) -> std::string {
      for (auto& tensor : from) {
        if (!names.insert(tensor.name).second) return tensor.name;
        to.push_back(std::move(tensor));
      }
      return {};
    };
    std::string twice = add(contents->tensors, all.tensors);
    if (twice.empty()) twice = add(contents->integers, all.integers);
    if (!twice.empty()) {
      return Refuse(path, fmt::format("tensor {} is also in an earlier file", Quoted(twice)));
    }
    files.push_back(std::move(*file));
  }
  return {};
}

}  // namespace

api::Result<std::shared_ptr<const ModelFiles>> OpenGgufModel(const ModelSource& source, Spelling spelling) {
  auto file = source.Open("");
  if (!file) return std::unexpected(file.error());
  std::vector<MappedFile> files;
  files.push_back(std::move(*file));
  const std::string path = files.front().path();
  auto contents = ParseGguf(files.front().bytes(), path);
  if (!contents) return std::unexpected(contents.error());
  const ordered_json& config = *contents->metadata;
  const SplitPlace place = PlaceOf(config);
  if (place.number < 0 || place.count < 0 || place.count > kSplitsMax ||
      place.number >= std::max<int64_t>(1, place.count)) {
    return Refuse(path, fmt::format("split.no is {} and split.count {}", place.number, place.count));
  }
  if (place.number != 0) {
    return Refuse(path, fmt::format("number {} of {} files; open the first, whose name ends in {}",
                                    place.number + 1, place.count, SplitEnding(1, place.count)));
  }
  if (FindString(config, "general.architecture").empty()) return Refuse(path, "no general.architecture");
  if (IsPacked(*contents)) return OpenPacked(std::move(files.front()), *std::move(contents));
  if (place.count > 1) {
    if (auto added = AddSplits(source, place.count, files, *contents); !added) {
      return std::unexpected(added.error());
    }
    const auto stated = FindInteger(config, "split.tensors.count");
    const int64_t found = std::ssize(contents->tensors) + std::ssize(contents->integers);
    if (stated && *stated != found) {
      return Refuse(path, fmt::format("split.tensors.count is {}, but the {} files hold {} tensors", *stated,
                                      place.count, found));
    }
  }
  GgufRepairs repairs;
  if (spelling == Spelling::kRepaired) {
    auto repaired = RepairGguf(*contents, path);
    if (!repaired) return std::unexpected(repaired.error());
    repairs = *std::move(repaired);
  }
  return std::make_shared<const GgufModel>(std::move(files), *std::move(contents), std::move(repairs));
}

}  // namespace quire::runner::weights
