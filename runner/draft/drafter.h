// Sources of draft tokens for a target model.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/ids.h"
#include "cache/sequence.h"
#include "runner/kernels/thread_pool.h"

namespace quire::runner::draft {

using api::TokenId;

// State of a drafter for one running sequence. Destroyed before its drafter.
class DraftState {
 public:
  virtual ~DraftState() = default;
};

// The sequence that a draft state is created for.
struct DraftContext {
  std::string_view isolation;            // whose cached prefixes it may see
  std::span<const TokenId> tokens;       // all of it so far
  std::span<const int32_t> boundaries;   // ends of messages, ascending: where others are likely to branch off
  const DraftState* neighbor = nullptr;  // of a running sequence that began alike; null: none
  int32_t shared = 0;                    // tokens that it has in common with this one
  std::string_view owner = {};           // for whom its prefixes are kept (cache/owner_shares.h)
};

// One sequence to draft for, or only to follow.
struct DraftRequest {
  DraftState* state = nullptr;
  std::span<const TokenId> tokens;    // the sequence; the first ones as they were at the last call
  cache::Sequence* target = nullptr;  // where it stands in the target's caches: all but the newest token
  std::span<const float>
      hidden;                    // [n, hidden_size]: final states of the last n tokens there (RequiredHidden)
  int32_t num_draft_tokens = 0;  // 0 = only keep up with the sequence
  std::vector<TokenId>* draft_tokens =
      nullptr;  // output, at most `num_draft_tokens`, none while the drafter is behind; null: not wanted
};

// Which of the target's final hidden states a drafter reads.
enum class RequiredHidden : uint8_t {
  kNone,
  kLast,  // of the last token in its caches
  kAll,   // of every token that was computed, each in one call
};

// Engine thread only. The target model and its caches outlive it.
class Drafter {
 public:
  virtual ~Drafter() = default;

  virtual const std::string& architecture() const = 0;
  virtual int64_t weight_bytes() const = 0;
  virtual RequiredHidden required_hidden() const = 0;
  // Whether sequences are to be followed while their prompts are computed.
  virtual bool follows() const = 0;

  virtual std::unique_ptr<DraftState> CreateState(const DraftContext& context) = 0;
  // Drafts for all sequences in one batch. Never fails: without memory it proposes nothing.
  virtual void ProposeDrafts(std::span<const DraftRequest> requests, ThreadPool& pool) = 0;
  // The sequence ended or gives its memory up; what was computed of `tokens` may serve others.
  virtual void End(std::unique_ptr<DraftState> state, std::span<const TokenId> tokens) = 0;
  // Gives memory of its caches that nothing holds back to the system.
  virtual void ReleaseFree() {}
};

}  // namespace quire::runner::draft
