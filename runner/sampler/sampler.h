// Picks the next token from the logits of one sequence.
//
// Order of the steps: penalties, DRY, top_n_sigma, top_k, typical_p, top_p, min_p, XTC, temperature, draw.
// Mirostat stands in place of all after DRY. Among equal logits the lower id comes first, so that no step
// depends on how a library sorts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "api/base/ids.h"
#include "api/base/request.h"

namespace quire::runner::sampler {

using api::TokenId;

// The random stream of one generation, whole: number `drawn` of the stream is
//   SplitMix64's finalizer of (finalizer(seed) + (drawn + 1) * 0x9E3779B97F4A7C15), upper 53 bits / 2^53.
// Every sampled token takes one number, greedy ones too, so the state after n tokens is {seed, n}.
struct RandomStream {
  uint64_t seed = 0;
  uint64_t drawn = 0;

  double Next();  // in [0, 1)
  // A number beside the last one of Next(), of a stream of its own.
  double Beside() const;
};

// A negative seed of a request means a random one: taken from the system, once.
RandomStream StartStream(int64_t seed);

struct Candidate {
  TokenId id = 0;
  float logit = 0;
};

// The highest logits of a list's parts (candidates.h).
struct Maxima {
  std::vector<float> blocks;  // in the order of the list
  std::vector<float> groups;  // of blocks; for the search
};

// A candidate of typical_p.
struct RankedCandidate {
  double distance = 0;  // of its information from the entropy
  Candidate candidate;
};

// Memory that the filters work in. A list is sorted between it and its spare.
struct FilterMemory {
  std::vector<Candidate> candidates;  // <= vocab
  std::vector<Candidate> spare_candidates;
  std::vector<double> weights;          // [candidates]
  std::vector<RankedCandidate> ranked;  // <= candidates
  std::vector<RankedCandidate> spare_ranked;
};

// Memory that sampling works in; keeps its size between calls. Nothing of a call matters to the next: one per
// thread serves all sequences.
class Workspace {
 public:
  // The logits with -inf for every token whose bit (64 to a word, lowest first) is not set; those beyond the
  // words are not. Valid until the next call.
  std::span<const float> Mask(std::span<const float> all, std::span<const uint64_t> allowed);

 private:
  friend class Sampler;
  friend class LogitProcessor;
  std::vector<float> processed;  // [vocab]
  std::vector<float> logits;     // [vocab]
  std::vector<int32_t> counts;   // [vocab] zero between calls
  Maxima maxima;
  FilterMemory filters;
  std::vector<float> masked;  // [vocab]
};

class DryPenalty;
class Mirostat;

// The state that changes is random_stream() and state(). One thread.
class Sampler {
 public:
  // Options outside their range mean "off", a temperature that is not positive means greedy. `text`: the
  // bytes of a token, for DRY, which is off without it.
  using TokenText = std::function<std::string_view(TokenId)>;
  explicit Sampler(const api::GenerationParams& params, TokenText text = {});
  Sampler(const api::GenerationParams& params, RandomStream stream, TokenText text = {});
  ~Sampler();
  Sampler(Sampler&&) noexcept;

  // The next token. `history`: the tokens of the sequence so far, prompt included, newest last; what
  // repeat_last_n does not reach may be left out. A logit of -inf marks a token that must not come. kInternal
  // when a logit is NaN or +inf or none is left to choose from; the stream has then not moved.
  api::Result<TokenId> Sample(std::span<const float> logits, std::span<const TokenId> history,
                              Workspace& workspace);

  // A token came without a choice: takes its number of the stream.
  void SkipOne() { stream_.Next(); }

  const RandomStream& random_stream() const { return stream_; }
  // What the next token depends on beside the random stream and the history; nothing without Mirostat.
  std::optional<float> state() const;
  void set_state(float state);

 private:
  bool HasPenalties() const;
  std::span<const float> Penalize(std::span<const float> logits, std::span<const TokenId> history,
                                  Workspace& workspace) const;

  float temperature_;
  int32_t top_k_;
  float top_p_;
  float min_p_;
  float typical_p_;
  float top_n_sigma_;
  float xtc_probability_;
  float xtc_threshold_;
  int64_t repeat_window_;  // tokens
  float repeat_penalty_;
  float presence_penalty_;
  float frequency_penalty_;
  std::unique_ptr<DryPenalty> dry_;     // null: off
  std::unique_ptr<Mirostat> mirostat_;  // null: off
  RandomStream stream_;
};

}  // namespace quire::runner::sampler
