// Files that the tests of this folder read.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace quire::runner::tokenizer {

inline std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace quire::runner::tokenizer
