#include "runner/models/config_reader.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace quire::runner::models {
namespace {

const nlohmann::ordered_json* Member(const nlohmann::ordered_json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

// "a/b/c" is member c of member b of member a.
const nlohmann::ordered_json* Lookup(const nlohmann::ordered_json& config, std::string_view path) {
  const nlohmann::ordered_json* at = &config;
  while (at != nullptr) {
    const size_t slash = path.find('/');
    at = Member(*at, path.substr(0, slash));
    if (slash == std::string_view::npos) break;
    path.remove_prefix(slash + 1);
  }
  return at;
}

// A value for a message: short, whatever the file holds.
std::string Shown(const nlohmann::ordered_json& value) {
  if (value.is_object() || value.is_array()) return fmt::format("an {}", value.type_name());
  constexpr size_t kLongest = 60;
  std::string text = value.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
  if (text.size() > kLongest) text.replace(kLongest, std::string::npos, "...");
  return text;
}

}  // namespace

ConfigReader::ConfigReader(const weights::ModelFiles& files) : files_(files) {
  if (gguf()) prefix_ = files.architecture() + ".";
}

const nlohmann::ordered_json* ConfigReader::FindOne(const std::string& name) const {
  if (gguf()) return Member(files_.config(), prefix_ + name);
  const nlohmann::ordered_json* text_config = Member(files_.config(), "text_config");
  if (text_config != nullptr) {
    if (const auto* value = Lookup(*text_config, name); value != nullptr) return value;
  }
  return Lookup(files_.config(), name);
}

const nlohmann::ordered_json* ConfigReader::Find(ConfigKey key) const {
  std::string_view names = gguf() ? key.gguf : key.hugging_face;
  const nlohmann::ordered_json* found = nullptr;
  while (!names.empty()) {
    const size_t bar = names.find('|');
    const std::string name(names.substr(0, bar));
    if (found == nullptr) found = FindOne(name);
    names_asked_.insert(name);
    names = bar == std::string_view::npos ? std::string_view() : names.substr(bar + 1);
  }
  return found;
}

const nlohmann::ordered_json* ConfigReader::FindOrNull(std::string_view name) const {
  if (gguf() || !files_.config().is_object()) return nullptr;
  const nlohmann::ordered_json* text = Member(files_.config(), "text_config");
  const nlohmann::ordered_json& config = text != nullptr && text->is_object() ? *text : files_.config();
  const auto found = config.find(name);
  return found == config.end() ? nullptr : &*found;
}

bool ConfigReader::SaysNull(std::string_view name) const {
  const nlohmann::ordered_json* found = FindOrNull(name);
  return found != nullptr && found->is_null();
}

std::string ConfigReader::Name(ConfigKey key) const {
  const std::string_view names = gguf() ? key.gguf : key.hugging_face;
  std::string name = prefix_;
  name += names.substr(0, names.find('|'));
  return name;
}

void ConfigReader::Fail(const std::string& reason) {
  if (error_) return;
  error_ = api::Error{api::ErrorCode::kBadModel, fmt::format("{}: {}", files_.path(), reason)};
}

void ConfigReader::FailMissing(ConfigKey key) { Fail(fmt::format("the configuration lacks {}", Name(key))); }

std::optional<int64_t> ConfigReader::WholeNumber(const nlohmann::ordered_json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    return number <= INT64_MAX ? std::optional(static_cast<int64_t>(number)) : std::nullopt;
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  return std::nullopt;
}

int64_t ConfigReader::Integer(ConfigKey key, int64_t low, int64_t high, std::optional<int64_t> fallback) {
  const auto* value = Find(key);
  if (value == nullptr) {
    if (!fallback) FailMissing(key);
    return fallback.value_or(low);
  }
  const std::optional<int64_t> number = WholeNumber(*value);
  if (number && *number >= low && *number <= high) return *number;
  Fail(fmt::format("{} is {}, not an integer in [{}, {}]", Name(key), Shown(*value), low, high));
  return low;
}

double ConfigReader::Positive(ConfigKey key, double high, std::optional<double> fallback) {
  const auto* value = Find(key);
  if (value == nullptr) {
    if (!fallback) FailMissing(key);
    return fallback.value_or(high);
  }
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  if (number > 0 && number <= high) return number;
  Fail(fmt::format("{} is {}, not a number in (0, {}]", Name(key), Shown(*value), high));
  return high;
}

bool ConfigReader::Boolean(ConfigKey key, bool fallback) {
  const auto* value = Find(key);
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  Fail(fmt::format("{} is {}, not true or false", Name(key), Shown(*value)));
  return fallback;
}

std::string ConfigReader::Text(ConfigKey key, std::string_view fallback) {
  const auto* value = Find(key);
  if (value == nullptr) return std::string(fallback);
  if (value->is_string()) return value->get<std::string>();
  Fail(fmt::format("{} is {}, not a string", Name(key), Shown(*value)));
  return std::string(fallback);
}

std::optional<std::vector<std::string>> ConfigReader::Texts(ConfigKey key, int32_t layers) {
  const auto* list = Find(key);
  if (list == nullptr) return std::nullopt;
  std::vector<std::string> texts(static_cast<size_t>(layers));
  if (!list->is_array() || list->size() != texts.size()) {
    Fail(fmt::format("{} is not a list of {} entries, one per layer", Name(key), layers));
    return texts;
  }
  for (size_t i = 0; i < texts.size(); ++i) {
    if (!(*list)[i].is_string()) {
      Fail(fmt::format("{}[{}] is not a string", Name(key), i));
    } else {
      texts[i] = (*list)[i].get<std::string>();
    }
  }
  return texts;
}

std::optional<std::vector<bool>> ConfigReader::Booleans(ConfigKey key, int32_t layers) {
  const auto* list = Find(key);
  if (list == nullptr) return std::nullopt;
  std::vector<bool> values(static_cast<size_t>(layers));
  if (!list->is_array() || list->size() != values.size()) {
    Fail(fmt::format("{} is not a list of {} entries, one per layer", Name(key), layers));
    return values;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const auto& value = (*list)[i];
    const std::optional<int64_t> number = gguf() ? WholeNumber(value) : std::nullopt;
    if (value.is_boolean()) {
      values[i] = value.get<bool>();
    } else if (number && (*number == 0 || *number == 1)) {
      values[i] = *number == 1;
    } else {
      Fail(fmt::format("{}[{}] is not true or false", Name(key), i));
    }
  }
  return values;
}

std::optional<std::vector<bool>> ConfigReader::Kinds(ConfigKey key, int32_t layers, std::string_view yes,
                                                     std::string_view no) {
  const auto texts = Texts(key, layers);
  if (!texts) return std::nullopt;
  std::vector<bool> kinds(texts->size());
  for (size_t i = 0; i < kinds.size(); ++i) {
    kinds[i] = (*texts)[i] == yes;
    if (!kinds[i] && (*texts)[i] != no) {
      Fail(fmt::format("{}[{}] is neither \"{}\" nor \"{}\"", Name(key), i, no, yes));
    }
  }
  return kinds;
}

std::vector<int64_t> ConfigReader::Integers(ConfigKey key, int32_t layers, int64_t low, int64_t high,
                                            std::optional<int64_t> fallback) {
  const auto count = static_cast<size_t>(layers);
  const auto* list = Find(key);
  if (list == nullptr || !list->is_array()) {
    return std::vector<int64_t>(count, Integer(key, low, high, fallback));
  }
  std::vector<int64_t> values(count, low);
  if (list->size() != count) {
    Fail(fmt::format("{} is not a list of {} numbers, one per layer", Name(key), layers));
    return values;
  }
  for (size_t i = 0; i < count; ++i) {
    const int64_t number = WholeNumber((*list)[i]).value_or(low - 1);
    if (number >= low && number <= high) {
      values[i] = number;
    } else {
      Fail(fmt::format("{}[{}] is not an integer in [{}, {}]", Name(key), i, low, high));
    }
  }
  return values;
}

std::vector<double> ConfigReader::Numbers(ConfigKey key, size_t count, double high, bool or_zero) {
  std::vector<double> values(count, high);
  const auto* list = Find(key);
  if (list == nullptr || !list->is_array() || list->size() != count) {
    Fail(fmt::format("{} is not a list of {} numbers", Name(key), count));
    return values;
  }
  for (size_t i = 0; i < count; ++i) {
    const double number = (*list)[i].is_number() ? (*list)[i].get<double>() : std::nan("");
    if (number <= high && (or_zero ? number >= 0 : number > 0)) {
      values[i] = number;
    } else {
      Fail(fmt::format("{}[{}] is not a number in (0, {}]", Name(key), i, high));
    }
  }
  return values;
}

}  // namespace quire::runner::models
