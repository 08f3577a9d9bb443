// Searches in text that grows at its end and is cut at its front, as parsers of streamed answers hold it. What was
// searched is not searched again, so that text which is held back for long costs nothing more.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

#include "runner/output/text.h"

namespace quire::runner::output {

// Where one marker comes next.
class MarkerSearch {
 public:
  explicit MarkerSearch(std::string_view marker = {}) : marker_(marker) {}

  std::string_view marker() const { return marker_; }
  // The first place at or behind `from`, or npos; an empty marker is nowhere.
  size_t Find(std::string_view buffer, size_t from) {
    if (marker_.empty()) return std::string_view::npos;
    const auto known = std::ranges::lower_bound(places_, from);
    if (known != places_.end()) return *known;
    for (size_t at = buffer.find(marker_, searched_); at != std::string_view::npos;
         at = buffer.find(marker_, searched_)) {
      places_.push_back(at);
      searched_ = at + 1;
      if (at >= from) return at;
    }
    const size_t partial = std::min(buffer.size(), marker_.size() - 1);
    searched_ = std::max(searched_, buffer.size() - partial);
    return std::string_view::npos;
  }
  // The first `bytes` of the buffer are gone.
  void Cut(size_t bytes) {
    if (bytes == 0) return;
    places_.erase(places_.begin(), std::ranges::lower_bound(places_, bytes));
    for (size_t& place : places_) place -= bytes;
    searched_ -= std::min(searched_, bytes);
  }

 private:
  std::string_view marker_;
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
