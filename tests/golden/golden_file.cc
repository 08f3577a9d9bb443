#include "tests/golden/golden_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <utility>

#include "tests/golden/golden_arrays.h"

namespace quire::runner::golden {
namespace {

using Json = nlohmann::ordered_json;

constexpr int32_t kMaxVocab = 1 << 24;

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

// The reference keeps a column of a convolution's inputs that no later token needs.
std::vector<float> WithoutFirstColumn(const std::vector<float>& values, int64_t columns) {
  std::vector<float> kept;
  for (size_t i = 0; i < values.size(); ++i) {
    if (i % static_cast<size_t>(columns) != 0) kept.push_back(values[i]);
  }
  return kept;
}

// "p3.state@40.layer2.k".
void ReadState(Arrays& arrays, const std::string& prefix, const std::string& name, GoldenPrompt* prompt) {
  if (!name.starts_with(prefix)) return;
  size_t offset = 0;
  const char* const begin = name.data() + prefix.size();
  const auto [end, error] = std::from_chars(begin, name.data() + name.size(), offset);
  if (error != std::errc() || *end != '.' || offset == 0 || offset > prompt->ids.size()) {
    return arrays.Fail(fmt::format("{} is not of an offset in its prompt", name));
  }
  GoldenState state{.shape = arrays.Find(name)->shape, .values = arrays.Floats(name)};
  if (state.shape.empty() || std::ranges::count(state.shape, 0) != 0) {
    return arrays.Fail(fmt::format("{} is empty", name));
  }
  if (name.ends_with(".conv")) {
    state.values = WithoutFirstColumn(state.values, state.shape.back());
    --state.shape.back();
  }
  prompt->states[offset][end + 1] = std::move(state);
}

GoldenPrompt ReadPrompt(Arrays& arrays, size_t i) {
  const std::string prefix = fmt::format("p{}.", i);
  GoldenPrompt prompt;
  prompt.ids = arrays.Integers(prefix + "ids");
  prompt.logits = arrays.Floats(prefix + "logits");
  prompt.logit_rows = arrays.Find(prefix + "logit_rows") != nullptr ? arrays.Integers(prefix + "logit_rows")
                                                                    : AllRows(prompt.ids);
  prompt.greedy = arrays.Integers(prefix + "greedy");
  prompt.last_logits = arrays.Floats(prefix + "greedy_logits_last");
  for (const weights::SafetensorsEntry& entry : arrays.entries()) {
    if (entry.name.starts_with(prefix + "hidden.")) {
      prompt.hidden[entry.name.substr(prefix.size())] = arrays.Floats(entry.name);
    }
    ReadState(arrays, prefix + "state@", entry.name, &prompt);
  }
  return prompt;
}

}  // namespace

api::Result<GoldenFile> ReadGolden(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "golden.json";
  const auto json = ReadGoldenJson(path);
  if (!json) return std::unexpected(json.error());
  auto arrays = Arrays::Open(directory / "golden.safetensors");
  if (!arrays) return std::unexpected(arrays.error());

  GoldenFile golden;
  const auto vocab = json->find("vocab_size");
  if (vocab == json->end() || !vocab->is_number_unsigned() || vocab->get<uint64_t>() > kMaxVocab) {
    return Bad(path, "vocab_size is missing or not a vocabulary's size");
  }
  golden.vocab = vocab->get<int32_t>();
  golden.normalized = json->value("normalized", Json(false)) == Json(true);
  const auto prompts = json->find("prompts");
  if (prompts == json->end() || !prompts->is_array()) return Bad(path, "prompts is missing or not a list");
  for (size_t i = 0; i < prompts->size(); ++i) {
    golden.prompts.push_back(ReadPrompt(*arrays, i));
    CheckPrompt(golden.prompts.back(), i, golden.vocab, *arrays);
    if (arrays->error()) return std::unexpected(*arrays->error());
    const Json& prompt = (*prompts)[i];
    if (!prompt.is_object() || !prompt.contains("ids") ||
        Ids(prompt.at("ids"), golden.vocab) != golden.prompts.back().ids) {
      return Bad(path, fmt::format("the ids of prompt {} differ from golden.safetensors", i));
    }
  }
  return golden;
}

namespace {

bool PeerLogprobs(const Json& result, int32_t vocab, std::vector<PeerLogprob>* to) {
  const Json list = result.value("llama_cpp_top20", Json::array());
  if (!list.is_array()) return false;
  for (const Json& entry : list) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_number_integer() || !entry[1].is_number())
      return false;
    const auto token = entry[0].get<int64_t>();
    if (token < 0 || token >= vocab) return false;
    to->push_back({static_cast<models::TokenId>(token), entry[1].get<float>()});
  }
  return true;
}

}  // namespace

api::Result<GoldenFile> ReadQuantGolden(const std::filesystem::path& path, std::string_view type) {
  const auto json = ReadGoldenJson(path);
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
    const auto ids = Ids(json->at("prompt_ids")[i], kMaxVocab);
    const auto greedy = Ids(result.is_object() ? result.value("exact_greedy", Json()) : Json(), kMaxVocab);
    const std::string name = fmt::format("{}.p{}.logits", type, i);
    GoldenPrompt prompt;
    prompt.logits = arrays->Floats(name);
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
    if (!PeerLogprobs(result, golden.vocab, &prompt.peer)) {
      return Bad(path, fmt::format("llama_cpp_top20 of prompt {} of the type {} is not a list", i, type));
    }
    CheckPrompt(prompt, i, golden.vocab, *arrays);
    golden.prompts.push_back(std::move(prompt));
  }
  if (arrays->error()) return std::unexpected(*arrays->error());
  return golden;
}

}  // namespace quire::runner::golden
