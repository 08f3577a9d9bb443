// One request that the engine has: what it generates and what of the caches it holds.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

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

// Speculative decoding of one request.
struct Draft {
  draft::NgramIndex ngrams;
  std::array<draft::AcceptanceStats, draft::kSources> acceptance = {};  // by source
  draft::Candidate round;                    // the coming step's, or the last one's
  bool has_round = false;                    // `round` is the coming step's
  std::vector<api::TokenId> tokens;          // draft tokens of the coming step
  std::optional<cache::Speculation> open;    // transaction of a step with draft tokens
  std::unique_ptr<draft::DraftState> state;  // of the drafter; null: none
  std::vector<float> hidden;                 // states that its drafter has not read yet
};

// Owned by the engine, in its waiting or its running list. Engine thread only.
struct ActiveRequest {
  std::unique_ptr<ActiveGeneration> generation;
  std::string party;   // whom it counts for in fairness, and whose places in the batch it takes (api::Client)
  std::string member;  // and who of the party
  std::string isolation;                // whose cached prefixes it may see
  uint64_t arrival = 0;                 // order among all requests of this runner
  std::vector<int32_t> boundaries;      // offsets of message ends in the prompt, ascending
  std::vector<int32_t> restore_points;  // and of those that the client marked
  std::vector<ImageSpan> images;        // rows of its prompt, ascending
  std::vector<std::shared_ptr<const EncodedImage>> encoded;  // [images]; null: not there, or not needed
  bool images_ready = true;                                  // `encoded` has what a prefix does not
  bool encodes_all = false;                                  // a prefix that held some went before it began
  std::optional<Embedding> embedding;
  bool reuses = true;  // begins at cached prefixes and leaves some: not where every token's state is needed

  uint64_t place_given = 0;   // order in which requests got places; 0: it has had none
  int32_t output_before = 0;  // tokens of its answer then

  // While it waits:
  uint64_t waits_since = 0;  // order in which requests began to wait
  std::optional<Leader> leader;
  bool preempted = false;  // preempted for lack of memory
  // The state of asking for its prefix below the snapshot store (prefix_tier.h).
  enum class TierWait : uint8_t { kNotAsked, kWaiting, kDone } tier_wait = TierWait::kNotAsked;
  Clock::time_point tier_deadline{};  // while it waits for that

  // While it runs; paused ones keep these while they wait:
  cache::Sequence sequence;
  cache::Lease lease;                              // on the deepest snapshot that the sequence stands on
  cache::OwnerShares::Claim claim;                 // what its party has beside stored prefixes,
  int32_t claimed_from = 0;                        // from this token on
  bool exact = true;                               // the caches hold what computing its tokens in place gives
  int64_t skipped_tokens = 0;                      // see SequenceState
  bool sits_out = false;                           // its next token is not sampled yet (sampling_share.h)
  std::chrono::nanoseconds sampling_time{};        // of its last token
  std::optional<uint64_t> last_sampled;            // the number of that step, or of the one before its first
  int32_t shared_tokens = 0;                       // of its prefix, whose pages are another's
  std::optional<Clock::time_point> stalled_since;  // its reader takes nothing
  size_t hidden_begin = 0;                         // of its rows among the hidden states of a step
  int32_t scored_rows = 0;  // of its prompt in a step, before a row that is sampled from
  Draft draft;              // closed before `sequence` is gone
};

// The next step samples nothing of it. What goes before the token that is sampled from can be computed.
inline bool SamplesLater(const ActiveRequest& request) {
  return request.sits_out || !request.generation->has_mask();
}

// Nothing of it is computed in the next step.
inline bool Pauses(const ActiveRequest& request) {
  return request.generation->backpressured() ||
         (SamplesLater(request) && request.generation->prefill_left() <= 1);
}

using ActiveRequests = std::vector<std::unique_ptr<ActiveRequest>>;

}  // namespace quire::runner::engine
