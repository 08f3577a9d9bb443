// One answer's events on their way to the client: in order, in bounded pieces, and no faster than its credit
// allows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>

#include "api/base/event.h"
#include "api/ipc/messages.h"

namespace quire::runner::engine {

// Engine thread only.
//
// Invariants: never more TextDeltas are out than the client has given credit for; the end comes behind all of
// them; the deltas are a function of what was added, so that a resumed answer skips exactly those that the
// client has.
class DeltaOutbox {
 public:
  using Emit = std::function<void(api::Event)>;

  // Bounds the text, thinking and calls of one delta; a call that is larger alone is whole.
  static constexpr size_t kPieceBytesMax = size_t{64} << 10;

  explicit DeltaOutbox(Emit emit) : emit_(std::move(emit)) {}

  // Goes on where another runner stopped: the client has `deltas` and gives `credit` for more.
  void Resume(int64_t deltas, int32_t credit);

  // An event that is no TextDelta.
  void Add(api::Event event);
  void AddDelta(api::TextDelta delta);
  void AddCredit(int32_t deltas);

  // Nothing waits for credit.
  bool empty() const { return held_.empty(); }
  // Too little credit is left to compute more: one token mostly makes few deltas, and where it makes more
  // they wait here.
  bool backpressured() const { return credit_ <= kReserve || !held_.empty(); }

 private:
  static constexpr int32_t kReserve = 4;

  void AddPiece(api::TextDelta piece);
  void AddPieces(api::TextDelta delta);
  void Send(api::Event event);

  const Emit emit_;
  int32_t credit_ = api::ipc::kInitialCredit;
  int64_t to_skip_ = 0;
  std::deque<api::Event> held_;
};

}  // namespace quire::runner::engine
