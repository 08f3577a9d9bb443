// Images as clients write them into requests.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "api/base/error.h"
#include "api/json/fields.h"

namespace quire::api {

using ImageFile = std::shared_ptr<const std::string>;  // not null

// The file in a data URL, with or without a media type, or in base64 alone. It is not decoded further: its
// first bytes tell what it is, and the model's runner reads it. Errors name `field`: kInvalidArgument, and
// kUnsupported for a URL of another scheme, which is not fetched.
Result<ImageFile> ReadImage(std::string text, const std::string& field);

// The same of a member that is a string; the error names it, also where it is absent.
Result<ImageFile> ReadImageField(Fields& fields, std::string_view name);

}  // namespace quire::api
