// Breaks lines between words at the terminal's width while text arrives in pieces.
#pragma once

#include <string>
#include <string_view>

namespace quire::cli {

// Begins at the first column of a line. One thread.
class WordWrap {
 public:
  // The output that shows `text`, whole characters of UTF-8, after the previous text; a word that
  // turns out to cross the edge is taken back with escape sequences and written again on the next line.
  // `width` in columns, which may change between calls; below 10, nothing is broken.
  std::string Put(std::string_view text, int width);

 private:
  void EndWord();
  void MoveWordToNextLine(std::string& out);
  void PutCharacter(std::string_view character, int columns, int width, std::string& out);

  int column_ = 0;    // where the next character goes
  std::string word_;  // what of the current word has been written
  int word_columns_ = 0;
};

}  // namespace quire::cli
