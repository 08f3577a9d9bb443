// For tests: messages with images as one text.
#pragma once

#include <cstddef>
#include <string>

#include "api/base/request.h"

namespace quire::api {

// The text of a message, {the file} where an image stands.
inline std::string WithImages(const Message& message) {
  std::string shown;
  size_t from = 0;
  for (const Image& image : message.images) {
    shown += message.content.substr(from, image.at - from) + "{" + (image.file ? *image.file : "") + "}";
    from = image.at;
  }
  return shown + message.content.substr(from);
}

}  // namespace quire::api
