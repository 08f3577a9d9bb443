#include "runner/engine/steps/engine_admission.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <utility>

#include "runner/engine/steps/engine_images.h"
#include "runner/engine/steps/engine_inspect.h"

namespace quire::runner::engine {
namespace {

// Beside the tokens it has, so that a sequence is not admitted only to be preempted by its own first answers.
constexpr int32_t kHeadroomTokens = 64;
// Paused requests may have this part of the memory; it is given up when others need it.
constexpr size_t kPausedPart = 4;
// A reader that has taken nothing for so long gives up its place if others wait.
constexpr auto kStalledAfter = std::chrono::seconds(1);

PartyMember OwnerOf(const ActiveRequest& request) { return {request.party.number(), request.member}; }

int64_t WorkOf(const ActiveRequest& request) {
  return request.embedding ? request.generation->sequence().prompt_tokens() : request.generation->WorkLeft();
}

}  // namespace

void Admission::Enter(std::unique_ptr<ActiveRequest> request) {
  request->arrival = ++arrivals_;
  request->waiting().since = ++waits_;
  state_.waiting.push_back(std::move(request));
}

size_t Admission::Remove(const std::function<bool(const ActiveRequest&)>& ends) {
  size_t removed = 0;
  for (auto* list : {&state_.running, &state_.waiting}) {
    removed += std::erase_if(*list, [&](const std::unique_ptr<ActiveRequest>& request) {
      if (!ends(*request)) return false;
      drafts_.End(*request);
      state_.prefixes.StorePrefix(*request);
      paused_ = false;
      return true;
    });
  }
  return removed;
}

void Admission::Admit() {
  TrackStalls();
  while (!state_.waiting.empty()) {
    auto choice = ChooseNext();
    if (!choice) return;
    ActiveRequest& request = *state_.waiting[choice->next];
    // Before anybody is preempted: a follower needs no place yet.
    if (!request.waiting().paused) {
      if (auto leader = FindLeaderOf(request)) {
        request.waiting().leader = leader;
        continue;
      }
      if (state_.prefixes.StandsAside(request, state_.running)) continue;
    }
    auto admitted = std::move(state_.waiting[choice->next]);
    state_.waiting.erase(state_.waiting.begin() + static_cast<ptrdiff_t>(choice->next));
    std::ranges::sort(choice->leaving, std::ranges::greater());
    if (choice->rotation) rotation_.Record(*choice->rotation, Places(), Clock::now());
    const auto what = choice->rotation ? PreemptedFor::kHandover : PreemptedFor::kClaim;
    for (const size_t running : choice->leaving) Preempt(running, what);
    Start(std::move(admitted));
  }
}

void Admission::TrackStalls() {
  for (const auto& request : state_.running) {
    auto& since = request->running().stalled_since;
    if (!request->generation->backpressured()) {
      since.reset();
    } else if (!since) {
      since = Clock::now();
    }
  }
}

std::optional<Admission::Choice> Admission::ChooseNext() {
  const Candidates candidates = FindCandidates();
  const bool full = static_cast<int32_t>(state_.running.size()) >= state_.limits.running_max;
  if (!full) {
    if (const auto next = PickNext(candidates)) return Choice{*next, {}};
  }
  for (const auto claim : {Claim::kIdleParty, Claim::kIdleMember, Claim::kStalledPlace}) {
    if (auto choice = ChooseForPlaces(claim, candidates)) return choice;
  }
  return ChooseByRotation(candidates);
}

Admission::Candidates Admission::FindCandidates() {
  Candidates candidates;
  candidates.places = Places();
  candidates.waiting = WaitingStates(candidates.places);
  candidates.memory_is_taken = paused_ || std::ranges::any_of(candidates.waiting, &WaitingState::preempted);
  return candidates;
}

std::vector<Place> Admission::Places() const {
  std::vector<Place> places;
  places.reserve(state_.running.size());
  const size_t paused_bytes = PausedBytes();
  for (const auto& request : state_.running) {
    const auto since = request->running().stalled_since;
    const bool stalled = since && Clock::now() - *since >= kStalledAfter;
    places.push_back({.party = request->party.number(),
                      .arrival = request->arrival,
                      .stalled = stalled,
                      .exact = request->running().cached.exact,
                      .bytes = MemoryOf(*request),
                      .member = request->member,
                      .given = request->service.place_given,
                      .produced = request->generation->output_tokens() > request->service.output_before,
                      .leaving = LeavingOf(*request, paused_bytes),
                      .work = WorkOf(*request)});
  }
  return places;
}

// Keys that were shifted, and what no snapshot is kept of, would be computed again from the beginning, the
// former with other bits. A snapshot may be rounded where the operator wants that (state_cache_type).
Leaving Admission::LeavingOf(const ActiveRequest& request, size_t paused_bytes) const {
  const cache::Layout& layout = state_.cache->layout();
  const bool has_snapshot = state_.limits.prefix_cache && request.reuses && request.running().cached.exact;
  const bool has_same_bits = layout.recurrent.empty() || layout.stored_state == cache::ElementType::kF32;
  if (has_snapshot && has_same_bits) return Leaving::kSnapshot;
  const bool fits = paused_bytes + MemoryOf(request) <= state_.limits.cache_bytes / kPausedPart;
  if (fits) return Leaving::kPaused;
  return has_snapshot ? Leaving::kSnapshot : Leaving::kInexact;
}

// The first request that has the claim, and who is preempted for it. It is admitted at once, so that they do
// not change places forever. A request that was preempted for lack of memory takes no place of one that is
// read: it would soon be preempted again. But neither does it keep an idle party out.
std::optional<Admission::Choice> Admission::ChooseForPlaces(Claim claim, const Candidates& candidates) {
  const std::vector<Place>& places = candidates.places;
  if (claim == Claim::kStalledPlace && std::ranges::none_of(places, &Place::stalled)) return std::nullopt;
  const PlaceCounts counts(places);
  std::vector<WaitingState> states = candidates.waiting;
  for (size_t i = 0; claim != Claim::kStalledPlace && i < states.size(); ++i) {
    const uint64_t party = state_.waiting[i]->party.number();
    const bool has_claim = claim == Claim::kIdleParty
                               ? counts.OfParty(party) == 0
                               : !states[i].has_place && counts.LargestMemberOf(party) > 1;
    if (states[i].preempted || !has_claim) states[i].follows = true;
  }
  const auto next = NextToAdmit(states, SIZE_MAX, !state_.running.empty());
  if (!next) return std::nullopt;
  size_t left = candidates.memory_is_taken ? 0 : MemoryLeft();
  const size_t bytes = states[*next].bytes;
  const PartyMember owner = OwnerOf(*state_.waiting[*next]);
  auto leaving = PlacesToGive(places, owner, bytes - std::min(bytes, left));
  // It is memory that the rule does not find.
  if (leaving.empty() && PausedBytes() > 0 && !PlacesToGive(places, owner, 0).empty()) {
    left += GiveUpPaused();
    leaving = PlacesToGive(places, owner, bytes - std::min(bytes, left));
  }
  if (leaving.empty()) return std::nullopt;
  return Choice{*next, std::move(leaving)};
}

// As with claims, one that was preempted for lack of memory takes no place.
std::optional<Admission::Choice> Admission::ChooseByRotation(const Candidates& candidates) {
  if (state_.running.empty()) return std::nullopt;
  std::vector<RotationCandidate> rotating;
  std::vector<size_t> indexes;
  for (size_t i = 0; i < state_.waiting.size(); ++i) {
    const WaitingState& state = candidates.waiting[i];
    const ActiveRequest& request = *state_.waiting[i];
    if (state.preempted || state.follows || state.has_place) continue;
    rotating.push_back({.owner = OwnerOf(request),
                        .arrival = request.arrival,
                        .waits_since = request.waiting().since,
                        .has_run = request.service.place_given > 0,
                        .work = WorkOf(request),
                        .bytes = state.bytes});
    indexes.push_back(i);
  }
  const size_t left = candidates.memory_is_taken ? 0 : MemoryLeft();
  auto handover = rotation_.Choose(candidates.places, rotating, left, Clock::now());
  if (!handover) return std::nullopt;
  return Choice{indexes[handover->next], std::move(handover->leaving), handover->scope};
}

size_t Admission::MemoryLeft() const {
  size_t reserved = 0;
  for (const auto& request : state_.running) reserved += MemoryOf(*request);
  reserved += PausedBytes();
  return state_.limits.cache_bytes - std::min(state_.limits.cache_bytes, reserved);
}

size_t Admission::PausedBytes() const {
  size_t bytes = 0;
  for (const auto& request : state_.waiting) bytes += MemoryOf(*request);
  return bytes;
}

// They are computed again.
size_t Admission::GiveUpPaused() {
  size_t bytes = 0;
  for (const auto& request : state_.waiting) {
    if (!request->waiting().paused) continue;
    bytes += MemoryOf(*request);
    state_.prefixes.StorePrefix(*request);
    request->waiting().paused.reset();
  }
  return bytes;
}

std::optional<size_t> Admission::PickNext(const Candidates& candidates) {
  if (paused_ && !state_.running.empty()) return std::nullopt;
  std::vector<WaitingState> states = candidates.waiting;
  const PlaceCounts counts(candidates.places);
  const size_t left = MemoryLeft();
  for (size_t i = 0; i < states.size(); ++i) {
    const PartyMember owner = OwnerOf(*state_.waiting[i]);
    states[i].crowded = owner != PartyMember{} &&
                        std::cmp_greater_equal(counts.Of(owner), PlacesOfOne(state_.limits.running_max));
  }
  LimitToOwnMemory(counts, left, states);
  return NextToAdmit(states, left, !state_.running.empty());
}

// A party that runs something begins no more in the memory of others' prefixes. Those behind its first one
// that has no room wait, too: smaller ones would pass it forever.
void Admission::LimitToOwnMemory(const PlaceCounts& counts, size_t left,
                                 std::vector<WaitingState>& states) const {
  const cache::OwnerShares& owners = state_.prefixes.store().owners();
  const cache::OwnerShares::Due due = owners.BytesDue(state_.limits.cache_bytes);
  if (due.total == 0) return;
  using Order = std::pair<bool, uint64_t>;  // as NextToAdmit() has it within a party
  std::unordered_map<uint64_t, Order> without_room;
  const auto order = [&](size_t i) { return Order(states[i].has_place, states[i].arrival); };
  const auto looks_for_room = [&](size_t i) {
    return !states[i].preempted && !states[i].follows && !states[i].crowded && states[i].bytes > 0;
  };
  for (size_t i = 0; i < states.size(); ++i) {
    const fair::PartyId& party = state_.waiting[i]->party;
    if (!looks_for_room(i) || counts.OfParty(party.number()) == 0) continue;
    const size_t others = owners.BytesDueToOthers(due, party.name());
    if (others == 0 || states[i].bytes <= left - std::min(left, others)) continue;
    const auto [first, is_new] = without_room.try_emplace(party.number(), order(i));
    if (!is_new) first->second = std::min(first->second, order(i));
  }
  for (size_t i = 0; i < states.size(); ++i) {
    const auto first = without_room.find(state_.waiting[i]->party.number());
    if (first != without_room.end() && looks_for_room(i) && order(i) >= first->second)
      states[i].crowded = true;
  }
}

std::vector<WaitingState> Admission::WaitingStates(const std::vector<Place>& places) {
  std::vector<WaitingState> states;
  states.reserve(state_.waiting.size());
  const PlaceCounts counts(places);
  for (const auto& request : state_.waiting) {
    WaitingRequest& waits = request->waiting();
    if (waits.leader && !StillFollows(*request)) waits.leader.reset();
    states.push_back({.virtual_time = state_.VirtualTime(request->party),
                      .arrival = request->arrival,
                      .preempted = waits.preempted,
                      .follows = waits.leader.has_value() || request->generation->backpressured() ||
                                 !request->generation->replayed() || !waits.images_ready ||
                                 waits.tier_until.has_value(),
                      .has_place = counts.Of(OwnerOf(*request)) > 0,
                      .bytes = waits.paused ? 0 : BytesFor(*request)});
  }
  return states;
}

bool Admission::StillFollows(const ActiveRequest& request) const {
  const auto leader = std::ranges::find(state_.running, request.waiting().leader->id,
                                        [](const auto& other) { return other->generation->id(); });
  return leader != state_.running.end() && !(*leader)->generation->backpressured() &&
         (!Pauses(**leader) || (*leader)->party == request.party) &&
         (*leader)->generation->sequence().computed() < request.waiting().leader->until;
}

std::optional<Leader> Admission::FindLeaderOf(const ActiveRequest& request) {
  if (!state_.limits.prefix_cache || !request.reuses || state_.running.empty()) return std::nullopt;
  std::vector<RunningPrefix> prefixes;
  for (const auto& other : state_.running) {
    if (other->isolation != request.isolation || other->generation->sequence().prefill_left() == 0) continue;
    if (!other->reuses || other->generation->backpressured()) continue;
    if (Pauses(*other) && other->party != request.party) continue;  // it waits for what its party owes
    prefixes.push_back({other->generation->id(), other->generation->sequence().tokens(),
                        other->generation->sequence().computed()});
  }
  if (prefixes.empty()) return std::nullopt;
  const auto leader = FindLeader(request.generation->ReusableTokens(),
                                 state_.prefixes.Reusable(request, state_.running), prefixes);
  if (!leader) return std::nullopt;
  for (const auto& other : state_.running) {
    if (other->generation->id() == leader->id) state_.prefixes.ScheduleSnapshotAt(*other, leader->until);
  }
  return leader;
}

size_t Admission::BytesFor(const ActiveRequest& request) const {
  const int64_t tokens =
      static_cast<int64_t>(request.generation->sequence().tokens().size()) + kHeadroomTokens;
  return SequenceBytes(state_.cache->layout(), std::min<int64_t>(tokens, state_.context_max),
                       StepTarget().tokens_max);
}

// It grows with the answer. A shared prefix is counted at its source.
size_t Admission::MemoryOf(const ActiveRequest& request) const {
  const CacheState* const cached = request.cached();
  if (cached == nullptr) return 0;
  const cache::Layout& layout = state_.cache->layout();
  const size_t whole = BytesFor(request);
  return whole - std::min(whole, SharedBytes(layout, cached->shared_tokens));
}

void Admission::Start(std::unique_ptr<ActiveRequest> request) {
  const auto begin = Clock::now();
  request->service.place_given = ++places_given_;
  request->service.output_before = request->generation->output_tokens();
  WaitingRequest waited = std::move(request->waiting());
  auto& runs = request->state.emplace<RunningRequest>();
  if (waited.paused) {
    runs.cached = *std::move(waited.paused);
    drafts_.Start(*request, {});
    state_.running.push_back(std::move(request));
    return;
  }
  const PrefixReuse::Outcome reuse = state_.prefixes.AttachPrefix(*request, state_.running);
  if (!PromptImages::HasBehind(*request, reuse.reused)) {
    state_.prefixes.StorePrefix(*request);
    request->images.encodes_all = true;
    waited.images_ready = false;
    request->state = std::move(waited);
    state_.waiting.push_back(std::move(request));
    return;
  }
  request->generation->Start(reuse.reused,
                             {.miss = reuse.miss,
                              .divergence = DivergenceOf(*state_.model.tokenizer, *request, reuse),
                              .restore_ns = (Clock::now() - begin).count()});
  if (request->embedding) {
    Embedding& embedding = *request->embedding;
    embedding.pooler.emplace(embedding.pooling, state_.model.model->hidden_size(),
                             request->generation->sequence().prefill_left());
  }
  drafts_.Start(*request, reuse);
  state_.running.push_back(std::move(request));
}

bool Admission::FreeMemory() {
  // Leases of edges that go on behind what their requests stand on: one may keep a long answer for a few
  // tokens. A sequence has its pages also without.
  bool any = false;
  for (const auto& request : state_.running) {
    cache::Lease& lease = request->running().cached.lease;
    if (!lease.keeps_more()) continue;
    lease = {};
    any = true;
  }
  if (any || state_.prefixes.ReleaseTierMemory()) return true;
  if (state_.running.size() < 2) return GiveUpPaused() > 0;
  // Preempts the youngest: first those whose readers take nothing. One whose keys were shifted would come
  // back with other bits: only when nobody else is left.
  std::vector<Place> places = Places();
  for (size_t i = 0; i < places.size(); ++i) {
    places[i].stalled = state_.running[i]->generation->backpressured();
  }
  Preempt(PlaceToPreempt(places), PreemptedFor::kMemory);
  paused_ = true;
  return true;
}

// What it computed becomes a snapshot, or it keeps its sequence.
void Admission::Preempt(size_t running, PreemptedFor what) {
  const auto position = state_.running.begin() + static_cast<ptrdiff_t>(running);
  ActiveRequest& request = **position;
  drafts_.End(request);
  const bool pauses =
      what == PreemptedFor::kHandover && LeavingOf(request, PausedBytes()) == Leaving::kPaused;
  WaitingRequest waits{.since = ++waits_,
                       .preempted = what == PreemptedFor::kMemory,
                       .images_ready = pauses || request.images.spans.empty()};
  if (pauses) {
    waits.paused = std::move(request.running().cached);
  } else {
    state_.prefixes.StorePrefix(request);
  }
  request.state = std::move(waits);
  state_.waiting.push_back(std::move(*position));
  state_.running.erase(position);
  ++preemptions_;
}

}  // namespace quire::runner::engine
