#include "server/cli/word_wrap.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "api/base/utf8.h"

namespace quire::cli {
namespace {

constexpr int kWidthMin = 10;

}  // namespace

std::string WordWrap::Put(std::string_view text, int width) {
  if (width < kWidthMin) return std::string(text);
  std::string out;
  while (!text.empty()) {
    const api::CodePoint next = api::CodePointAt(text);
    const size_t size = next.whole() ? next.bytes : 1;
    const int columns = next.whole() ? utf8proc_charwidth(static_cast<utf8proc_int32_t>(next.value)) : 1;
    PutCharacter(text.substr(0, size), columns, width, out);
    text.remove_prefix(size);
  }
  return out;
}

void WordWrap::EndWord() {
  word_.clear();
  word_columns_ = 0;
}

// The word at the end of the line goes on at the start of the next; one that fills the line is cut.
void WordWrap::MoveWordToNextLine(std::string& out) {
  if (word_columns_ == column_) EndWord();
  if (word_columns_ > 0) fmt::format_to(std::back_inserter(out), "\033[{}D\033[K", word_columns_);
  out += '\n';
  out += word_;
  column_ = word_columns_;
}

// The last column stays free: a terminal that has written it is between two lines, and moves left from there
// differ.
void WordWrap::PutCharacter(std::string_view character, int columns, int width, std::string& out) {
  if (character == "\n" || character == "\r" || character == "\t") {
    EndWord();
    column_ = character == "\t" ? std::min((column_ / 8 + 1) * 8, width - 1) : 0;
    out += character;
    return;
  }
  if (column_ + columns >= width) {
    if (character == " ") {  // the break stands for the space
      EndWord();
      column_ = 0;
      out += '\n';
      return;
    }
    MoveWordToNextLine(out);
  }
  out += character;
  column_ += columns;
  if (character == " ") {
    EndWord();
  } else {
    word_ += character;
    word_columns_ += columns;
  }
}

}  // namespace quire::cli
