// Searches in text that grows at its end and is cut at its front, as parsers of streamed answers hold it.
// What was searched is not searched again, so that text which is held back for long costs nothing more.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runner/output/text.h"

namespace quire::runner::output {

// Where one marker comes next.
class MarkerSearch {
 public:
  // Which of its places count: all, or those that begin a line. `at_line_begin`: the text begins one.
  enum class Where : uint8_t { kAnywhere, kLineBegin };

  explicit MarkerSearch(std::string marker = {}, Where where = Where::kAnywhere, bool at_line_begin = true)
      : marker_(std::move(marker)), where_(where), at_line_begin_(at_line_begin) {}

  std::string_view marker() const { return marker_; }
  // The first place at or behind `from`, or npos; an empty marker is nowhere.
  size_t Find(std::string_view buffer, size_t from) {
    if (marker_.empty()) return std::string_view::npos;
    const auto known = std::ranges::lower_bound(places_, from);
    if (known != places_.end()) return *known;
    for (size_t at = buffer.find(marker_, searched_); at != std::string_view::npos;
         at = buffer.find(marker_, searched_)) {
      searched_ = at + 1;
      if (!Counts(buffer, at)) continue;
      places_.push_back(at);
      if (at >= from) return at;
    }
    const size_t partial = std::min(buffer.size(), marker_.size() - 1);
    searched_ = std::max(searched_, buffer.size() - partial);
    return std::string_view::npos;
  }
  bool Counts(std::string_view buffer, size_t at) const {
    return where_ == Where::kAnywhere || (at == 0 ? at_line_begin_ : buffer[at - 1] == '\n');
  }
  // How many bytes at the end of the buffer may become a marker that counts.
  size_t Partial(std::string_view buffer, size_t from) const {
    if (marker_.empty()) return 0;
    const std::string_view marker = marker_;
    size_t size = std::min(marker.size() - 1, buffer.size() - from);
    while (size > 0 && !(buffer.ends_with(marker.substr(0, size)) && Counts(buffer, buffer.size() - size))) {
      --size;
    }
    return size;
  }
  // The first `bytes` of the buffer are about to go.
  void Cut(std::string_view buffer, size_t bytes) {
    if (bytes == 0) return;
    at_line_begin_ = buffer[bytes - 1] == '\n';
    places_.erase(places_.begin(), std::ranges::lower_bound(places_, bytes));
    for (size_t& place : places_) place -= bytes;
    searched_ -= std::min(searched_, bytes);
  }

 private:
  std::string marker_;
  Where where_;
  bool at_line_begin_;
  std::vector<size_t> places_;  // of all that begin before searched_, ascending
  size_t searched_ = 0;
};

// The run of space that was seen last, over which both directions jump.
class SpaceRun {
 public:
  // Behind the space that begins at `from`.
  size_t Skip(std::string_view buffer, size_t from) {
    size_t at = from;
    while (at < buffer.size() && (IsInside(at) || IsSpace(buffer[at]))) at = IsInside(at) ? end_ : at + 1;
    Remember(from, at);
    return at;
  }
  // Before the space that ends at `to`; not before `from`.
  size_t SkipBack(std::string_view buffer, size_t from, size_t to) {
    size_t at = to;
    while (at > from && (IsInside(at - 1) || IsSpace(buffer[at - 1]))) {
      at = IsInside(at - 1) ? std::max(begin_, from) : at - 1;
    }
    Remember(at, to);
    return at;
  }
  void Cut(size_t bytes) {
    begin_ -= std::min(begin_, bytes);
    end_ -= std::min(end_, bytes);
  }

 private:
  bool IsInside(size_t at) const { return begin_ <= at && at < end_; }
  // A shorter one behind it is not worth what is known of the longer one.
  void Remember(size_t begin, size_t end) {
    if (end - begin < end_ - begin_) return;
    begin_ = begin;
    end_ = end;
  }

  size_t begin_ = 0, end_ = 0;  // all of it is space
};

}  // namespace quire::runner::output
