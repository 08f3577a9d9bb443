#include "api/json/option_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "api/base/ascii.h"
#include "api/base/limits.h"
#include "api/base/parse_integer.h"
#include "api/json/read.h"
#include "api/json/tokens.h"

namespace quire::api {
namespace {

template <class T>
void Read(Fields& fields, const OptionRow& row, std::optional<T>& option) {
  if constexpr (std::is_same_v<T, bool>) {
    fields.Get(row.name, option);
  } else {
    fields.Get(row.name, option, row.Min<T>(), row.Max<T>());
  }
}

void ReadStop(Fields& fields, std::string_view name, std::optional<std::vector<std::string>>& option) {
  const Json* value = fields.Find(name);
  if (value == nullptr) return;
  const Json list = value->is_array() ? *value : Json::array({*value});
  std::vector<std::string> stop;
  size_t bytes = 0;
  for (const Json& text : list) {
    if (!text.is_string()) return fields.Reject(name, "must be of type string or array of strings");
    bytes += text.get_ref<const std::string&>().size();
    if (!text.get_ref<const std::string&>().empty()) stop.push_back(text.get<std::string>());
    if (stop.size() > kStopStringsMax || bytes > kStopBytesMax) {
      return fields.Reject(
          name, fmt::format("must contain at most {} strings of {} bytes", kStopStringsMax, kStopBytesMax));
    }
  }
  option = std::move(stop);
}

void Read(Fields& fields, const OptionRow& row, std::optional<std::vector<std::string>>& option) {
  ReadStop(fields, row.name, option);
}

// {"token id": -100 to 100}
void Read(Fields& fields, const OptionRow& row, std::optional<std::vector<LogitBias>>& option) {
  const Json* value = fields.FindObject(row.name);
  if (value == nullptr) return;
  if (value->size() > kLogitBiasesMax) {
    return fields.Reject(row.name, fmt::format("must contain at most {} tokens", kLogitBiasesMax));
  }
  Fields biases(*value, fields.PathOf(row.name), fields.error());
  std::vector<LogitBias> list;
  for (const auto& [key, unused] : value->get_ref<const Json::object_t&>()) {
    const auto token = ParseInteger<TokenId>(key);
    if (!token || *token < 0) return biases.Reject(key, "is not a token id");
    LogitBias bias{.token = *token};
    if (biases.Get(key, bias.bias, -kLogitBiasMax, kLogitBiasMax)) list.push_back(bias);
  }
  option = std::move(list);
}

void Read(Fields& fields, const OptionRow& row, std::optional<std::vector<TokenId>>& option) {
  const Json* value = fields.FindArray(row.name);
  if (value == nullptr) return;
  auto tokens = AsTokenIds(*value);
  if (value->size() > kStopTokensMax || (!tokens && !value->empty())) {
    return fields.Reject(row.name, fmt::format("must contain at most {} token ids", kStopTokensMax));
  }
  option = tokens ? *std::move(tokens) : std::vector<TokenId>();
}

// Clients send them; they control how other servers load models and have no effect here. docs/api.md lists
// them.
constexpr auto kIgnoredIntegers =
    std::to_array<std::string_view>({"num_batch", "num_gpu", "main_gpu", "num_thread"});
constexpr auto kIgnoredNumbers = std::to_array<std::string_view>({"tfs_z"});
constexpr auto kIgnoredBooleans = std::to_array<std::string_view>(
    {"use_mmap", "use_mlock", "low_vram", "f16_kv", "logits_all", "vocab_only", "numa", "penalize_newline"});

template <class T>
void CheckEach(Fields& fields, std::span<const std::string_view> names) {
  T ignored{};
  for (const std::string_view name : names) fields.Get(name, ignored);
}

bool IsKnown(std::string_view name) {
  const auto equal = [name](std::string_view known) { return EqualIgnoringCase(known, name); };
  bool known = std::ranges::any_of(kIgnoredIntegers, equal) || std::ranges::any_of(kIgnoredNumbers, equal) ||
               std::ranges::any_of(kIgnoredBooleans, equal);
  VisitOptions([&](const OptionRow& row) { known = known || (row.in_options() && equal(row.name)); });
  return known;
}

// As Go's strconv reads it; null: it is none.
template <class T>
Json FromText(std::string_view text) {
  if constexpr (std::is_same_v<T, bool>) {
    constexpr auto kTrue = std::to_array<std::string_view>({"1", "t", "T", "true", "TRUE", "True"});
    constexpr auto kFalse = std::to_array<std::string_view>({"0", "f", "F", "false", "FALSE", "False"});
    if (std::ranges::find(kTrue, text) != kTrue.end()) return true;
    if (std::ranges::find(kFalse, text) != kFalse.end()) return false;
    return nullptr;
  } else {
    using Number = std::conditional_t<std::is_integral_v<T>, int64_t, double>;
    if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
    Number number{};
    const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool whole = read.ec == std::errc() && read.ptr == text.data() + text.size();
    return whole && std::isfinite(static_cast<double>(number)) ? Json(number) : Json();
  }
}

template <class T>
void ReadText(Json& value) {
  if constexpr (std::is_arithmetic_v<T>) {
    const bool number = std::is_same_v<T, bool> && value.is_number_integer();
    if (!value.is_string() && !number) return;
    Json read = FromText<T>(number ? DumpJson(value) : value.get<std::string>());
    if (!read.is_null()) value = std::move(read);
  }
}

void ReadAll(const Json& object, FirstError& error, Options& options, std::vector<std::string>& unknown) {
  constexpr size_t kUnknownMax = 16;  // for a log line; the rest is as uninteresting
  Fields fields(object, "options", error, Noun::kOption);
  if (!fields.ok()) return;
  VisitOptions(
      [&fields](const OptionRow& row, auto& option) {
        if (row.in_options()) Read(fields, row, option);
      },
      options);
  CheckEach<int32_t>(fields, kIgnoredIntegers);
  CheckEach<float>(fields, kIgnoredNumbers);
  CheckEach<bool>(fields, kIgnoredBooleans);
  for (const auto& [name, value] : object.get_ref<const Json::object_t&>()) {
    if (unknown.size() < kUnknownMax && !IsKnown(name)) unknown.push_back(name);
  }
}

constexpr std::string_view kParameter = "PARAMETER";

bool IsSampling(std::string_view name) {
  bool known = false;
  VisitOptions([&](const OptionRow& row) { known = known || row.name == name; });
  return known && name != "num_ctx" && name != "num_predict" && name != "num_keep";
}

// A float as its shortest decimal number: 0.6 and not 0.6000000238418579.
template <class T>
Json ShortJson(const T& value) {
  if constexpr (std::is_same_v<T, float>) {
    double number = 0;
    const std::string text = fmt::format("{}", value);
    std::from_chars(text.data(), text.data() + text.size(), number);
    return number;
  } else {
    return value;
  }
}

}  // namespace

Result<std::string> ReadTextsOfOptions(std::string_view json_object) {
  auto options = ReadJson(json_object);
  if (!options) return std::unexpected(options.error());
  if (!options->is_object()) return std::string(json_object);
  const Options none;
  for (auto& [name, value] : options->get_ref<Json::object_t&>()) {
    const auto is = [&name](std::string_view known) { return EqualIgnoringCase(known, name); };
    VisitOptions(
        [&value, &is]<class T>(const OptionRow& row, const std::optional<T>&) {
          if (row.in_options() && is(row.name)) ReadText<T>(value);
        },
        none);
    if (std::ranges::any_of(kIgnoredIntegers, is)) ReadText<int32_t>(value);
    if (std::ranges::any_of(kIgnoredNumbers, is)) ReadText<float>(value);
    if (std::ranges::any_of(kIgnoredBooleans, is)) ReadText<bool>(value);
  }
  return DumpJson(*options);
}

void GetOptions(Fields& body, Options& options, std::vector<std::string>& unknown) {
  if (const Json* object = body.FindObject("options")) ReadAll(*object, body.error(), options, unknown);
}

void GetOpenAiOptions(Fields& body, Options& options) {
  VisitOptions([&body](const OptionRow& row, auto& option) { Read(body, row, option); }, options);
}

void GetOption(Fields& fields, std::string_view name, Options& options) {
  VisitOptions(
      [&](const OptionRow& row, auto& option) {
        if (row.name == name) Read(fields, row, option);
      },
      options);
}

void GetStop(Fields& fields, std::string_view name, Options& options) {
  ReadStop(fields, name, options.stop);
}

Result<ParsedOptions> ParseOptions(std::string_view json_object) {
  const auto object = ReadJson(json_object);
  if (!object) return std::unexpected(object.error());
  ParsedOptions parsed;
  FirstError error;
  ReadAll(*object, error, parsed.options, parsed.unknown);
  if (error) return std::unexpected(std::move(*error));
  return parsed;
}

std::string DumpOptions(const Options& options) {
  Json object = Json::object();
  VisitOptions(
      [&object]<class T>(const OptionRow& row, const std::optional<T>& option) {
        if constexpr (!std::is_same_v<T, std::vector<LogitBias>>) {
          if (option && row.in_options()) object[std::string(row.name)] = ShortJson(*option);
        }
      },
      options);
  return object.empty() ? std::string() : DumpJson(object);
}

void ApplySampling(std::string_view json_object, GenerationParams& params) {
  if (json_object.empty()) return;
  if (const auto parsed = ParseOptions(json_object)) Apply(parsed->options, params);
}

std::string SamplingSources(std::string_view recommended, std::string_view source,
                            std::string_view parameters) {
  Json sources = Json::object();
  for (const auto& [text, from] : {std::pair(recommended, source), std::pair(parameters, kParameter)}) {
    const auto object = ReadJson(text.empty() ? "{}" : text);
    if (!object || !object->is_object()) continue;
    for (const auto& [name, value] : object->get_ref<const Json::object_t&>()) {
      if (!IsSampling(name)) continue;
      Json entry = {{"value", value}, {"from", from}};
      const auto known = sources.find(name);
      (known != sources.end() ? *known : sources[name]) = std::move(entry);
    }
  }
  return sources.empty() ? std::string() : DumpJson(sources);
}

}  // namespace quire::api
