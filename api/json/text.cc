#include "api/json/text.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

namespace quire::api {

bool IsText(const Json& value, std::string_view text) {
  return value.is_string() && value.get_ref<const std::string&>() == text;
}

std::string TakeText(const Json& value) {
  return std::move(const_cast<Json&>(value).get_ref<std::string&>());
}

void AppendText(std::string& text, std::string more) {
  if (text.empty()) {
    text = std::move(more);
  } else {
    text += more;
  }
}

}  // namespace quire::api
