#include "runner/models/config_reader.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace quire::runner::models {
namespace {

const nlohmann::ordered_json* Member(const nlohmann::ordered_json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

const nlohmann::ordered_json* Lookup(const nlohmann::ordered_json& config, std::string_view key) {
  const size_t slash = key.find('/');
  if (slash == std::string_view::npos) return Member(config, key);
  const nlohmann::ordered_json* outer = Member(config, key.substr(0, slash));
  return outer == nullptr ? nullptr : Member(*outer, key.substr(slash + 1));
}

// A value for a message: short, whatever the file holds.
std::string Shown(const nlohmann::ordered_json& value) {
  if (value.is_object() || value.is_array()) return fmt::format("an {}", value.type_name());
  constexpr size_t kLongest = 60;
  std::string text = value.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

}  // namespace

const nlohmann::ordered_json* ConfigReader::Find(Keys keys) const {
  for (const std::string_view key : keys) {
    if (const auto* value = Lookup(files_.config(), key); value != nullptr) return value;
  }
  return nullptr;
}

void ConfigReader::Fail(const std::string& reason) {
  if (error_) return;
  error_ = api::Error{api::ErrorCode::kBadModel, fmt::format("{}: {}", files_.path(), reason)};
}

void ConfigReader::FailMissing(Keys keys) { Fail(fmt::format("the configuration lacks {}", *keys.begin())); }

std::optional<int64_t> ConfigReader::WholeNumber(const nlohmann::ordered_json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    return number <= INT64_MAX ? std::optional(static_cast<int64_t>(number)) : std::nullopt;
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  return std::nullopt;
}

int64_t ConfigReader::Integer(Keys keys, int64_t low, int64_t high, std::optional<int64_t> fallback) {
  const auto* value = Find(keys);
  if (value == nullptr) {
    if (!fallback) FailMissing(keys);
    return fallback.value_or(low);
  }
  const std::optional<int64_t> number = WholeNumber(*value);
  if (number && *number >= low && *number <= high) return *number;
  Fail(fmt::format("{} is {}, not a whole number in [{}, {}]", *keys.begin(), Shown(*value), low, high));
  return low;
}

double ConfigReader::Positive(Keys keys, double high, std::optional<double> fallback) {
  const auto* value = Find(keys);
  if (value == nullptr) {
    if (!fallback) FailMissing(keys);
    return fallback.value_or(high);
  }
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  if (number > 0 && number <= high) return number;
  Fail(fmt::format("{} is {}, not a number in (0, {}]", *keys.begin(), Shown(*value), high));
  return high;
}

bool ConfigReader::Boolean(Keys keys, bool fallback) {
  const auto* value = Find(keys);
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  Fail(fmt::format("{} is {}, not true or false", *keys.begin(), Shown(*value)));
  return fallback;
}

std::string ConfigReader::Text(Keys keys, std::string_view fallback) {
  const auto* value = Find(keys);
  if (value == nullptr) return std::string(fallback);
  if (value->is_string()) return value->get<std::string>();
  Fail(fmt::format("{} is {}, not a string", *keys.begin(), Shown(*value)));
  return std::string(fallback);
}

}  // namespace quire::runner::models
