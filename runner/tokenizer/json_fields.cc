#include "runner/tokenizer/json_fields.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

namespace quire::runner::tokenizer {

using nlohmann::json;

namespace {
constexpr size_t kStepsMax = 64;
}

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

api::Result<std::vector<FieldNode>> FlattenSequence(const json& root, std::string path, const char* list) {
  std::vector<FieldNode> leaves;
  std::vector<FieldNode> open;
  open.push_back({&root, std::move(path)});
  while (!open.empty()) {
    FieldNode node = std::move(open.back());
    open.pop_back();
    auto type = StringMember(*node.value, "type", node.path);
    if (!type) return std::unexpected(std::move(type.error()));
    if (*type != "Sequence") {
      leaves.push_back(std::move(node));
      continue;
    }
    const json* members = Member(*node.value, list);
    const std::string list_path = fmt::format("{}.{}", node.path, list);
    if (members == nullptr || !members->is_array()) return BadField(list_path, "not an array");
    if (members->size() + leaves.size() + open.size() > kStepsMax)
      return BadField(list_path, "too many steps");
    for (size_t i = members->size(); i > 0; --i) {
      open.push_back({&(*members)[i - 1], fmt::format("{}[{}]", list_path, i - 1)});
    }
  }
  return leaves;
}

bool NestsDeeper(std::string_view text, size_t depth_max) {
  size_t depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > depth_max) return true;
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return false;
}

}  // namespace quire::runner::tokenizer
