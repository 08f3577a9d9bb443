// Ends a text before a line that is indented too little: code that is filled in stays inside its block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace quire::runner::sampler {

// The first line counts as indented enough. What is cut does not depend on how the text was cut into pieces.
// One thread.
class IndentLimit {
 public:
  // `min`: blanks and tabs that a line must begin with; 0: no limit.
  explicit IndentLimit(int32_t min) : min_(min) {}

  // Cuts the next piece of the text at the first character behind too little indentation. True: the text ends
  // here.
  bool Cut(std::string& text) {
    if (min_ <= 0) return false;
    for (size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      if (at_begin_ && (c == ' ' || c == '\t')) {
        ++indent_;
        continue;
      }
      if (at_begin_ && indent_ < min_) {
        text.resize(i);
        return true;
      }
      at_begin_ = c == '\n';
      if (at_begin_) indent_ = 0;
    }
    return false;
  }

 private:
  int32_t min_;
  bool at_begin_ = false;  // of a line, which is not the first: only blanks and tabs so far
  int32_t indent_ = 0;
};

}  // namespace quire::runner::sampler
