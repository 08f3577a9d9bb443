// Where the sequence breakers of DRY are in a text that grows by tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/ids.h"
#include "runner/sampler/byte_automaton.h"

namespace quire::runner::sampler {

// Reads each token's text once, as long as the history only grows. Copyable: the strings are shared; one
// thread per copy.
class BreakerScan {
 public:
  using TokenText = std::function<std::string_view(api::TokenId)>;  // the token's bytes

  // `tail_max`: how many of the newest tokens are looked at. Empty breakers match nothing.
  BreakerScan(std::vector<std::string> breakers, TokenText text, size_t tail_max);

  // Whether the token's own text has a breaker. REQUIRES: token >= 0.
  bool Contains(api::TokenId token);
  // How many of the newest `tail` tokens no breaker ends in that begins in the tail, too. `history`: the
  // tokens of the sequence so far. Those of the last call need not be its beginning; then the tail is read
  // again.
  size_t CountUnbroken(std::span<const api::TokenId> history, size_t tail);

 private:
  struct ScannedToken {
    api::TokenId token;
    uint64_t begin;                         // bytes in front of its text
    std::optional<uint64_t> breaker_begin;  // of the breakers that end in the token the latest begin
  };

  bool EndsWith(std::span<const api::TokenId> tokens) const;
  void Append(api::TokenId token);

  const ByteAutomaton& Breakers();

  std::vector<std::string> strings_;               // until the first token
  std::shared_ptr<const ByteAutomaton> breakers_;  // from the first token on: what waits for a place has none
  TokenText text_;
  size_t tail_max_;
  std::deque<ScannedToken> scanned_;  // the newest, at most tail_max_
  size_t history_size_ = 0;           // of the last call
  int32_t node_ = ByteAutomaton::kRoot;
  uint64_t bytes_ = 0;  // of all scanned texts
  // [token]: whether Contains knows its answer, and the answer. Two bits for each token of the vocabulary.
  std::vector<bool> known_;
  std::vector<bool> contains_;
};

}  // namespace quire::runner::sampler
