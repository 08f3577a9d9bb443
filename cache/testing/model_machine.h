// Test only. A world of sequences, drafts, snapshots and a store, driven by a stream of choices and compared
// with Truth after every operation. Random tests and the fuzzer drive the same machine.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/snapshot_store.h"
#include "cache/testing/model_truth.h"

namespace quire::cache {

// Where the machine's decisions come from: a seed, or bytes.
class Choices {
 public:
  explicit Choices(uint64_t seed) : state_(seed * 2 + 1) {}
  explicit Choices(std::span<const uint8_t> bytes) : bytes_(bytes), from_bytes_(true) {}

  bool done() const { return from_bytes_ && at_ == bytes_.size(); }
  uint32_t Below(uint32_t bound);  // in [0, bound)
  bool OneIn(uint32_t n) { return Below(n) == 0; }
  Position Between(Position low, Position high) {  // inclusive
    return low + static_cast<Position>(Below(static_cast<uint32_t>(high - low + 1)));
  }

 private:
  uint64_t state_ = 1;
  std::span<const uint8_t> bytes_;
  size_t at_ = 0;
  bool from_bytes_ = false;
};

// Lets allocations of this program fail.
class AllocationFaults {
 public:
  virtual ~AllocationFaults() = default;
  // The `point`-th from now on, and all others behind it if `all`.
  virtual void Start(int64_t point, bool all) = 0;
  virtual bool Stop() = 0;  // whether one failed
  // In between none fails: the caller's own work.
  virtual void Suspend() = 0;
  virtual void Resume() = 0;
};

// Every mix of layer kinds the machine knows.
size_t MachineMixes();
std::string MachineMixName(size_t mix);

class Machine {
 public:
  // With `faults`, each allocation of each operation fails once before the operation gets through.
  Machine(size_t mix, Choices choices, AllocationFaults* faults = nullptr);

  // One operation and all checks. Empty, or what was wrong.
  std::string Step();
  bool done() const { return choices_.done(); }
  const char* last_operation() const { return operation_; }

  // How often each outcome was seen, so that a test can tell that it was not idle.
  struct Coverage {
    uint64_t appends = 0, out_of_memory = 0, cancels = 0, forks = 0, truncates = 0, refusals = 0,
             restores = 0, splits = 0, merges = 0, captures = 0, drafts = 0, replays = 0, removals = 0,
             inserts = 0, hits = 0, evictions = 0, reclaims = 0, imports = 0, failed_allocations = 0;
  };
  Coverage coverage() const;

 private:
  // A scheduled capture that was taken; empty if it had no width.
  struct Passed {
    Truth truth;
    Position from;
    bool empty;
  };
  struct Live {
    explicit Live(const Layout* layout) : truth(layout) {}
    // Captures of tokens from `at` on are dropped with them.
    void DiscardCaptures(Position at) {
      const auto beyond =
          std::ranges::find_if(captured, [&](const Passed& passed) { return passed.truth.offset() > at; });
      if (beyond != captured.end()) capture_from = beyond->from;
      captured.erase(beyond, captured.end());
      capture_from = std::min(capture_from, at);
    }
    Sequence sequence;
    Truth truth;                       // without draft tokens
    std::optional<Speculation> draft;  // on `sequence`, so closed before it
    bool isolated = false;             // the draft is on a fork of it
    bool appends_to_draft = false;     // in the step that is open
    bool draft_lost = false;           // a canceled step took the draft's state
    TokenList draft_base;              // the tokens at which the draft began
    TokenList drafted;
    std::vector<Position> scheduled;  // ascending
    std::vector<Passed> captured;     // since captures were last taken, ascending
    Position capture_from = 0;
    Lease lease;
  };
  struct Kept {
    Kept(Snapshot taken, Position begin, Truth is)
        : snapshot(std::move(taken)), from(begin), truth(std::move(is)) {}
    Snapshot snapshot;
    Position from;
    Truth truth;
  };

  // The call, whose first allocation fails, then its second, until it gets through. Without memory it must
  // say so and have changed nothing. `prepare` runs before each, without failures.
  template <class Call>
  auto Try(const Call& call) {
    return Try(call, [] {});
  }
  template <class Call, class Prepare>
  auto Try(const Call& call, const Prepare& prepare);
  // The call, which needs no memory.
  template <class Call>
  void Free(const Call& call);
  template <class Result>
  static bool Failed(const Result& result);
  static bool Failed(const Sequence& sequence) { return !sequence; }
  static bool Failed(const Restored& restored) { return restored.out_of_memory; }

  // Where a store has states in another form, converting one takes a slot, which may be lacking.
  bool stored_otherwise() const { return layout_.stored_state != ElementType::kF32; }
  template <class Result>
  bool LacksSlot(const Result& result) const {
    return stored_otherwise() && !result.has_value() && result.error().code == ErrorCode::kOutOfSlots;
  }

  std::string Act(uint32_t kind);
  // A step over some sequences; `step` is null where it was rightly refused.
  struct Batch {
    std::vector<Live*> chosen;
    std::vector<int32_t> counts;
    std::vector<TokenList> tokens;             // all of each sequence, the new ones last
    std::vector<std::vector<Position>> slots;  // where the step had room for interior captures
    quire::cache::OwnedStep step;
  };

  std::string Append();
  std::string OpenStep(Batch& batch);
  std::string RunOpenStep(Batch& batch);
  std::string CheckRefusedInside(const Batch& batch);
  void CloseStep(Batch& batch);
  void Committed(Live& live, const TokenList& added, std::span<const Position> slots);
  void Cancelled(Live& live);
  std::string Fork();
  std::string Truncate();
  std::string CaptureSnapshot();
  std::string RestoreSnapshot();
  std::string SplitSnapshot();
  std::string MergeSnapshots();
  std::string ScheduleCapture();
  std::string TakeCaptures();
  std::string OpenDraft();
  std::string CloseDraft();
  std::string RemoveRange();
  std::string Insert();
  std::string RestoreFromStore();
  std::string ImportSnapshot();
  void RunForOwner();
  void Tune();

  std::string CheckRestored(const Live& live, Position want);
  std::string CheckProbe(std::string_view key, const TokenList& prompt, const Probed& probed);
  std::string CheckWorld();
  std::string CheckLive(Live& live);
  // The scheduled offsets that the sequence has passed; `reachable` says where a snapshot is possible.
  template <class Reachable>
  void PassCaptures(Live& live, const Reachable& reachable);
  Live* Pick(bool idle);  // a sequence, without an open draft if `idle`; null when there is none
  TokenId Token() { return static_cast<TokenId>(choices_.Below(3)); }
  std::string_view Key() { return choices_.OneIn(4) ? "b" : "a"; }
  std::string_view OwnerName() { return std::array{"x", "y", "z"}[choices_.Below(3)]; }

  static constexpr size_t kMaxRunning = 3;
  static constexpr size_t kMaxLive = 6;
  static constexpr size_t kMaxKept = 8;

  Choices choices_;
  Layout layout_;
  bool lookahead_;
  std::unique_ptr<HybridCache> cache_;
  std::unique_ptr<SnapshotStore> store_;
  std::vector<OwnerShares::Claim> running_;
  std::vector<std::unique_ptr<Live>> live_;
  std::vector<Kept> kept_;
  size_t budget_ = 0;
  const char* operation_ = "";
  Coverage coverage_;
  AllocationFaults* faults_;
  bool all_fail_ = false;
  bool step_open_ = false;
  std::string wrong_;  // found after a failure
};

template <class Call, class Prepare>
auto Machine::Try(const Call& call, const Prepare& prepare) {
  all_fail_ = !all_fail_;
  for (int64_t point = 1; faults_ != nullptr && wrong_.empty(); ++point) {
    prepare();
    cache_->ReleaseFree();  // a stock would hide where memory is taken
    faults_->Start(point, all_fail_);
    auto result = call();
    if (!faults_->Stop()) return result;
    ++coverage_.failed_allocations;
    if (!Failed(result)) return result;  // it did without
    if (!step_open_) wrong_ = CheckWorld();
  }
  prepare();
  return call();
}

template <class Call>
void Machine::Free(const Call& call) {
  if (faults_ != nullptr) {
    cache_->ReleaseFree();
    faults_->Start(1, true);
  }
  call();
  if (faults_ != nullptr) faults_->Stop();
}

template <class Result>
bool Machine::Failed(const Result& result) {
  return !result.has_value() && result.error().code == ErrorCode::kOutOfMemory;
}

template <class Reachable>
void Machine::PassCaptures(Live& live, const Reachable& reachable) {
  const Position end = live.truth.offset();
  for (const Position at : live.scheduled) {
    if (at > end) break;
    const bool empty = at == live.capture_from;
    if (!empty && !reachable(at)) continue;
    Truth passed(&layout_);
    passed.tokens.assign(live.truth.tokens.begin(), live.truth.tokens.begin() + at);
    passed.exact_until = at <= live.truth.exact_until ? INT64_MAX : live.truth.exact_until;
    for (size_t g = 0; g < passed.intact_from.size(); ++g)
      passed.intact_from[g] = std::min(live.truth.intact_from[g], at);
    live.captured.push_back({std::move(passed), std::exchange(live.capture_from, at), empty});
  }
  std::erase_if(live.scheduled, [&](Position at) { return at <= end; });
}

}  // namespace quire::cache
