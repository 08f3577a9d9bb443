#include "api/json/image_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/base/ascii.h"
#include "api/base/base64.h"
#include "api/json/text.h"

namespace quire::api {
namespace {

constexpr std::string_view kData = "data", kBase64 = ";base64";
constexpr size_t kSchemeBytesMax = 32, kHeaderBytesMax = 256;

// What is before the colon of a URL; empty: it is none. Base64 has no colon.
std::string SchemeOf(std::string_view text) {
  const size_t colon = text.substr(0, kSchemeBytesMax).find(':');
  return colon == std::string_view::npos ? std::string() : AsciiLower(text.substr(0, colon));
}

Result<void> Decode(std::string& text) {
  size_t from = 0;
  const std::string scheme = SchemeOf(text);
  if (scheme == kData) {
    const size_t comma = text.find(',');
    const std::string header = AsciiLower(std::string_view(text).substr(0, std::min(comma, kHeaderBytesMax)));
    if (comma == std::string::npos || !header.ends_with(kBase64)) {
      return Fail(ErrorCode::kInvalidArgument, "must have base64: data:image/png;base64,...");
    }
    from = comma + 1;
  } else if (!scheme.empty()) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{} URLs are not fetched; send the image as a data URL", scheme));
  }
  if (auto decoded = DecodeBase64(text, from); !decoded) return decoded;
  if (text.empty()) return Fail(ErrorCode::kInvalidArgument, "is empty");
  return {};
}

}  // namespace

Result<ImageFile> ReadImage(std::string text, const std::string& field) {
  const auto decoded = Decode(text);
  if (decoded) {
    text.shrink_to_fit();
    return std::make_shared<const std::string>(std::move(text));
  }
  const Error& error = decoded.error();
  const bool refused = error.code == ErrorCode::kUnsupported;
  const std::string named = refused ? field + ": " : fmt::format("field \"{}\" ", field);
  return Fail(error.code, named + error.message, field);
}

Result<ImageFile> ReadImageField(Fields& fields, std::string_view name) {
  const Json* value = fields.Find(name);
  const std::string path = fields.PathOf(name);
  if (value != nullptr && value->is_string()) return ReadImage(TakeText(*value), path);
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("field \"{}\" is required and must be of type string", path), path);
}

}  // namespace quire::api
