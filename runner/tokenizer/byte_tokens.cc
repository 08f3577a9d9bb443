#include "runner/tokenizer/byte_tokens.h"

#include <charconv>

namespace quire::runner::tokenizer {

std::optional<uint8_t> ByteOfEntry(std::string_view entry) {
  if (entry.size() != 6 || !entry.starts_with("<0x") || entry.back() != '>') return std::nullopt;
  uint8_t byte = 0;
  const char* end = entry.data() + 5;
  const auto read =
      std::from_chars(entry.data() + 3, end, byte, 16);  // reads no sign into an unsigned number
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return byte;
}

}  // namespace quire::runner::tokenizer
