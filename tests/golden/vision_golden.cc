#include "tests/golden/vision_golden.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/golden/golden_arrays.h"

namespace quire::runner::golden {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kVocabularyMax = 1 << 24;

std::unexpected<api::Error> BadGolden(const std::filesystem::path& path, const std::string& reason) {
  return api::Fail(api::ErrorCode::kBadModel, fmt::format("{}: {}", path.string(), reason));
}

int64_t WholeNumber(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_number_unsigned() && found->get<uint64_t>() < kVocabularyMax
             ? found->get<int64_t>()
             : -1;
}

// What only the stages before the text model need may be missing.
VisionCase CaseOf(const Json& entry, int32_t vocab) {
  VisionCase one;
  const Json ids = entry.is_object() ? entry.value("ids", Json()) : Json();
  one.ids = Ids(ids, vocab).value_or(std::vector<int32_t>());
  one.image_tokens = WholeNumber(entry, "n_image_tokens");
  if (!entry.is_object()) return one;
  const Json rendered = entry.value("rendered", Json());
  if (rendered.is_string()) one.rendered = rendered.get<std::string>();
  for (const int32_t picture :
       Ids(entry.value("images", Json()), kVocabularyMax).value_or(std::vector<int32_t>())) {
    one.pictures.push_back(static_cast<size_t>(picture));
  }
  return one;
}

std::vector<std::string> PicturesOf(const Json& golden) {
  std::vector<std::string> names;
  const Json list = golden.value("images", Json());
  for (const Json& name : list.is_array() ? list : Json::array()) {
    if (name.is_string()) names.push_back(name.get<std::string>());
  }
  return names;
}

// The id that stands for the rows of images: of the ids that are as often in each case as it has such rows,
// the one that the configuration beside names, if there are several.
std::optional<models::TokenId> ImageToken(const std::filesystem::path& directory,
                                          const std::vector<VisionCase>& cases) {
  std::map<models::TokenId, size_t> fits;  // in how many cases
  for (const VisionCase& one : cases) {
    std::map<models::TokenId, int64_t> counts;
    for (const models::TokenId id : one.ids) ++counts[id];
    for (const auto& [id, count] : counts) fits[id] += count == one.image_tokens ? 1 : 0;
  }
  std::erase_if(fits, [&](const auto& fit) { return fit.second != cases.size(); });
  if (fits.size() > 1) {
    const auto config = ReadGoldenJson(directory / "config.json");
    const Json none;
    for (const char* key : {"image_token_id", "image_token_index"}) {
      const auto id = static_cast<models::TokenId>(WholeNumber(config ? *config : none, key));
      if (fits.contains(id)) return id;
    }
  }
  return fits.size() == 1 ? std::optional(fits.begin()->first) : std::nullopt;
}

// Rows of `all` [tokens, width] from `first` on.
std::vector<float> RowsOf(const std::vector<float>& all, size_t first, size_t rows, size_t width) {
  const auto begin = all.begin() + static_cast<ptrdiff_t>(first * width);
  return {begin, begin + static_cast<ptrdiff_t>(rows * width)};
}

// What the reference's tower made of the images, on the runs of their token in the prompt.
void AddImageRows(Arrays& arrays, const std::string& prefix, models::TokenId image_token, int64_t tokens,
                  GoldenPrompt* prompt) {
  std::vector<std::vector<float>> planes = {arrays.Floats(prefix + "image_embeds")};
  for (size_t k = 0; arrays.Find(fmt::format("{}deepstack{}", prefix, k)) != nullptr; ++k) {
    planes.push_back(arrays.Floats(fmt::format("{}deepstack{}", prefix, k)));
  }
  const auto count = static_cast<size_t>(std::max<int64_t>(tokens, 1));
  const size_t width = planes[0].size() / count;
  if (width == 0 || std::ranges::any_of(planes, [&](const auto& p) { return p.size() != count * width; })) {
    return arrays.Fail(prefix + "image_embeds or a deepstack does not have a row for each token of an image");
  }
  size_t done = 0;
  for (size_t i = 0; i < prompt->ids.size();) {
    if (prompt->ids[i] != image_token) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < prompt->ids.size() && prompt->ids[end] == image_token) ++end;
    ImageRows rows{.begin = static_cast<int32_t>(i),
                   .end = static_cast<int32_t>(end),
                   .embeddings = RowsOf(planes[0], done, end - i, width),
                   .behind_layers = {}};
    for (size_t k = 1; k < planes.size(); ++k) {
      rows.behind_layers.push_back(RowsOf(planes[k], done, end - i, width));
    }
    prompt->images.rows.push_back(std::move(rows));
    done += end - i;
    i = end;
  }
}

// "c0.position_ids" [3, ids]; in some references with a first row of plain positions, or that row alone.
void AddPositionIds(Arrays& arrays, const std::string& name, GoldenPrompt* prompt) {
  if (arrays.Find(name) == nullptr) return;
  const std::vector<int32_t> all = arrays.Integers(name);
  const size_t length = prompt->ids.size();
  if (all.size() == length) return;
  if (all.size() != 3 * length && all.size() != 4 * length) {
    return arrays.Fail(name + " is not of three positions for each id");
  }
  const size_t first = all.size() - 3 * length;
  for (size_t axis = 0; axis < 3; ++axis) {
    const auto begin = all.begin() + static_cast<ptrdiff_t>(first + axis * length);
    prompt->images.positions[axis].assign(begin, begin + static_cast<ptrdiff_t>(length));
  }
}

GoldenPrompt ReadCase(Arrays& arrays, size_t i, const VisionCase& one, models::TokenId image_token,
                      size_t vocab) {
  const std::string prefix = fmt::format("c{}.", i);
  GoldenPrompt prompt;
  prompt.ids = one.ids;
  prompt.logits = arrays.Floats(prefix + "logits");
  prompt.greedy = arrays.Integers(prefix + "greedy");
  const size_t rows = prompt.logits.size() / vocab;
  const bool fits = prompt.logits.size() == rows * vocab && rows > 0 && rows <= one.ids.size();
  if (!fits || arrays.Integers(prefix + "input_ids") != one.ids ||
      std::ranges::any_of(prompt.greedy,
                          [&](auto id) { return id < 0 || static_cast<size_t>(id) >= vocab; })) {
    arrays.Fail(fmt::format("the ids, logits or greedy tokens of case {} do not have its shape", i));
    return prompt;
  }
  prompt.logit_rows.resize(rows);  // the last ones
  std::iota(prompt.logit_rows.begin(), prompt.logit_rows.end(), static_cast<int32_t>(one.ids.size() - rows));
  AddImageRows(arrays, prefix, image_token, one.image_tokens, &prompt);
  AddPositionIds(arrays, prefix + "position_ids", &prompt);
  const std::string hidden = prefix + "hidden.lm_";
  for (const weights::SafetensorsEntry& entry : arrays.entries()) {
    if (!entry.name.starts_with(hidden)) continue;
    prompt.hidden["hidden." + entry.name.substr(hidden.size())] = arrays.Floats(entry.name);
  }
  return prompt;
}

}  // namespace

bool IsVisionGolden(const std::filesystem::path& directory) {
  const auto json = ReadGoldenJson(directory / "golden.json");
  return json && json->is_object() && json->value("kind", Json()) == "vision";
}

api::Result<VisionGolden> ReadVisionGolden(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "golden.json";
  const auto json = ReadGoldenJson(path);
  if (!json) return std::unexpected(json.error());
  auto arrays = Arrays::Open(directory / "golden.safetensors");
  if (!arrays) return std::unexpected(arrays.error());
  VisionGolden golden{.text = {}, .cases = {}, .pictures = {}, .arrays = *std::move(arrays)};
  const int64_t vocab = WholeNumber(*json, "vocab_size");
  const Json list = json->is_object() ? json->value("cases", Json()) : Json();
  if (vocab < 1 || !list.is_array() || list.empty()) {
    return BadGolden(path, "vocab_size or cases is missing");
  }
  golden.text.vocab = static_cast<int32_t>(vocab);
  golden.pictures = PicturesOf(*json);
  for (const Json& entry : list) {
    golden.cases.push_back(CaseOf(entry, golden.text.vocab));
    const VisionCase& one = golden.cases.back();
    if (one.ids.empty() || one.image_tokens < 1 || std::ranges::any_of(one.pictures, [&](size_t picture) {
          return picture >= golden.pictures.size();
        })) {
      return BadGolden(path,
                       fmt::format("the ids, n_image_tokens or images of case {} are not what they should be",
                                   golden.cases.size() - 1));
    }
  }
  const auto image_token = ImageToken(directory, golden.cases);
  if (!image_token) return BadGolden(path, "no id is in each case as often as n_image_tokens says");
  golden.image_token = *image_token;
  for (size_t i = 0; i < golden.cases.size(); ++i) {
    golden.text.prompts.push_back(
        ReadCase(golden.arrays, i, golden.cases[i], *image_token, static_cast<size_t>(vocab)));
    if (golden.arrays.error()) return std::unexpected(*golden.arrays.error());
  }
  return golden;
}

}  // namespace quire::runner::golden
