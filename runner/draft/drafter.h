// Models that guess what a target model will say next.
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

// What a drafter keeps of one running sequence. Destroyed before its drafter.
class Trail {
 public:
  virtual ~Trail() = default;
};

// What a sequence begins with.
struct Beginning {
  std::string_view isolation;           // whose cached prefixes it may see
  std::span<const TokenId> tokens;      // all of it so far
  std::span<const int32_t> boundaries;  // ends of messages, ascending: where others are likely to branch off
  const Trail* neighbour = nullptr;     // of a running sequence that began alike; null: none
  int32_t shared = 0;                   // tokens that it has in common with this one
};

// One sequence that is to be guessed, or only followed.
struct Wish {
  Trail* trail = nullptr;
  std::span<const TokenId> tokens;    // the sequence; the first ones as they were at the last call
  cache::Sequence* target = nullptr;  // where it stands in the target's caches: all but the newest token
  std::span<const float> hidden;  // [n, hidden_size]: final states of the last n tokens there (HiddenWanted)
  int32_t depth = 0;              // tokens to guess; 0 = only keep up with it
  std::vector<TokenId>* guesses =
      nullptr;  // what is guessed, at most `depth` tokens, none if it is behind; null where none are wanted
};

// Which of the target's final hidden states a drafter reads.
enum class HiddenWanted : uint8_t {
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
  virtual HiddenWanted hidden_wanted() const = 0;
  // Whether sequences are to be followed while their prompts are computed.
  virtual bool follows() const = 0;

  virtual std::unique_ptr<Trail> Begin(const Beginning& beginning) = 0;
  // Guesses for all at once. Never fails: where memory is short it guesses nothing.
  virtual void Guess(std::span<const Wish> wishes, ThreadPool& pool) = 0;
  // The sequence ended or gives its memory up; what was computed of `tokens` may serve others.
  virtual void End(std::unique_ptr<Trail> trail, std::span<const TokenId> tokens) = 0;
};

}  // namespace quire::runner::draft
