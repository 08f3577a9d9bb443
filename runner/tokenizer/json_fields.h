// Typed access to the fields of a tokenizer.json. Errors are kBadModel and name the field.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"

namespace quire::runner::tokenizer {

inline std::unexpected<api::Error> BadField(std::string_view path, std::string_view reason) {
  std::string message("tokenizer.json: ");
  message.append(path).append(": ").append(reason);
  return api::Fail(api::ErrorCode::kBadModel, std::move(message));
}

// The member, or null when `object` is no object or has no such member or has null there.
const nlohmann::json* Member(const nlohmann::json& object, const char* key);

// A boolean member; `fallback` when absent.
api::Result<bool> BoolMember(const nlohmann::json& object, const char* key, bool fallback,
                             std::string_view path);

// A string member that must be there. The view lives as long as `object`.
api::Result<std::string_view> StringMember(const nlohmann::json& object, const char* key,
                                           std::string_view path);

// A token id: an integer in [0, 2^31).
api::Result<int32_t> TokenIdOf(const nlohmann::json& value, std::string_view path);

struct FieldNode {
  const nlohmann::json* value = nullptr;
  std::string path;
};

// The leaves of nested {"type": "Sequence", <list>: [...]}, in order, each with its path; each has a string
// "type".
api::Result<std::vector<FieldNode>> FlattenSequence(const nlohmann::json& root, std::string path,
                                                    const char* list);

// Whether more than `depth_max` brackets are open at once, outside of strings. The parser takes memory for
// each, far more than the byte it is.
bool NestsDeeper(std::string_view text, size_t depth_max);

}  // namespace quire::runner::tokenizer
