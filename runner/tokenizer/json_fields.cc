#include "runner/tokenizer/json_fields.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace quire::runner::tokenizer {

using nlohmann::json;

const json* Member(const json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

api::Result<bool> BoolMember(const json& object, const char* key, bool fallback, std::string_view path) {
  const json* member = Member(object, key);
  if (member == nullptr) return fallback;
  if (!member->is_boolean()) return BadField(fmt::format("{}.{}", path, key), "not a boolean");
  return member->get<bool>();
}

api::Result<std::string_view> StringMember(const json& object, const char* key, std::string_view path) {
  const json* member = Member(object, key);
  if (member == nullptr || !member->is_string()) {
    return BadField(fmt::format("{}.{}", path, key), "not a string");
  }
  return std::string_view(member->get_ref<const std::string&>());
}

api::Result<int32_t> TokenIdOf(const json& value, std::string_view path) {
  constexpr uint64_t kMax = std::numeric_limits<int32_t>::max();
  if (!value.is_number_unsigned() || value.get<uint64_t>() > kMax) {
    return BadField(path, "not a token id");
  }
  return static_cast<int32_t>(value.get<uint64_t>());
}

}  // namespace quire::runner::tokenizer
