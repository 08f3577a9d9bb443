// One request that the engine has: what it generates and what of the caches it holds.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "api/base/fair/party.h"
#include "api/base/ids.h"
#include "cache/hybrid_cache.h"
#include "cache/snapshot_store.h"
#include "runner/draft/draft_length_controller.h"
#include "runner/draft/drafter.h"
#include "runner/draft/ngram_index.h"
#include "runner/engine/steps/active_generation.h"
#include "runner/engine/steps/image_encoder.h"
#include "runner/models/pooling.h"

namespace quire::runner::engine {

// A running request that is about to compute what this one's prompt begins with too.
struct Leader {
  api::RequestId id;
  int32_t until = 0;  // tokens they share
};

// The state of an embedding request beside its tokens.
struct Embedding {
  models::Pooling pooling = models::Pooling::kLast;
  int32_t dimensions = 0;
  bool normalize = true;
  bool rank = false;                     // the score of a pair, not a vector
  std::optional<models::Pooler> pooler;  // of the tokens computed since the request began to run (again)
};

// Speculative decoding of a request that runs.
struct Draft {
  draft::NgramIndex ngrams;
  draft::Candidate round;                    // the coming step's, or the last one's
  bool has_round = false;                    // `round` is the coming step's
  std::vector<api::TokenId> tokens;          // draft tokens of the coming step
  std::optional<cache::Speculation> open;    // transaction of a step with draft tokens
  std::unique_ptr<draft::DraftState> state;  // of the drafter; null: none
  std::vector<float> hidden;                 // states that its drafter has not read yet
};

// What the caches have of a request that runs or is paused.
struct CacheState {
  cache::Sequence sequence;
  cache::Lease lease;               // on the deepest snapshot that the sequence stands on
  cache::OwnerShares::Claim claim;  // what its party has beside stored prefixes,
  int32_t claimed_from = 0;         // from this token on
  bool exact = true;                // the caches hold what computing its tokens in place gives
  int32_t shared_tokens = 0;        // of its prefix, whose pages are another's
};

// The images of a prompt.
struct EncodedImages {
  std::vector<ImageSpan> spans;                              // rows of the prompt, ascending
  std::vector<std::shared_ptr<const EncodedImage>> encoded;  // [spans]; null: not there, or not needed
  bool encodes_all = false;  // a prefix that held some went before the request began
};

// What a request has got so far, each time that it ran.
struct Service {
  uint64_t place_given = 0;                  // order in which requests got places; 0: it has had none
  int32_t output_before = 0;                 // tokens of its answer then
  int64_t skipped_tokens = 0;                // see SequenceState
  std::chrono::nanoseconds sampling_time{};  // of its last token
  std::optional<uint64_t> last_sampled;      // the number of that step, or of the one before its first
  std::array<draft::AcceptanceStats, draft::kSources> acceptance = {};  // of draft tokens, by source
};

// What a request has while it waits.
struct WaitingRequest {
  uint64_t since = 0;        // order in which requests began to wait
  bool preempted = false;    // for lack of memory
  bool images_ready = true;  // those are encoded that a prefix does not have
  std::optional<Leader> leader = {};
  std::optional<Clock::time_point> tier_until = {};  // it waits for its prefix below the snapshot store
  std::optional<CacheState> paused = {};             // kept while others run
};

// And while it runs.
struct RunningRequest {
  CacheState cached;
  Draft draft;                                     // closed before the sequence is gone
  bool sits_out = false;                           // its next token is not sampled yet (sampling_share.h)
  std::optional<Clock::time_point> stalled_since;  // its reader takes nothing
  // In a step:
  size_t hidden_begin = 0;  // of its rows among the hidden states
  int32_t scored_rows = 0;  // of its prompt, before a row that is sampled from
};

// Owned by the engine, in its waiting or its running list. Engine thread only.
struct ActiveRequest {
  std::unique_ptr<ActiveGeneration> generation;
  fair::PartyId
      party;  // whom it counts for in fairness, and whose places in the batch it takes (api::Client)
  uint64_t member = 0;                  // and who of the party
  std::string isolation;                // whose cached prefixes it may see
  uint64_t arrival = 0;                 // order among all requests of this runner
  std::vector<int32_t> boundaries;      // offsets of message ends in the prompt, ascending
  std::vector<int32_t> restore_points;  // and of those that the client marked
  EncodedImages images;
  std::optional<Embedding> embedding;
  bool reuses = true;  // begins at cached prefixes and leaves some: not where every token's state is needed
  bool tried_tier = false;  // for its prefix below the snapshot store
  Service service;
  std::variant<WaitingRequest, RunningRequest> state;

  WaitingRequest& waiting() { return std::get<WaitingRequest>(state); }
  const WaitingRequest& waiting() const { return std::get<WaitingRequest>(state); }
  RunningRequest& running() { return std::get<RunningRequest>(state); }
  const RunningRequest& running() const { return std::get<RunningRequest>(state); }
  // Null where it waits and is not paused.
  CacheState* cached() {
    if (auto* runs = std::get_if<RunningRequest>(&state)) return &runs->cached;
    return waiting().paused ? &*waiting().paused : nullptr;
  }
  const CacheState* cached() const {
    if (const auto* runs = std::get_if<RunningRequest>(&state)) return &runs->cached;
    return waiting().paused ? &*waiting().paused : nullptr;
  }
};

// The next step samples nothing of it. What goes before the token that is sampled from can be computed.
// REQUIRES, as the next one: it runs.
inline bool SamplesLater(const ActiveRequest& request) {
  return request.running().sits_out || !request.generation->choice().has_mask();
}

// Nothing of it is computed in the next step.
inline bool Pauses(const ActiveRequest& request) {
  return request.generation->backpressured() ||
         (SamplesLater(request) && request.generation->sequence().prefill_left() <= 1);
}

using ActiveRequests = std::vector<std::unique_ptr<ActiveRequest>>;

}  // namespace quire::runner::engine
