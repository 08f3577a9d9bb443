#include "runner/golden/golden_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <utility>

#include "runner/weights/json_text.h"
#include "runner/weights/mapped_file.h"
#include "runner/weights/safetensors.h"

namespace quire::runner::golden {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxJsonBytes = 64 << 20;
constexpr int32_t kMaxVocab = 1 << 24;

// The arrays of a safetensors file, found by name. Reads fail at most once: the first reason is kept.
class Arrays {
 public:
  static api::Result<Arrays> Open(const std::filesystem::path& path) {
    auto file = weights::MappedFile::Open(path);
    if (!file) return std::unexpected(file.error());
    auto entries = weights::ParseSafetensors(file->bytes(), path.string());
    if (!entries) return std::unexpected(entries.error());
    return Arrays(std::move(*file), std::move(*entries));
  }

  const weights::SafetensorsEntry* Find(const std::string& name) const {
    const auto found = std::ranges::find(entries_, name, &weights::SafetensorsEntry::name);
    return found == entries_.end() ? nullptr : &*found;
  }

  template <class T>  // float or int32_t
  std::vector<T> Read(const std::string& name) {
    const weights::SafetensorsEntry* entry = Find(name);
    if (entry == nullptr || entry->dtype != (std::is_same_v<T, float> ? "F32" : "I32")) {
      Fail(fmt::format("{} is missing or of another type", name));
      return {};
    }
    std::vector<T> values(entry->data.size() / sizeof(T));
    std::memcpy(values.data(), entry->data.data(), values.size() * sizeof(T));
    return values;
  }

  void Fail(const std::string& reason) {
    if (error_) return;
    error_ = api::Error{api::ErrorCode::kBadModel, fmt::format("{}: {}", file_.path(), reason)};
  }
  const std::optional<api::Error>& error() const { return error_; }
  const std::vector<weights::SafetensorsEntry>& entries() const { return entries_; }

 private:
  Arrays(weights::MappedFile file, std::vector<weights::SafetensorsEntry> entries)
      : file_(std::move(file)), entries_(std::move(entries)) {}

  weights::MappedFile file_;
  std::vector<weights::SafetensorsEntry> entries_;
  std::optional<api::Error> error_;
};

api::Result<Json> ReadJson(const std::filesystem::path& path) {
  const auto text = weights::ReadText(path, kMaxJsonBytes);
  if (!text) return std::unexpected(text.error());
  return weights::ParseJson(*text, path.string());
}

std::unexpected<api::Error> Bad(const std::filesystem::path& path, const std::string& reason) {
  return api::Fail(api::ErrorCode::kBadModel, fmt::format("{}: {}", path.string(), reason));
}

bool AreIds(const std::vector<models::TokenId>& ids, int32_t vocab) {
  return std::ranges::all_of(ids, [vocab](models::TokenId id) { return id >= 0 && id < vocab; });
}

void CheckPrompt(const GoldenPrompt& prompt, size_t i, int32_t vocab, Arrays& arrays) {
  if (arrays.error()) return;
  const auto length = static_cast<int32_t>(prompt.ids.size());
  const auto bad_row = [length](int32_t row) { return row < 0 || row >= length; };
  const auto width = static_cast<size_t>(vocab);
  if (prompt.ids.empty() || !AreIds(prompt.ids, vocab) || !AreIds(prompt.greedy, vocab)) {
    arrays.Fail(fmt::format("prompt {} has no ids, or some beyond the vocabulary", i));
  } else if (std::ranges::any_of(prompt.logit_rows, bad_row) || !std::ranges::is_sorted(prompt.logit_rows) ||
             prompt.logits.size() != prompt.logit_rows.size() * width ||
             (!prompt.last_logits.empty() && prompt.last_logits.size() != width)) {
    arrays.Fail(fmt::format("the logits of prompt {} do not have its shape", i));
  }
  for (const auto& [name, values] : prompt.hidden) {
    if (values.size() % prompt.ids.size() != 0)
      arrays.Fail(fmt::format("p{}.{} does not have its shape", i, name));
  }
}

std::vector<int32_t> AllRows(const std::vector<models::TokenId>& ids) {
  std::vector<int32_t> rows(ids.size());
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

GoldenPrompt ReadPrompt(Arrays& arrays, size_t i) {
  const std::string prefix = fmt::format("p{}.", i);
  GoldenPrompt prompt;
  prompt.ids = arrays.Read<int32_t>(prefix + "ids");
  prompt.logits = arrays.Read<float>(prefix + "logits");
  prompt.logit_rows = arrays.Find(prefix + "logit_rows") != nullptr
                          ? arrays.Read<int32_t>(prefix + "logit_rows")
                          : AllRows(prompt.ids);
  prompt.greedy = arrays.Read<int32_t>(prefix + "greedy");
  prompt.last_logits = arrays.Read<float>(prefix + "greedy_logits_last");
  for (const weights::SafetensorsEntry& entry : arrays.entries()) {
    if (entry.name.starts_with(prefix + "hidden.")) {
      prompt.hidden[entry.name.substr(prefix.size())] = arrays.Read<float>(entry.name);
    }
  }
  return prompt;
}

// A list of whole numbers, or nothing.
std::optional<std::vector<int32_t>> Ids(const Json& json) {
  if (!json.is_array()) return std::nullopt;
  std::vector<int32_t> ids;
  for (const Json& id : json) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > INT32_MAX) return std::nullopt;
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

}  // namespace

api::Result<GoldenFile> ReadGolden(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "golden.json";
  const auto json = ReadJson(path);
  if (!json) return std::unexpected(json.error());
  auto arrays = Arrays::Open(directory / "golden.safetensors");
  if (!arrays) return std::unexpected(arrays.error());

  GoldenFile golden;
  const auto vocab = json->find("vocab_size");
  if (vocab == json->end() || !vocab->is_number_unsigned() || vocab->get<uint64_t>() > kMaxVocab) {
    return Bad(path, "vocab_size is missing or not a vocabulary's size");
  }
  golden.vocab = vocab->get<int32_t>();
  const auto prompts = json->find("prompts");
  if (prompts == json->end() || !prompts->is_array()) return Bad(path, "prompts is missing or not a list");
  for (size_t i = 0; i < prompts->size(); ++i) {
    golden.prompts.push_back(ReadPrompt(*arrays, i));
    CheckPrompt(golden.prompts.back(), i, golden.vocab, *arrays);
    if (arrays->error()) return std::unexpected(*arrays->error());
    const Json& prompt = (*prompts)[i];
    if (!prompt.is_object() || !prompt.contains("ids") ||
        Ids(prompt.at("ids")) != golden.prompts.back().ids) {
      return Bad(path, fmt::format("the ids of prompt {} differ from golden.safetensors", i));
    }
  }
  return golden;
}

api::Result<GoldenFile> ReadQuantGolden(const std::filesystem::path& path, std::string_view type) {
  const auto json = ReadJson(path);
  if (!json) return std::unexpected(json.error());
  auto arrays = Arrays::Open(std::filesystem::path(path).replace_extension(".safetensors"));
  if (!arrays) return std::unexpected(arrays.error());

  const Json::json_pointer results(fmt::format("/types/{}/prompts", type));
  if (!json->contains(results) || !json->at(results).is_array() || !json->contains("prompt_ids") ||
      !json->at("prompt_ids").is_array()) {
    return Bad(path, fmt::format("it has no prompts for the type {}", type));
  }
  GoldenFile golden;
  for (size_t i = 0; i < json->at("prompt_ids").size() && i < json->at(results).size(); ++i) {
    const Json& result = json->at(results)[i];
    const auto ids = Ids(json->at("prompt_ids")[i]);
    const auto greedy = Ids(result.is_object() ? result.value("exact_greedy", Json()) : Json());
    const std::string name = fmt::format("{}.p{}.logits", type, i);
    GoldenPrompt prompt;
    prompt.logits = arrays->Read<float>(name);
    if (arrays->error()) return std::unexpected(*arrays->error());
    const auto& shape = arrays->Find(name)->shape;
    if (!ids || ids->empty() || !greedy || shape.empty() || shape.back() > kMaxVocab) {
      return Bad(path, fmt::format("prompt {} of the type {} is incomplete", i, type));
    }
    golden.vocab = static_cast<int32_t>(shape.back());
    prompt.ids = *ids;
    prompt.greedy = *greedy;
    prompt.logit_rows =
        shape.size() == 2 ? AllRows(*ids) : std::vector{static_cast<int32_t>(ids->size()) - 1};
    CheckPrompt(prompt, i, golden.vocab, *arrays);
    golden.prompts.push_back(std::move(prompt));
  }
  if (arrays->error()) return std::unexpected(*arrays->error());
  return golden;
}

}  // namespace quire::runner::golden
