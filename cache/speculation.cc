#include "cache/speculation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "cache/check.h"
#include "cache/hybrid_cache.h"
#include "cache/sequence_state.h"

namespace quire::cache {
namespace {

// A private slot with the state at the draft's base. Reuses the base's slot where nobody else holds it, then
// the draft's own.
SlotRef SlotAtBase(SlotRef& base, SlotRef own, Pools& pools) {
  if (base && base.exclusive()) return std::move(base);
  if (!own) {
    return base ? pools.slots->AllocateCopy(base) : pools.slots->AllocateZero();
  }
  const size_t bytes = pools.slots->blocks().block_bytes();
  if (base) {
    std::memcpy(own.data(), base.data(), bytes);
    pools.bytes_copied += bytes;
  } else {
    std::memset(own.data(), 0, bytes);
  }
  return own;
}

void Replay(const SequenceState::Draft& draft, const Layout& layout, int32_t keep, std::byte* slot,
            const ReplayInputs& replay) {
  int32_t done = 0;
  for (const SequenceState::Record& record : draft.records) {
    const int32_t tokens = std::min(record.tokens, keep - done);
    if (tokens == 0) break;
    for (size_t layer = 0; layer < layout.recurrent.size(); ++layer) {
      const auto row = static_cast<size_t>(layout.recurrent[layer].record_bytes);
      replay(layer, slot, std::span(record.Layer(layout, layer), row * static_cast<size_t>(tokens)), tokens);
    }
    done += tokens;
  }
  QUIRE_CACHE_CHECK(done == keep);
}

Result<void> CheckDraftable(const SequenceState& state) {
  if (state.in_step) return Fail(ErrorCode::kInvalid, "the sequence is in a step");
  if (state.draft) return Fail(ErrorCode::kInvalid, "the sequence is already drafting");
  if (!state.held.complete()) return Fail(ErrorCode::kUnsupported, "some layer has no state at the offset");
  return {};
}

}  // namespace

Result<Speculation> HybridCache::SpeculateIsolated(const Sequence& sequence) try {
  if (auto draftable = CheckDraftable(*sequence.state_); !draftable) {
    return std::unexpected(std::move(draftable.error()));
  }
  auto fork = Fork(sequence, sequence.offset());
  if (!fork) return std::unexpected(std::move(fork.error()));
  return Speculation(*std::move(fork));
} catch (const std::bad_alloc&) {
  return NoMemory();
}

Result<Speculation> HybridCache::Speculate(Sequence& sequence) try {
  SequenceState& state = *sequence.state_;
  if (auto draftable = CheckDraftable(state); !draftable) {
    return std::unexpected(std::move(draftable.error()));
  }
  const Position base = state.held.offset();
  const auto& recurrent = pools_->layout.recurrent;
  const auto unrecorded = std::ranges::find(recurrent, 0, &RecurrentLayer::record_bytes);
  if (unrecorded != recurrent.end()) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("recurrent[{}].record_bytes = 0: a partly accepted draft could not be replayed",
                            unrecorded - recurrent.begin()));
  }
  state.draft.emplace(SequenceState::Draft{base, state.held.PromiseCuts(1), {}});
  state.held.draft_from = base;
  state.held.draft_slot = state.held.slot;
  return Speculation(&sequence, base);
} catch (const std::bad_alloc&) {
  return NoMemory();
}

Speculation::Speculation(Speculation&& other) noexcept
    : live_(std::exchange(other.live_, nullptr)), isolated_(std::move(other.isolated_)), base_(other.base_) {}

Speculation::~Speculation() { Drop(); }

void Speculation::Drop() {
  isolated_ = Sequence();
  if (live_ == nullptr) return;
  const auto dropped = Commit(0, {});
  QUIRE_CACHE_CHECK(dropped.has_value());
}

Result<void> Speculation::Commit(int32_t keep, const ReplayInputs& replay) try {
  if (isolated_) return Fail(ErrorCode::kUnsupported, "an isolated draft cannot be committed");
  if (live_ == nullptr) return Fail(ErrorCode::kInvalid, "the draft is closed");
  SequenceState& state = *live_->state_;
  if (state.in_step) return Fail(ErrorCode::kInvalid, "a step of the draft is open");
  if (keep < 0 || keep > drafted()) {
    return Fail(ErrorCode::kInvalid, fmt::format("keep {} of {} draft tokens", keep, drafted()));
  }
  HybridState& held = state.held;
  const Position end = base_ + keep;
  const bool stateful = held.recurrent() && end > 0;
  const size_t captures = state.CapturesUpTo(end);  // none where all is dropped
  NodePromises cuts;
  if (keep > 0) cuts = held.PromiseCuts(1 + captures);
  state.ReserveCaptures(captures);
  if (stateful && (end != held.offset() || !held.slot)) {
    if (keep == 0) {
      held.slot = held.draft_slot;
    } else {
      if (!replay) return Fail(ErrorCode::kInvalid, "recurrent layers need a replay");
      SlotRef slot = SlotAtBase(held.draft_slot, std::move(held.slot), held.pools());
      if (!slot) return Fail(ErrorCode::kOutOfSlots, "no slot to replay the draft in");
      Replay(*state.draft, held.pools().layout, keep, slot.data(), replay);
      held.slot = std::move(slot);
    }
  }
  cuts.clear();
  state.draft->rollback.clear();
  SlotRef slot = std::move(held.slot);
  // Every window still has what the base sees, and so what `end` sees.
  held.RestAt(end, stateful ? std::move(slot) : SlotRef());
  held.draft_slot = SlotRef();
  held.draft_from = INT64_MAX;
  if (!state.draft->records.empty()) state.spare_record = std::move(state.draft->records.back());
  state.draft.reset();
  state.CaptureReached(end);
  live_ = nullptr;
  return {};
} catch (const std::bad_alloc&) {
  return NoMemory();
}

}  // namespace quire::cache
