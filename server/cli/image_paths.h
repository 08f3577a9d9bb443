// Images that a prompt names by their paths: "describe ./a.png".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"

namespace quire::cli {

struct ImagePrompt {
  std::string text;                // without the paths
  std::vector<std::string> paths;  // of `files`
  std::vector<std::string> files;  // their bytes
  std::vector<std::string> absent =
      {};  // what looks like a path of an image and is no file: it stays in the text
};

// A path begins with "/", "./", "../", "~/" or "file://", or is in quotes. It ends with the extension of PNG,
// JPEG or WebP. Blanks in it are escaped, in quotes, or stand in a file's name as they are: what a terminal
// pastes where a file is dropped on it. kInvalidArgument: a file that is there and cannot be read.
api::Result<ImagePrompt> ReadImages(std::string_view prompt);

// Whether the prompt begins with the path of an image that is there, and not with a command.
bool BeginsWithImage(std::string_view prompt);

}  // namespace quire::cli
