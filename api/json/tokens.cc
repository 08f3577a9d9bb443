#include "api/json/tokens.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "api/json/fields.h"

namespace quire::api {

std::optional<std::vector<TokenId>> AsTokenIds(const Json& value) {
  if (!value.is_array()) return std::nullopt;
  std::vector<TokenId> tokens;
  tokens.reserve(value.size());
  for (const Json& one : value) {
    const auto token = AsInteger(one);
    if (!token || *token < 0 || *token > std::numeric_limits<TokenId>::max()) return std::nullopt;
    tokens.push_back(static_cast<TokenId>(*token));
  }
  return tokens;
}

}  // namespace quire::api
