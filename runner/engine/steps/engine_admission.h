// Who runs: admission, waiting for a common prefix, preemption. Engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "runner/engine/shares/place_share.h"
#include "runner/engine/steps/admission.h"
#include "runner/engine/steps/engine_draft.h"
#include "runner/engine/steps/engine_state.h"

namespace quire::runner::engine {

class Admission {
 public:
  // Both outlive it.
  Admission(EngineState& state, Drafts& drafts)
      : state_(state), drafts_(drafts), rotation_(state.limits.time_slice) {}

  void Enter(std::unique_ptr<ActiveRequest> request);  // which waits
  // Takes out those that have ended or are canceled; how many.
  size_t Remove(const std::function<bool(const ActiveRequest&)>& ends);
  // Between two steps: has waiting requests run.
  void Admit();
  // For a step that found no memory: wide leases first, then the youngest request. False: there is nothing to
  // give up, and nobody to preempt.
  bool FreeMemory();

  uint64_t preemptions() const { return preemptions_; }

 private:
  struct Choice {
    size_t next = 0;              // index into the waiting ones
    std::vector<size_t> leaving;  // indexes into the running ones; empty: it needs nobody's place
    std::optional<PlaceRotation::Scope> rotation = {};  // it is a handover of this
  };
  enum class PreemptedFor : uint8_t { kMemory, kClaim, kHandover };
  enum class Claim : uint8_t {
    kIdleParty,     // its party runs nothing
    kIdleMember,    // it is of a member that runs nothing, and another of its party has more than one place
    kStalledPlace,  // a reader takes nothing
  };
  // Valid for one decision.
  struct Candidates {
    std::vector<Place> places;          // of the running ones
    std::vector<WaitingState> waiting;  // of the waiting ones
    bool memory_is_taken = false;       // what is left of it is for requests that were preempted
  };
  void TrackStalls();
  std::optional<Choice> ChooseNext();
  Candidates FindCandidates();
  std::optional<Choice> ChooseForPlaces(Claim claim, const Candidates& candidates);
  std::optional<Choice> ChooseByRotation(const Candidates& candidates);
  std::optional<size_t> PickNext(const Candidates& candidates);  // index into the waiting ones
  std::vector<Place> Places() const;
  std::vector<WaitingState> WaitingStates(const std::vector<Place>& places);
  Leaving LeavingOf(const ActiveRequest& request, size_t paused_bytes) const;
  // Marks those as crowded for which there is no memory beside what is due to other parties.
  void LimitToOwnMemory(const PlaceCounts& counts, size_t left, std::vector<WaitingState>& states) const;
  bool StillFollows(const ActiveRequest& request) const;
  std::optional<Leader> FindLeaderOf(const ActiveRequest& request);
  void Start(std::unique_ptr<ActiveRequest> request);
  void Preempt(size_t running, PreemptedFor what);

  size_t BytesFor(const ActiveRequest& request) const;
  size_t MemoryOf(const ActiveRequest& request) const;
  size_t MemoryLeft() const;
  size_t PausedBytes() const;
  size_t GiveUpPaused();  // bytes that this frees

  EngineState& state_;
  Drafts& drafts_;
  PlaceRotation rotation_;
  bool paused_ = false;                                   // memory ran out; nobody has ended since
  uint64_t arrivals_ = 0, places_given_ = 0, waits_ = 0;  // so far
  uint64_t preemptions_ = 0;
};

}  // namespace quire::runner::engine
