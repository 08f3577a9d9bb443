#include "cache/testing/model_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace quire::cache {
namespace {

constexpr Position kMaxTokens = 48;

struct NamedMix {
  const char* name;
  Layout layout;
  bool lookahead = false;
};

const std::vector<NamedMix>& Mixes() {
  static const std::vector<NamedMix> mixes = {
      {"causal", {.page_tokens = 4, .groups = {FullGroup()}}},
      {"causal_lookahead", {.page_tokens = 3, .groups = {FullGroup()}}, true},
      {"window", {.page_tokens = 1, .groups = {WindowGroup(7)}}},
      {"windows", {.page_tokens = 2, .groups = {FullGroup(), WindowGroup(5), WindowGroup(9)}}},
      {"recurrent", {.recurrent = {ConvLayer(), DeltaLayer()}}},
      {"hybrid", {.page_tokens = 2, .groups = {FullGroup()}, .recurrent = {ConvLayer(), DeltaLayer()}}},
      {"all",
       {.page_tokens = 4,
        .groups = {WindowGroup(6), FullGroup(), WindowGroup(3)},
        .recurrent = {DeltaLayer()}},
       true},
      {"chunks", {.page_tokens = 4, .groups = {FullGroup(), ChunkGroup(7), ChunkGroup(8)}}, true},
      {"integers",
       {.page_tokens = 4,
        .groups = {{.layers = 2, .kv_heads = 1, .head_dim = 2, .element = ElementType::kI16},
                   {.layers = 1, .kv_heads = 2, .head_dim = 4, .element = ElementType::kI16, .window = 6}}},
       true},
      {"index", {.page_tokens = 4, .groups = {FullGroup(), RowGroup()}}},
      {"blocks", {.page_tokens = 4, .groups = {WindowGroup(5), RowGroup(6), BlockGroup(3), BlockGroup(9)}}},
      {"stored",
       {.page_tokens = 2,
        .groups = {FullGroup()},
        .recurrent = {ConvLayer(), WideDeltaLayer()},
        .stored_state = ElementType::kBF16}},
  };
  return mixes;
}

}  // namespace

uint32_t Choices::Below(uint32_t bound) {
  if (from_bytes_) return at_ < bytes_.size() ? bytes_[at_++] % bound : 0;
  state_ ^= state_ << 13;
  state_ ^= state_ >> 7;
  state_ ^= state_ << 17;
  return static_cast<uint32_t>((state_ >> 16) % bound);
}

size_t MachineMixes() { return Mixes().size(); }
std::string MachineMixName(size_t mix) { return Mixes()[mix].name; }

Machine::Machine(size_t mix, Choices choices, AllocationFaults* faults)
    : choices_(choices), layout_(Mixes()[mix].layout), lookahead_(Mixes()[mix].lookahead), faults_(faults) {
  Capacity capacity;
  const int32_t room = 4 + static_cast<int32_t>(choices_.Below(12));  // worlds of want and of plenty
  for (size_t g = 0; g < layout_.groups.size(); ++g) {
    const bool window = layout_.groups[g].window > 0;
    capacity.pages.push_back(room * (window ? 10 : 20) / layout_.page_tokens);
  }
  capacity.slots = layout_.recurrent.empty() ? 0 : room;
  cache_ = std::move(*HybridCache::Create(layout_, capacity));
  if (choices_.OneIn(2)) {
    // As many bytes, but any kind may take them.
    const size_t bytes = cache_->stats().capacity_bytes;
    cache_ = std::move(*HybridCache::Create(layout_, {.bytes = bytes}));
  }
  // Where the store may fill the memory, steps live on what it gives up.
  budget_ = cache_->stats().capacity_bytes / (1 + choices_.Below(2));
  // Worlds in which everything was used lately, and others in which nothing was: there nodes change owners.
  using std::chrono::nanoseconds;
  const nanoseconds spared_for = choices_.OneIn(2) ? std::chrono::hours(1) : nanoseconds(-1);
  store_ = std::make_unique<SnapshotStore>(
      *cache_, StoreOptions{.budget_bytes = budget_, .lookahead = lookahead_, .spared_for = spared_for});
}

Machine::Coverage Machine::coverage() const {
  Coverage coverage = coverage_;
  coverage.evictions = store_->stats().evictions + store_->stats().merges;
  return coverage;
}

std::string Machine::Step() {
  std::string wrong = Act(choices_.Below(41));
  if (wrong.empty()) wrong = std::exchange(wrong_, {});
  if (wrong.empty()) wrong = CheckWorld();
  return wrong;
}

std::string Machine::Act(uint32_t kind) {
  if (kind < 12) return Append();
  switch (kind) {
    case 12:
    case 13:
      operation_ = "new";
      if (live_.size() < kMaxLive) {
        auto live = std::make_unique<Live>(&layout_);
        live->sequence = Try([&] { return cache_->NewSequence(); });
        live_.push_back(std::move(live));
      }
      return {};
    case 14:
    case 15:
      operation_ = "drop";
      if (!live_.empty()) {
        const auto gone = live_.begin() + choices_.Below(static_cast<uint32_t>(live_.size()));
        Free([&] { live_.erase(gone); });
      }
      return {};
    case 16:
      operation_ = "drop snapshot";
      if (!kept_.empty()) {
        const auto gone = kept_.begin() + choices_.Below(static_cast<uint32_t>(kept_.size()));
        Free([&] { kept_.erase(gone); });
      }
      return {};
    case 17:
    case 18:
      return Fork();
    case 19:
    case 20:
      return Truncate();
    case 21:
    case 22:
      return CaptureSnapshot();
    case 23:
    case 24:
      return RestoreSnapshot();
    case 25:
      return SplitSnapshot();
    case 26:
      return MergeSnapshots();
    case 27:
    case 28:
      return ScheduleCapture();
    case 29:
      return TakeCaptures();
    case 30:
    case 31:
      return OpenDraft();
    case 32:
    case 33:
      return CloseDraft();
    case 34:
      return RemoveRange();
    case 35:
    case 36:
      return Insert();
    case 37:
    case 38:
    case 39:
      return RestoreFromStore();
    default:
      if (choices_.OneIn(2)) return ImportSnapshot();
      Tune();
      return {};
  }
}

Machine::Live* Machine::Pick(bool idle) {
  if (live_.empty()) return nullptr;
  Live* live = live_[choices_.Below(static_cast<uint32_t>(live_.size()))].get();
  return idle && live->draft ? nullptr : live;
}

std::string Machine::Append() {
  operation_ = "append";
  // Sometimes two steps are open at once, on different sequences.
  const bool two = choices_.OneIn(4);
  Batch batches[2];
  const uint32_t width = 1 + choices_.Below(3);
  for (uint32_t k = 0; k < width; ++k) {
    Live* live = Pick(false);
    const auto taken = [&](const Batch& batch) {
      return std::ranges::find(batch.chosen, live) != batch.chosen.end();
    };
    if (live == nullptr || std::ranges::any_of(batches, taken)) continue;
    const auto room = kMaxTokens - live->truth.offset() - static_cast<Position>(live->drafted.size());
    if (room <= 0) continue;
    live->appends_to_draft = live->draft && !(live->isolated && choices_.OneIn(3));
    Batch& batch = batches[two ? k % 2 : 0];
    batch.chosen.push_back(live);
    batch.counts.push_back(
        static_cast<int32_t>(choices_.Between(1, std::min<Position>(room, choices_.OneIn(3) ? 12 : 3))));
  }
  for (Batch& batch : batches) {
    if (std::string wrong = OpenStep(batch); !wrong.empty()) return wrong;
  }
  step_open_ = false;
  for (Batch& batch : batches) {
    if (std::string wrong = RunOpenStep(batch); !wrong.empty()) return wrong;
  }
  const uint32_t first = two ? choices_.Below(2) : 0;
  CloseStep(batches[first]);
  CloseStep(batches[1 - first]);
  return {};
}

std::string Machine::OpenStep(Batch& batch) {
  if (batch.chosen.empty()) return {};
  std::vector<quire::cache::Append> appends;
  bool ready = true;
  for (size_t k = 0; k < batch.chosen.size(); ++k) {
    Live& live = *batch.chosen[k];
    const bool drafts = live.appends_to_draft;
    appends.push_back({drafts ? &live.draft->sequence() : &live.sequence, batch.counts[k]});
    ready = ready && (drafts ? !live.draft_lost : live.truth.ready());
    TokenList all = drafts ? live.draft_base : live.truth.tokens;
    if (drafts) all.insert(all.end(), live.drafted.begin(), live.drafted.end());
    for (int32_t t = 0; t < batch.counts[k]; ++t) all.push_back(Token());
    batch.tokens.push_back(std::move(all));
  }
  const Demand demand = cache_->Need(appends);
  const size_t used = cache_->stats().used_bytes;
  const uint64_t given_up = coverage().evictions;
  auto step = Try([&] { return cache_->Begin(appends); });
  coverage_.reclaims += coverage().evictions > given_up ? 1 : 0;
  if (!ready) return step || step.error().code != ErrorCode::kUnsupported ? "appended without state" : "";
  if (step) {
    batch.step = std::move(*step);
    step_open_ = true;
    return {};
  }
  ++coverage_.out_of_memory;
  if (demand.fits()) return "failed although the worst case fits: " + step.error().message;
  if (cache_->stats().used_bytes > used) return "a failure took memory";
  if (cache_->Refreshed(demand).fits()) return "failed although the worst case fits by now";
  if (choices_.OneIn(8)) {
    store_->Clear();
    if (cache_->Begin(appends)) return "failed although the store had what was needed";
  }
  const bool memory =
      step.error().code == ErrorCode::kOutOfPages || step.error().code == ErrorCode::kOutOfSlots;
  return memory ? "" : "unexpected error: " + step.error().message;
}

std::string Machine::RunOpenStep(Batch& batch) {
  if (batch.step == nullptr) return {};
  for (size_t k = 0; k < batch.chosen.size(); ++k) {
    std::vector<Position>& slots = batch.slots.emplace_back();
    for (const StateCapture& capture : batch.step->Captures(k)) {
      slots.push_back(batch.step->offset(k) + capture.after);
    }
  }
  std::string wrong = RunStep(layout_, *batch.step, batch.tokens);
  return wrong.empty() ? CheckRefusedInside(batch) : wrong;
}

// Nothing but the step may touch a sequence that is in one.
std::string Machine::CheckRefusedInside(const Batch& batch) {
  Live& live = *batch.chosen.front();
  if (live.isolated && live.appends_to_draft) return {};
  const auto refused = [](const auto& result) {
    return !result.has_value() && result.error().code == ErrorCode::kInvalid;
  };
  const bool all =
      refused(cache_->Fork(live.sequence, live.truth.offset())) &&
      refused(cache_->CaptureSnapshot(live.sequence)) && refused(cache_->View(live.sequence)) &&
      refused(cache_->Truncate(live.sequence, 0)) && refused(cache_->RemoveRange(live.sequence, 0, 1, {})) &&
      refused(cache_->ScheduleCapture(live.sequence, kMaxTokens)) &&
      refused(cache_->Speculate(live.sequence)) && refused(cache_->SpeculateIsolated(live.sequence)) &&
      (kept_.empty() || refused(cache_->Restore(live.sequence, kept_.front().snapshot)));
  return all ? "" : "something was allowed on a sequence in a step";
}

void Machine::CloseStep(Batch& batch) {
  if (batch.step == nullptr) return;
  if (choices_.OneIn(10)) {
    ++coverage_.cancels;
    Free([&] { batch.step.reset(); });
    for (Live* live : batch.chosen) Cancelled(*live);
    return;
  }
  ++coverage_.appends;
  Free([&] {
    batch.step->Commit();
    batch.step.reset();
  });
  for (size_t k = 0; k < batch.chosen.size(); ++k) {
    const TokenList& all = batch.tokens[k];
    Committed(*batch.chosen[k], TokenList(all.end() - batch.counts[k], all.end()), batch.slots[k]);
  }
}

// `slots`: where the step had room for an interior capture.
void Machine::Committed(Live& live, const TokenList& added, std::span<const Position> slots) {
  if (live.appends_to_draft) {
    live.drafted.insert(live.drafted.end(), added.begin(), added.end());
    return;
  }
  live.truth.tokens.insert(live.truth.tokens.end(), added.begin(), added.end());
  live.truth.state = true;
  PassCaptures(live, [&](Position at) {
    return !live.truth.recurrent() || at == live.truth.offset() ||
           std::ranges::find(slots, at) != slots.end();
  });
}

void Machine::Cancelled(Live& live) {
  if (layout_.recurrent.empty()) return;
  if (!live.appends_to_draft) {
    live.truth.state = live.truth.offset() == 0;
  } else if (live.draft_base.size() + live.drafted.size() > 0) {
    live.draft_lost = true;
  }
}

std::string Machine::Fork() {
  operation_ = "fork";
  Live* source = Pick(false);
  if (source == nullptr || live_.size() >= kMaxLive) return {};
  const Position at =
      choices_.OneIn(3) ? source->truth.offset() : choices_.Between(0, source->truth.offset());
  auto fork = Try([&] { return cache_->Fork(source->sequence, at); });
  if (!fork) return "fork refused: " + fork.error().message;
  if (cache_->Fork(source->sequence, source->truth.offset() + 1)) return "forked beyond the offset";
  auto live = std::make_unique<Live>(&layout_);
  live->sequence = std::move(*fork);
  live->truth = source->truth;
  live->truth.CutTo(at);
  live->capture_from = at;
  live_.push_back(std::move(live));
  ++coverage_.forks;
  return {};
}

std::string Machine::Truncate() {
  operation_ = "truncate";
  Live* live = Pick(true);
  if (live == nullptr) return {};
  const Position offset = live->truth.offset();
  const Position at = choices_.OneIn(2) ? choices_.Between(std::max<Position>(0, offset - 3), offset)
                                        : choices_.Between(0, offset);
  const bool legal = at == offset || live->truth.Reaches(at);
  const auto done = Try([&] { return cache_->Truncate(live->sequence, at); });
  if (done.has_value() != legal) return fmt::format("truncate to {}: legal is {}", at, legal);
  if (!legal) {
    ++coverage_.refusals;
    return done.error().code == ErrorCode::kUnsupported ? "" : "wrong error";
  }
  ++coverage_.truncates;
  if (at != offset) live->truth.CutTo(at);
  live->DiscardCaptures(at);
  return {};
}

std::string Machine::RemoveRange() {
  operation_ = "remove range";
  Live* live = Pick(true);
  if (live == nullptr || live->truth.offset() == 0) return {};
  const Position begin = choices_.Between(0, live->truth.offset() - 1);
  const Position end = choices_.Between(begin + 1, live->truth.offset());
  const RotateKeys rotate = [&](const MovedKeys& moved) {
    if (faults_ != nullptr) faults_->Suspend();
    RotateFakeKeys(layout_, moved);
    if (faults_ != nullptr) faults_->Resume();
  };
  const auto done = Try([&] { return cache_->RemoveRange(live->sequence, begin, end, rotate); });
  if (!done) {
    if (done.error().code == ErrorCode::kOutOfPages) return {};
    const bool refused = done.error().code == ErrorCode::kUnsupported && !live->truth.CanRemove(begin, end);
    return refused ? "" : "removal refused: " + done.error().message;
  }
  if (!live->truth.CanRemove(begin, end)) return "removed what it could not";
  live->truth.Remove(begin, end);
  live->DiscardCaptures(begin);
  ++coverage_.removals;
  return {};
}

// What runs for an owner takes memory of its, more and less.
void Machine::RunForOwner() {
  if (running_.size() < kMaxRunning && choices_.OneIn(2))
    running_.push_back(store_->EnterRunning(OwnerName()));
  if (running_.empty()) return;
  const auto one = running_.begin() + choices_.Below(static_cast<uint32_t>(running_.size()));
  Free([&] { one->SetBytes(choices_.Below(static_cast<uint32_t>(budget_ / 2))); });
  if (choices_.OneIn(4)) Free([&] { running_.erase(one); });
}

void Machine::Tune() {
  operation_ = "tune";
  switch (choices_.Below(5)) {
    case 0:
      store_->AdvanceClock();
      break;
    case 1:
      Free([&] { cache_->ReleaseFree(); });
      break;
    case 2: {
      const size_t bytes = budget_ / (1 + choices_.Below(4));
      Free([&] { store_->set_budget(bytes); });
      break;
    }
    case 3:
      return RunForOwner();
    default:
      if (choices_.OneIn(8)) Free([&] { store_->Clear(); });
  }
}

}  // namespace quire::cache
