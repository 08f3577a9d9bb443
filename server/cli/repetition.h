// An answer that says the same again and again without end.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace quire::cli {

// One thread.
class Repetition {
 public:
  static constexpr size_t kBytes = 1536;   // of the end of an answer that are looked at
  static constexpr size_t kPieceMax = 96;  // bytes of the piece that they repeat

  // Adds what came; true when the last kBytes are one piece of at most kPieceMax bytes over and over.
  bool Add(std::string_view text);

 private:
  std::string end_;
  size_t since_look_ = 0;
};

}  // namespace quire::cli
