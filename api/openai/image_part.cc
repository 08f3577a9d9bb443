#include "api/openai/image_part.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

namespace quire::api::openai {

std::optional<Result<ImageFile>> ImageOf(Fields& part, std::string_view type) {
  constexpr std::array<std::string_view, 3> kTypes = {"image_url", "input_image", "computer_screenshot"};
  constexpr std::string_view kName = "image_url";
  if (std::ranges::find(kTypes, type) == kTypes.end()) return std::nullopt;
  part.Find("detail");
  const Json* value = part.Find(kName);
  if (value == nullptr && part.Has("file_id")) {
    return Fail(ErrorCode::kUnsupported, "file_id: this server keeps no files; send the image as a data URL",
                part.PathOf("file_id"));
  }
  if (value == nullptr || !value->is_object()) return ReadImageField(part, kName);
  Fields object(*value, part.PathOf(kName), part.error());
  return ReadImageField(object, "url");
}

}  // namespace quire::api::openai
