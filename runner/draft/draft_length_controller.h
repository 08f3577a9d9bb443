// Chooses the draft length that maximizes tokens per second.
//
// The cost of a step by its rows is measured. The acceptance rate is learned per kind of draft token: by
// position in the round for a draft model, by match length for prompt lookup. Each sequence scales it with
// its own odds. Where speculation is not profitable nothing is drafted, except for an occasional probe. Pure:
// no clock, no randomness. Engine thread only.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace quire::runner::draft {

enum class Source : uint8_t {
  kPromptLookup,  // what followed the same tokens earlier in the sequence
  kModel,         // a draft model
};
inline constexpr size_t kSources = 2;

// Acceptance of one sequence's drafts from one source, relative to all sequences.
struct AcceptanceStats {
  double odds = 1;      // of acceptance, relative to the global odds
  int32_t skipped = 0;  // opportunities skipped since the last draft
  int32_t backoff = 0;  // opportunities to skip before the next probe
};

// A draft that could be proposed for a sequence.
struct Candidate {
  Source source = Source::kPromptLookup;
  int32_t first_kind = 0;  // of its first token; each further token's is one more
  int32_t max_length = 0;  // draft tokens
  AcceptanceStats* stats = nullptr;
  int32_t length = 0;  // result: draft tokens to propose
};

class DraftLengthController {
 public:
  // Sets the length of every candidate of a step that has `rows` rows without drafts and room for `limit`
  // draft tokens.
  void Plan(std::span<Candidate> candidates, int32_t rows, int32_t limit);
  // Whether the first of two draft sources for the same sequence is more profitable.
  bool Better(const Candidate& first, const Candidate& second, int32_t rows) const;

  // A step over `rows` rows of decoding sequences and nothing else took `took`.
  void ObserveStep(int32_t rows, std::chrono::nanoseconds took);
  // A draft model took `took` to propose `tokens` tokens.
  void ObserveDraft(int32_t tokens, std::chrono::nanoseconds took);
  // The planned step, drafting included, produced `tokens` tokens of all sequences and took `took`.
  void ObserveOutcome(int32_t tokens, std::chrono::nanoseconds took);
  // The first `accepted` of a round's `drafted` tokens were accepted.
  void ObserveRound(const Candidate& round, int32_t drafted, int32_t accepted);

  // The probability that a draft token of this kind is accepted, given that those before it are.
  double AcceptanceRate(Source source, int32_t kind, const AcceptanceStats& stats) const;
  double StepSeconds(int32_t rows) const;

 private:
  static constexpr size_t kKinds = 32;
  struct Tally {
    double proposed = 0, accepted = 0;
  };
  double GlobalAcceptanceRate(Source source, size_t kind) const;
  double DraftSeconds(Source source, int32_t tokens) const;
  // Observed over predicted tokens per second of steps with drafts from a source.
  double CalibrationFactor(Source source) const;
  void Predict(std::span<const Candidate> candidates, int32_t rows);

  std::array<std::array<Tally, kKinds>, kSources> tallies_{};
  std::vector<double> seconds_;  // [rows]; 0 = not measured
  double draft_seconds_ = 0;     // per token of a draft model
  // Prediction for the planned step; no seconds: nothing was drafted.
  struct Forecast {
    double tokens = 0, seconds = 0;
    Source source = Source::kPromptLookup;
  };
  struct Calibration {
    Forecast predicted, observed;  // decaying sums
  };
  Forecast forecast_;
  std::array<Calibration, kSources> calibrations_{};
  std::vector<double> reached_;  // scratch of Plan
  std::vector<int32_t> lengths_;
};

}  // namespace quire::runner::draft
