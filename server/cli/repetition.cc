#include "server/cli/repetition.h"

#include <vector>

namespace quire::cli {
namespace {

constexpr size_t kBetweenLooks = 64;

// The length of the shortest piece that the text repeats, the last time perhaps in part (Knuth, Morris and
// Pratt).
size_t PeriodOf(std::string_view text) {
  std::vector<size_t> border(text.size() + 1, 0);
  for (size_t i = 1; i < text.size(); ++i) {
    size_t length = border[i];
    while (length > 0 && text[length] != text[i]) length = border[length];
    border[i + 1] = text[length] == text[i] ? length + 1 : 0;
  }
  return text.size() - border[text.size()];
}

}  // namespace

bool Repetition::Add(std::string_view text) {
  end_ += text;
  since_look_ += text.size();
  if (end_.size() > kBytes) end_.erase(0, end_.size() - kBytes);
  if (end_.size() < kBytes || since_look_ < kBetweenLooks) return false;
  since_look_ = 0;
  return PeriodOf(end_) <= kPieceMax;
}

}  // namespace quire::cli
