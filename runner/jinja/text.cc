#include "runner/jinja/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace quire::runner::jinja {
namespace {

constexpr size_t kTextOverhead = sizeof(Text) + 32;  // control block and allocator

}  // namespace

TextRef MakeText(std::string bytes, Trust trust) {
  std::vector<ByteRange> untrusted;
  if (trust == Trust::kRequest && !bytes.empty()) untrusted.push_back({0, bytes.size()});
  return std::make_shared<const Text>(std::move(bytes), std::move(untrusted), false, Charge());
}

void TextBuilder::Reserve(size_t bytes) {
  if (bytes > bytes_max_ || bytes_.size() > bytes_max_ - bytes) {
    Raise(fmt::format("the output is longer than {} bytes", bytes_max_));
  }
  charge_.Grow(bytes);
  budget_.StepBytes(bytes);
}

void TextBuilder::AddRange(size_t begin, size_t end) {
  if (begin == end) return;
  if (!untrusted_.empty() && untrusted_.back().end == begin) {
    untrusted_.back().end = end;
    return;
  }
  charge_.Grow(sizeof(ByteRange));
  untrusted_.push_back({begin, end});
}

void TextBuilder::Append(std::string_view bytes, Trust trust) {
  Reserve(bytes.size());
  const size_t begin = bytes_.size();
  bytes_.append(bytes);
  if (trust == Trust::kRequest) AddRange(begin, bytes_.size());
}

void TextBuilder::Append(const Text& text, size_t begin, size_t end) {
  Reserve(end - begin);
  const size_t to = bytes_.size();
  bytes_.append(text.bytes(), begin, end - begin);
  const std::vector<ByteRange>& ranges = text.untrusted();
  if (ranges.empty()) return;
  auto range = std::partition_point(ranges.begin(), ranges.end(),
                                    [begin](const ByteRange& candidate) { return candidate.end <= begin; });
  for (; range != ranges.end() && range->begin < end; ++range) {
    AddRange(to + std::max(range->begin, begin) - begin, to + std::min(range->end, end) - begin);
  }
}

void TextBuilder::AppendFill(size_t count, char fill) {
  Reserve(count);
  bytes_.append(count, fill);
}

void TextBuilder::AppendRepeated(const Text& text, size_t count) {
  Reserve(text.size() * count);
  bytes_.reserve(bytes_.size() + text.size() * count);
  for (size_t i = 0; i < count; ++i) {
    const size_t to = bytes_.size();
    bytes_.append(text.bytes());
    for (const ByteRange& range : text.untrusted()) AddRange(to + range.begin, to + range.end);
  }
}

void TextBuilder::SpreadUntrusted(size_t begin) {
  if (untrusted_.empty() || untrusted_.back().end <= begin) return;
  while (!untrusted_.empty() && untrusted_.back().begin >= begin) untrusted_.pop_back();
  if (!untrusted_.empty() && untrusted_.back().end > begin) {
    untrusted_.back().end = bytes_.size();
    return;
  }
  AddRange(begin, bytes_.size());
}

TextRef TextBuilder::Finish(bool markup) && {
  charge_.Grow(kTextOverhead);
  return std::make_shared<const Text>(std::move(bytes_), std::move(untrusted_), markup, std::move(charge_));
}

void TextBuilder::Release(std::string& bytes, std::vector<ByteRange>& untrusted) && {
  bytes = std::move(bytes_);
  untrusted = std::move(untrusted_);
}

}  // namespace quire::runner::jinja
