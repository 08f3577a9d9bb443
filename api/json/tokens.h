// Token ids in request bodies.
#pragma once

#include <optional>
#include <vector>

#include "api/base/ids.h"
#include "api/json/type.h"

namespace quire::api {

// An array of integers that could be token ids, or nothing. Whether a model has them only its runner knows.
std::optional<std::vector<TokenId>> AsTokenIds(const Json& value);

}  // namespace quire::api
