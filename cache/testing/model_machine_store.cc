// The machine's operations on snapshots, drafts and the store, and its checks of the whole world.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <new>
#include <utility>

#include "cache/testing/model_machine.h"

namespace quire::cache {

std::string Machine::CaptureSnapshot() {
  operation_ = "capture snapshot";
  Live* live = Pick(false);
  if (live == nullptr || kept_.size() >= kMaxKept) return {};
  const Position from = choices_.Between(0, live->truth.offset());
  auto snapshot = Try([&] { return cache_->CaptureSnapshot(live->sequence, from); });
  if (!snapshot) return "snapshot refused: " + snapshot.error().message;
  if (snapshot->empty() != (from == live->truth.offset())) return "empty exactly if it has no width";
  if (!snapshot->empty()) kept_.emplace_back(std::move(*snapshot), from, live->truth);
  return {};
}

std::string Machine::CheckRestored(const Live& live, Position want) {
  if (live.sequence.offset() == want) return {};
  return fmt::format("restored at {}, want {}", live.sequence.offset(), want);
}

std::string Machine::RestoreSnapshot() {
  operation_ = "restore snapshot";
  Live* live = Pick(true);
  if (live == nullptr || kept_.empty()) return {};
  const Kept& kept = kept_[choices_.Below(static_cast<uint32_t>(kept_.size()))];
  const Position max_position = choices_.OneIn(2) ? INT64_MAX : choices_.Between(0, kept.truth.offset());
  const Position want = kept.truth.DeepestReachable(max_position);
  const auto restored = Try([&] { return cache_->Restore(live->sequence, kept.snapshot, max_position); });
  if (LacksSlot(restored)) return {};
  if (restored.has_value() != (want > 0)) return fmt::format("restore up to {}: want {}", max_position, want);
  if (!restored) {
    ++coverage_.refusals;
    return restored.error().code == ErrorCode::kUnsupported ? "" : "wrong error";
  }
  ++coverage_.restores;
  live->truth = kept.truth;
  live->truth.CutTo(want);
  live->captured.clear();
  live->capture_from = want;
  std::erase_if(live->scheduled, [&](Position at) { return at < want; });
  PassCaptures(*live, [](Position) { return false; });
  Free([&] { live->lease = Lease(); });
  return CheckRestored(*live, want);
}

std::string Machine::SplitSnapshot() {
  operation_ = "split snapshot";
  if (kept_.empty() || kept_.size() >= kMaxKept) return {};
  Kept& kept = kept_[choices_.Below(static_cast<uint32_t>(kept_.size()))];
  if (kept.truth.offset() - kept.from < 2) return {};
  const Position at = choices_.Between(kept.from + 1, kept.truth.offset() - 1);
  auto split = Try([&]() -> Result<Snapshot> {
    try {
      return kept.snapshot.SplitFront(at);
    } catch (const std::bad_alloc&) {
      return NoMemory();
    }
  });
  Snapshot front = *std::move(split);
  Truth truth = kept.truth;
  truth.CutTo(at);
  const Position from = std::exchange(kept.from, at);
  if (front.to() != at || kept.snapshot.from() != at) return "split elsewhere";
  if (front.whole() != truth.ready()) return "the front has what it should not, or lacks what it should have";
  kept_.emplace_back(std::move(front), from, std::move(truth));
  ++coverage_.splits;
  return {};
}

std::string Machine::MergeSnapshots() {
  operation_ = "merge snapshots";
  for (size_t p = 0; p < kept_.size(); ++p) {
    for (size_t c = 0; c < kept_.size(); ++c) {
      const TokenList& front = kept_[p].truth.tokens;
      const TokenList& whole = kept_[c].truth.tokens;
      if (p == c || kept_[p].truth.offset() != kept_[c].from || front.size() >= whole.size()) continue;
      if (!std::equal(front.begin(), front.end(), whole.begin())) continue;
      Free([&] { kept_[c].snapshot.MergeFront(std::move(kept_[p].snapshot)); });
      kept_[c].from = kept_[p].from;
      kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(p));
      ++coverage_.merges;
      return {};
    }
  }
  return {};
}

std::string Machine::ScheduleCapture() {
  operation_ = "schedule capture";
  Live* live = Pick(true);
  if (live == nullptr) return {};
  const Position at = choices_.Between(live->truth.offset(), live->truth.offset() + 8);
  if (!Try([&] { return cache_->ScheduleCapture(live->sequence, at); })) return "capture refused";
  live->scheduled.insert(std::ranges::upper_bound(live->scheduled, at), at);
  PassCaptures(*live, [&](Position position) { return live->truth.Reaches(position); });
  return {};
}

// Exactly those that were scheduled and passed, in order; only those that had no slot are missing.
std::string Machine::TakeCaptures() {
  operation_ = "take captures";
  Live* live = Pick(false);
  if (live == nullptr) return {};
  if (!live->draft && choices_.OneIn(4)) {
    Free([&] { cache_->CancelCaptures(live->sequence); });
    live->scheduled.clear();
  }
  std::vector<Snapshot> captures;
  Free([&] { captures = cache_->TakeCaptures(live->sequence); });
  std::vector<Passed> passed = std::exchange(live->captured, {});
  if (captures.size() != passed.size())
    return fmt::format("{} captures, want {}", captures.size(), passed.size());
  for (size_t i = 0; i < captures.size(); ++i) {
    if (captures[i].empty() != passed[i].empty) return "empty exactly if it has no width";
    if (passed[i].empty) continue;
    ++coverage_.captures;
    if (!captures[i].whole()) return "a capture without state";
    if (kept_.size() < kMaxKept) {
      kept_.emplace_back(std::move(captures[i]), passed[i].from, std::move(passed[i].truth));
    }
  }
  return {};
}

std::string Machine::OpenDraft() {
  operation_ = "open draft";
  Live* live = Pick(false);
  if (live == nullptr) return {};
  const bool isolated = choices_.OneIn(3);
  auto draft = Try([&] {
    return isolated ? cache_->SpeculateIsolated(live->sequence) : cache_->Speculate(live->sequence);
  });
  // A sequence knows nothing of its isolated draft.
  const bool drafting = live->draft && !live->isolated;
  if (draft.has_value() != (!drafting && live->truth.ready())) return "draft wrongly opened or refused";
  if (!draft || live->draft) return {};
  live->draft.emplace(std::move(*draft));
  live->isolated = isolated;
  live->draft_base = live->truth.tokens;
  live->draft_lost = false;
  live->drafted.clear();
  ++coverage_.drafts;
  return {};
}

std::string Machine::CloseDraft() {
  operation_ = "close draft";
  Live* live = Pick(false);
  if (live == nullptr || !live->draft) return {};
  const auto drafted = static_cast<int32_t>(live->drafted.size());
  if (live->draft->drafted() != drafted) return "wrong count of draft tokens";
  const auto keep = static_cast<int32_t>(choices_.Between(0, drafted));
  const bool drop = choices_.OneIn(4);
  int32_t replayed = 0;
  if (drop) {
    Free([&] { live->draft->Drop(); });
  } else {
    const ReplayInputs replay = [&](size_t layer, std::byte* slot, auto inputs, int32_t tokens) {
      if (faults_ != nullptr) faults_->Suspend();
      ReplayTokens(layout_, layer, slot, inputs, tokens);
      if (faults_ != nullptr) faults_->Resume();
      replayed += layer == 0 ? tokens : 0;
    };
    const auto done = Try([&] { return live->draft->Commit(keep, replay); });
    if (live->isolated) {
      if (done || done.error().code != ErrorCode::kUnsupported) return "an isolated draft was committed";
      return {};
    }
    if (!done)
      return done.error().code == ErrorCode::kOutOfSlots && live->draft_lost ? "" : done.error().message;
    const bool replays = live->truth.recurrent() && keep > 0 && (keep < drafted || live->draft_lost);
    if (replayed != (replays ? keep : 0)) return fmt::format("{} tokens replayed of {}", replayed, keep);
    coverage_.replays += replays ? 1 : 0;
    live->truth.tokens.insert(live->truth.tokens.end(), live->drafted.begin(), live->drafted.begin() + keep);
    live->truth.state = true;
    PassCaptures(*live, [&](Position at) { return live->truth.Reaches(at); });
  }
  live->draft.reset();
  live->drafted.clear();
  return {};
}

std::string Machine::Insert() {
  operation_ = "insert";
  Truth truth(&layout_);
  Snapshot snapshot;
  const Live* live = nullptr;
  if (!kept_.empty() && choices_.OneIn(2)) {
    const size_t i = choices_.Below(static_cast<uint32_t>(kept_.size()));
    snapshot = std::move(kept_[i].snapshot);
    truth = std::move(kept_[i].truth);
    kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(i));
  } else {
    live = Pick(false);
    if (live == nullptr) return {};
    truth = live->truth;
  }
  TokenList tokens = truth.tokens;
  if (lookahead_) tokens.push_back(Token());
  const bool legal = !truth.tokens.empty() && truth.ready() && truth.exact();
  const bool empty = truth.tokens.empty();
  const std::string_view key = Key();
  const std::string_view owner = OwnerName();
  const bool user_point = choices_.OneIn(6);
  const auto insert = [&] { return store_->Insert(key, tokens, std::move(snapshot), user_point, owner); };
  // A snapshot that is kept here cannot be had again.
  const auto lease =
      live == nullptr ? insert()
                      : Try(insert, [&] { snapshot = std::move(*cache_->CaptureSnapshot(live->sequence)); });
  ++coverage_.inserts;
  if (lease) return legal ? "" : "kept what it should refuse";
  if (legal && LacksSlot(lease)) return {};
  if (legal) return lease.error().code == ErrorCode::kOutOfPages ? "" : lease.error().message;
  const bool expected = lease.error().code == (empty ? ErrorCode::kInvalid : ErrorCode::kUnsupported);
  return expected ? "" : "wrong error: " + lease.error().message;
}

// The answer must be the best of all nodes, each looked at by itself.
std::string Machine::CheckProbe(std::string_view key, const TokenList& prompt, const Probed& probed) {
  const Position limit = static_cast<Position>(prompt.size()) - 1;
  Position matched = 0;
  Position restorable = 0;
  store_->ForEachNode(
      [&](std::string_view isolation, const std::vector<TokenId>& path, const Snapshot& snapshot) {
        if (isolation != key) return;
        auto same = static_cast<Position>(std::ranges::mismatch(path, prompt).in1 - path.begin());
        if (lookahead_) same = std::max<Position>(0, same - 1);
        matched = std::max(matched, same);
        if (same > snapshot.from())
          restorable = std::max(restorable, snapshot.DeepestRestorable(std::min(limit, same)));
      });
  if (probed.matched == matched && probed.restorable == restorable) return {};
  return fmt::format("probe says {} matched, {} restorable; the nodes say {} and {}", probed.matched,
                     probed.restorable, matched, restorable);
}

std::string Machine::RestoreFromStore() {
  operation_ = "restore from store";
  Live* live = Pick(true);
  if (live == nullptr) return {};
  const Live* other = Pick(false);
  TokenList prompt = other->truth.tokens;
  if (choices_.OneIn(3)) prompt.resize(static_cast<size_t>(choices_.Between(0, other->truth.offset())));
  for (uint32_t n = choices_.Below(6); n > 0; --n) prompt.push_back(Token());
  const std::string_view key = Key();
  const std::string_view owner = OwnerName();
  const Probed probed = store_->Probe(key, prompt);
  if (std::string wrong = CheckProbe(key, prompt, probed); !wrong.empty()) return wrong;
  Free([&] { live->lease = Lease(); });
  const Probed again = store_->Probe(key, prompt);
  Restored restored = Try([&] { return store_->Restore(key, prompt, live->sequence, owner); });
  if (restored.out_of_memory && stored_otherwise()) return {};
  if (restored.matched != again.matched || restored.restored != again.restorable)
    return "did not do as it said";
  if (restored.restored == 0) return {};
  if (restored.reason == MissReason::kNone && restored.restored + 1 != static_cast<Position>(prompt.size())) {
    return "no reason given";
  }
  ++coverage_.hits;
  live->truth = Truth(&layout_);
  live->truth.tokens.assign(prompt.begin(), prompt.begin() + restored.restored);
  live->lease = std::move(restored.lease);
  live->captured.clear();
  live->capture_from = restored.restored;
  PassCaptures(*live, [](Position) { return false; });
  std::erase_if(live->scheduled, [&](Position at) { return at < restored.restored; });
  return CheckRestored(*live, restored.restored);
}

// A snapshot's bytes taken out and put back behind another snapshot of the same tokens.
std::string Machine::ImportSnapshot() {
  operation_ = "import";
  if (kept_.empty() || kept_.size() >= kMaxKept) return {};
  Kept& kept = kept_[choices_.Below(static_cast<uint32_t>(kept_.size()))];
  if (!kept.snapshot.whole() || !kept.truth.exact()) return {};
  const auto converted = Try([&] { return cache_->ConvertToStored(kept.snapshot); });
  if (!converted) return LacksSlot(converted) ? "" : converted.error().message;
  std::vector<std::vector<std::byte>> parts;
  kept.snapshot.ForEachPart(
      [&](const Snapshot::Part& part) { parts.emplace_back(part.bytes.begin(), part.bytes.end()); });
  size_t next = 0;
  const std::function<void(const Snapshot::Part&)> fill = [&](const Snapshot::Part& part) {
    std::ranges::copy(parts[next++], part.bytes.begin());
  };
  auto copy = Try([&] { return cache_->Import(kept.snapshot, kept.from, kept.truth.offset(), fill); },
                  [&] { next = 0; });
  if (!copy) return copy.error().code == ErrorCode::kInvalid ? copy.error().message : "";
  if (next != parts.size()) return "other parts than were taken out";
  if (copy->bytes() != kept.snapshot.bytes()) return "of another size";
  Truth truth = kept.truth;
  const Position from = kept.from;
  kept_.emplace_back(std::move(*copy), from, std::move(truth));
  ++coverage_.imports;
  return {};
}

std::string Machine::CheckLive(Live& live) {
  const bool drafting = live.draft && !live.isolated;
  const Position drafted = drafting ? static_cast<Position>(live.drafted.size()) : 0;
  if (live.sequence.offset() != live.truth.offset() + drafted) {
    return fmt::format("offset {}, want {}", live.sequence.offset(), live.truth.offset() + drafted);
  }
  const bool ready = drafting ? !live.draft_lost : live.truth.ready();
  if (live.sequence.ready() != ready) return ready ? "should be ready" : "should lack state";
  const auto view = cache_->View(live.sequence);
  const bool visible = live.truth.ready() || drafting;
  if (view.has_value() != visible) return "wrongly visible or not";
  if (!view) return {};
  std::string wrong = CheckVisible(layout_, **view, 0, live.truth.tokens);
  return wrong.empty() ? CheckState(layout_, **view, 0, live.truth.tokens) : wrong;
}

std::string Machine::CheckWorld() {
  if (auto ok = cache_->CheckInvariants(); !ok) return ok.error();
  if (auto ok = store_->CheckInvariants(); !ok) return ok.error();
  if (store_->stats().bytes_peak > budget_) return "the budget was exceeded";
  const CacheStats stats = cache_->stats();
  if (stats.resident_bytes > stats.capacity_bytes) return "more resident than the capacity";
  for (auto& live : live_) {
    if (std::string wrong = CheckLive(*live); !wrong.empty()) return wrong;
  }
  for (const Kept& kept : kept_) {
    if (kept.snapshot.from() != kept.from || kept.snapshot.to() != kept.truth.offset())
      return "a snapshot moved";
    if (kept.snapshot.whole() != kept.truth.ready()) return "a snapshot is not as whole as it should be";
    if (kept.snapshot.exact() != kept.truth.exact()) return "a snapshot is wrongly exact or not";
  }
  return {};
}

}  // namespace quire::cache
