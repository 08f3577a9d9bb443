// When a runner may have been at requests that it was sent and that left it before their end: from when each
// was sent until a little after its client had left. Not thread-safe.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <deque>

namespace quire::scheduler {

class Departures {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // The runner learns of it when its step ends, and a preparation ends a little later.
  static constexpr std::chrono::seconds kAfter{2};

  // `progressed`: the runner had computed something for it. REQUIRES: nothing that left later was added
  // before.
  void Add(Time sent_at, Time left_at, bool progressed) {
    AddTo(all_, sent_at, left_at + kAfter);
    if (!progressed) AddTo(unproven_, sent_at, left_at + kAfter);
  }
  // Whether one may have been the reason for what happened within [from, to].
  bool Cover(Time from, Time to) const { return Covers(all_, from, to); }
  bool UnprovenCover(Time from, Time to) const { return Covers(unproven_, from, to); }

 private:
  // Each begins behind the end of the one before, and has kAfter at least: together they reach back for
  // minutes.
  static constexpr size_t kSpansMax = 256;
  struct Span {
    Time begin, end;
  };
  using Spans = std::deque<Span>;

  static void AddTo(Spans& spans, Time begin, Time end) {
    for (; !spans.empty() && spans.back().end >= begin; spans.pop_back())
      begin = std::min(begin, spans.back().begin);
    spans.push_back({begin, end});
    if (spans.size() > kSpansMax) spans.pop_front();
  }
  static bool Covers(const Spans& spans, Time from, Time to) {
    return std::ranges::any_of(spans, [&](const Span& span) { return span.begin <= to && from <= span.end; });
  }

  Spans all_, unproven_;
};

}  // namespace quire::scheduler
