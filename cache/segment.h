// A prefix in parts that a lower tier can store: what each of them is, and its bytes in a fixed order.
//
// A prefix [0, to) consists of token segments, cut at multiples of SegmentTokens(), and, where a layer kind
// has state that only one offset has (windows, recurrent layers), one state segment at `to`. Prefixes that
// share tokens share the segments before the cut at which they diverge. A token segment has the whole pages
// of every full-attention group; rows beyond its end are zero, so that equal tokens give equal bytes and no
// byte of another sequence leaves the cache.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/hybrid_cache.h"
#include "cache/snapshot.h"

namespace quire::cache {

struct Segment {
  Position from = 0;
  Position to = 0;
  bool state = false;  // window pages and state slot at `to`; else full-attention pages of [from, to)

  bool operator==(const Segment&) const = default;
};

// Tokens of a segment: a multiple of page_tokens, of at most about 2 MiB where pages are small.
Position SegmentTokens(const Layout& layout);
// A prefix needs a state segment: not every layer can be restored at any offset.
bool NeedsState(const Layout& layout);
// The segments of [from, to), in order, the state last. REQUIRES: `from` is a multiple of SegmentTokens().
std::vector<Segment> SegmentsOf(const Layout& layout, Position from, Position to);
size_t SegmentBytes(const Layout& layout, const Segment& segment);

// Copies the segment's bytes [offset, offset + out.size()) out of a snapshot of its tokens. False: the
// snapshot lacks them. REQUIRES: inside SegmentBytes().
bool ReadSegment(const Layout& layout, const Snapshot& snapshot, const Segment& segment, size_t offset,
                 std::span<std::byte> out);

// A snapshot [from, to) that is filled segment by segment, over any number of calls. Engine thread only;
// outlived by its cache. Nobody else sees it before Finish().
class SnapshotImport {
 public:
  // `imported` as HybridCache::Import returns it for [from, to), with the parts that were to be filled.
  SnapshotImport(const Layout& layout, Snapshot imported, std::vector<Snapshot::Part> parts);

  // The next bytes in the order of SegmentsOf(). False: they are others, or too many; the import is unusable.
  bool Write(const Segment& segment, size_t offset, std::span<const std::byte> bytes);
  bool complete() const { return next_ == segments_.size(); }
  Snapshot Finish() { return std::move(snapshot_); }  // REQUIRES: complete()

 private:
  std::vector<std::span<std::byte>> PartsOf(const Segment& segment) const;
  void SkipEmpty();

  Layout layout_;
  Snapshot snapshot_;
  std::vector<Snapshot::Part> parts_;
  std::vector<Segment> segments_;
  size_t next_ = 0;     // index into segments_
  size_t written_ = 0;  // bytes of that segment
};

}  // namespace quire::cache
