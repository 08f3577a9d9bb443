#include "runner/weights/byte_ranges.h"

#include <algorithm>

namespace quire::runner::weights {

std::optional<std::pair<size_t, size_t>> FindOverlap(std::vector<ByteRange> ranges) {
  std::erase_if(ranges, [](const ByteRange& range) { return range.begin == range.end; });
  std::ranges::sort(ranges, {}, &ByteRange::begin);
  for (size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].begin < ranges[i - 1].end) return std::pair(ranges[i - 1].owner, ranges[i].owner);
  }
  return std::nullopt;
}

}  // namespace quire::runner::weights
