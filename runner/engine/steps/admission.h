// Which waiting request runs next, and what memory it is counted for. Pure functions of state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "api/base/ids.h"
#include "cache/layout.h"
#include "runner/engine/steps/active_request.h"

namespace quire::runner::engine {

// Bytes of a sequence of `tokens` tokens that shares nothing, appended in batches of at most `batch`.
size_t SequenceBytes(const cache::Layout& layout, int64_t tokens, int64_t batch);
// What a sequence need not have of its own of a prefix of this many tokens that it shares: a window leaves it
// behind, and each sequence has a recurrent slot.
size_t SharedBytes(const cache::Layout& layout, int64_t tokens);

struct WaitingState {
  double virtual_time = 0;  // of its party (EngineState::VirtualTime)
  uint64_t arrival = 0;
  bool preempted = false;
  bool follows = false;    // waits for another request to compute what both begin with, or for its reader
  bool has_place = false;  // its member of its party runs something
  bool crowded = false;    // it has all places that one may have (PlacesOfOne)
  size_t bytes = 0;
};

// Preempted requests first, then the party with the smallest virtual time, then members without a place, then
// order of arrival; followers and requests of crowded members are skipped. Nothing when the next one finds
// too little memory left: nobody overtakes it, so that it is not starved. With nobody running it is admitted
// whatever its size.
std::optional<size_t> NextToAdmit(std::span<const WaitingState> waiting, size_t bytes_left,
                                  bool anyone_running);

int32_t CommonPrefix(std::span<const api::TokenId> a, std::span<const api::TokenId> b);

// The state of a running request that matters to requests with the same prefix.
struct RunningPrefix {
  api::RequestId id;
  std::span<const api::TokenId> tokens;  // all it is going to compute before it samples
  int32_t computed = 0;
};

// The running request that will compute the longest part that `prompt` begins with too and that cannot be
// reused yet: at least kLeadMin tokens beyond `reusable`. A prompt's last token is never shared.
std::optional<Leader> FindLeader(std::span<const api::TokenId> prompt, int32_t reusable,
                                 std::span<const RunningPrefix> running);

inline constexpr int32_t kLeadMin = 16;

}  // namespace quire::runner::engine
