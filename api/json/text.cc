#include "api/json/text.h"

#include <nlohmann/json.hpp>
#include <string>

namespace quire::api {

bool IsText(const Json& value, std::string_view text) {
  return value.is_string() && value.get_ref<const std::string&>() == text;
}

}  // namespace quire::api
