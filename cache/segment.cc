#include "cache/segment.h"

#include <algorithm>
#include <cstring>
#include <optional>

namespace quire::cache {
namespace {

constexpr size_t kSegmentBytes = size_t{2} << 20;  // aimed at
constexpr Position kPagesMin = 2;
constexpr Position kPagesMax = 8;

// One page or slot of a segment; its place in the segment's bytes follows from those before it.
struct PlannedPart {
  Snapshot::Part::Kind kind;
  size_t group = 0;
  int64_t page = 0;
  size_t bytes = 0;
};

void AddPages(const Layout& layout, size_t group, Position from, Position to,
              std::vector<PlannedPart>& plan) {
  for (int64_t page = from / layout.page_tokens; page * layout.page_tokens < to; ++page) {
    plan.push_back({Snapshot::Part::Kind::kPage, group, page, PageBytes(layout, group)});
  }
}

std::vector<PlannedPart> PlanOf(const Layout& layout, const Segment& segment) {
  std::vector<PlannedPart> plan;
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    const AttentionGroup& group = layout.groups[g];
    if (!segment.state && group.window == 0) AddPages(layout, g, segment.from, segment.to, plan);
    if (segment.state && group.window > 0) {
      AddPages(layout, g, OldestVisible(group, segment.to), segment.to, plan);
    }
  }
  if (segment.state && !layout.recurrent.empty()) {
    plan.push_back({Snapshot::Part::Kind::kSlot, 0, 0, StoredSlotBytes(layout)});
  }
  return plan;
}

void ZeroRows(std::byte* first, size_t row_bytes, Position kept, Position rows) {
  std::memset(first + row_bytes * static_cast<size_t>(kept), 0, row_bytes * static_cast<size_t>(rows - kept));
}

// Rows that a page has of positions before `end`: some have less than there is room for.
Position RowsBefore(const Layout& layout, size_t group, int64_t page, Position end) {
  const Position first = page * layout.page_tokens, stride = layout.groups[group].stride;
  return std::min(end, first + layout.page_tokens) / stride - first / stride;
}

// Zeroes the rows of a page from `kept` on.
void ZeroTail(const Layout& layout, size_t group, Position kept, std::byte* page) {
  const AttentionGroup& shape = layout.groups[group];
  const Position rows = RowsOfPage(layout, shape);
  for (int32_t layer = 0; layer < shape.layers; ++layer) {
    for (int32_t head = 0; head < shape.kv_heads; ++head) {
      if (shape.latent > 0) {
        ZeroRows(page + KeyOffset(layout, group, layer, head), RowBytes(layout, group), kept, rows);
        continue;
      }
      std::byte* const values = page + ValueOffset(layout, group, layer, head);
      for (Position row = kept; row < rows; ++row) {
        const ValuePlace place = PlaceOfValue(layout, group, static_cast<int32_t>(row));
        std::memset(values + place.scale, 0, place.scale_bytes);
        for (size_t i = 0; i < place.count; ++i) {
          std::memset(values + place.first + i * place.stride, 0, place.bytes);
        }
      }
      std::byte* keys = page + KeyOffset(layout, group, layer, head);
      ForEachKeyPlane(layout, group,
                      [&](size_t at, size_t bytes) { ZeroRows(keys + at, bytes, kept, rows); });
    }
  }
}

// The overlap of a part that begins at `begin` of the segment with [offset, offset + size).
struct Overlap {
  size_t in_part;
  size_t in_range;
  size_t bytes;
};
std::optional<Overlap> OverlapOf(size_t begin, size_t part_bytes, size_t offset, size_t size) {
  const size_t first = std::max(begin, offset);
  const size_t end = std::min(begin + part_bytes, offset + size);
  if (first >= end) return std::nullopt;
  return Overlap{first - begin, first - offset, end - first};
}

}  // namespace

Position SegmentTokens(const Layout& layout) {
  size_t page = 0;
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    if (layout.groups[g].window == 0) page += PageBytes(layout, g);
  }
  const auto pages = static_cast<Position>(page == 0 ? kSegmentBytes : kSegmentBytes / page);
  return std::clamp(pages, kPagesMin, kPagesMax) * layout.page_tokens;
}

bool NeedsState(const Layout& layout) {
  return !layout.recurrent.empty() ||
         std::ranges::any_of(layout.groups, [](const AttentionGroup& group) { return group.window > 0; });
}

std::vector<Segment> SegmentsOf(const Layout& layout, Position from, Position to) {
  const Position step = SegmentTokens(layout);
  std::vector<Segment> segments;
  segments.reserve(static_cast<size_t>((to - from) / step + 2));
  for (; from < to; from += step) segments.push_back({from, std::min(from + step, to), false});
  if (NeedsState(layout)) segments.push_back({to, to, true});
  return segments;
}

size_t SegmentBytes(const Layout& layout, const Segment& segment) {
  size_t bytes = 0;
  for (const PlannedPart& part : PlanOf(layout, segment)) bytes += part.bytes;
  return bytes;
}

bool ReadSegment(const Layout& layout, const Snapshot& snapshot, const Segment& segment, size_t offset,
                 std::span<std::byte> out) {
  if (segment.state ? snapshot.to() != segment.to : snapshot.to() < segment.to) return false;
  std::vector<std::byte> cleaned;
  size_t begin = 0;
  for (const PlannedPart& part : PlanOf(layout, segment)) {
    const auto overlap = OverlapOf(begin, part.bytes, offset, out.size());
    begin += part.bytes;
    if (!overlap) continue;
    const bool page = part.kind == Snapshot::Part::Kind::kPage;
    std::span<const std::byte> bytes = page ? snapshot.Page(part.group, part.page) : snapshot.Slot();
    if (bytes.size() < part.bytes) return false;
    const Position kept = page ? RowsBefore(layout, part.group, part.page, segment.to) : 0;
    if (page && kept < RowsOfPage(layout, layout.groups[part.group])) {
      cleaned.assign(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(part.bytes));
      ZeroTail(layout, part.group, kept, cleaned.data());
      bytes = cleaned;
    }
    std::memcpy(out.data() + overlap->in_range, bytes.data() + overlap->in_part, overlap->bytes);
  }
  return true;
}

SnapshotImport::SnapshotImport(const Layout& layout, Snapshot imported, std::vector<Snapshot::Part> parts)
    : layout_(layout),
      snapshot_(std::move(imported)),
      parts_(std::move(parts)),
      segments_(SegmentsOf(layout, snapshot_.from(), snapshot_.to())) {
  SkipEmpty();
}

// A segment of a layout without full attention has no bytes, and is none that a tier sends.
void SnapshotImport::SkipEmpty() {
  while (next_ < segments_.size() && SegmentBytes(layout_, segments_[next_]) == 0) ++next_;
}

std::vector<std::span<std::byte>> SnapshotImport::PartsOf(const Segment& segment) const {
  std::vector<std::span<std::byte>> spans;
  for (const PlannedPart& planned : PlanOf(layout_, segment)) {
    const auto part = std::ranges::find_if(parts_, [&](const Snapshot::Part& have) {
      if (have.kind != planned.kind) return false;
      return have.kind == Snapshot::Part::Kind::kSlot ||
             (have.group == planned.group && have.first == planned.page * layout_.page_tokens);
    });
    if (part == parts_.end()) return {};
    spans.push_back(part->bytes.first(planned.bytes));
  }
  return spans;
}

bool SnapshotImport::Write(const Segment& segment, size_t offset, std::span<const std::byte> bytes) {
  if (complete() || segment != segments_[next_] || offset != written_) return false;
  const size_t size = SegmentBytes(layout_, segment);
  if (bytes.empty() || bytes.size() > size - written_) return false;
  const auto spans = PartsOf(segment);
  if (spans.empty()) return false;
  size_t begin = 0;
  for (const std::span<std::byte> part : spans) {
    const auto overlap = OverlapOf(begin, part.size(), offset, bytes.size());
    begin += part.size();
    if (overlap) {
      std::memcpy(part.data() + overlap->in_part, bytes.data() + overlap->in_range, overlap->bytes);
    }
  }
  written_ += bytes.size();
  if (written_ == size) {
    written_ = 0;
    ++next_;
    SkipEmpty();
  }
  return true;
}

}  // namespace quire::cache
