// How many tokens to guess ahead: as many as make the most tokens a second.
//
// A step over more rows costs more, how much is measured; a guess is right with a chance that is learned for
// its kind: for the tokens of a draft model by their position in the round, for those found in the text by
// how long the match is that stands before them. A sequence whose guesses come out better or worse than
// others' has odds of its own. Where no guess pays none is made, and now and then one to see whether that
// still holds. Pure: no clock, no randomness. Engine thread only.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace quire::runner::draft {

enum class Source : uint8_t {
  kText,   // what followed the same words earlier in the text
  kModel,  // a draft model
};
inline constexpr size_t kSources = 2;

// How good one sequence's guesses of one source are, beside those of all.
struct Track {
  double odds = 1;     // of a guess, over what they are for all
  int32_t parked = 0;  // chances to guess that were let go since the last guess
  int32_t patience = 0;
};

// A round that a sequence could guess.
struct Candidate {
  Source source = Source::kText;
  int32_t first_kind = 0;  // of its first token; each further token's is one more
  int32_t most = 0;        // tokens
  Track* track = nullptr;
  int32_t depth = 0;  // the answer: tokens to guess
};

class DepthControl {
 public:
  // Decides for every sequence of a step that has `rows` rows without any guess and room for `most` guesses.
  void Plan(std::span<Candidate> candidates, int32_t rows, int32_t most);
  // Of two ways to guess for the same sequence, whether the first is worth more.
  bool Better(const Candidate& first, const Candidate& second, int32_t rows) const;

  // A step over `rows` rows of decoding sequences and nothing else took `took`.
  void ObserveStep(int32_t rows, std::chrono::nanoseconds took);
  // A draft model took `took` to guess `tokens` tokens.
  void ObserveDraft(int32_t tokens, std::chrono::nanoseconds took);
  // The planned step, guessing and all, brought `tokens` tokens of all sequences and took `took`.
  void ObserveOutcome(int32_t tokens, std::chrono::nanoseconds took);
  // Of a round's `drafted` guesses the first `accepted` were right.
  void ObserveRound(const Candidate& round, int32_t drafted, int32_t accepted);

  // The chance of a guess of this kind, if those before it are right.
  double Chance(Source source, int32_t kind, const Track& track) const;
  double StepSeconds(int32_t rows) const;

 private:
  static constexpr size_t kKinds = 32;
  struct Tally {
    double tried = 0, right = 0;
  };
  double ChanceOfAll(Source source, size_t kind) const;
  double DraftSeconds(Source source, int32_t tokens) const;
  // How steps with guesses of a source came out beside what was expected of them, as tokens a second.
  double Trust(Source source) const;
  void Foresee(std::span<const Candidate> candidates, int32_t rows);

  std::array<std::array<Tally, kKinds>, kSources> tallies_{};
  std::vector<double> seconds_;  // [rows]; 0 = not measured
  double draft_seconds_ = 0;     // per token of a draft model
  // What was expected of the planned step; no seconds: nothing was guessed.
  struct Outlook {
    double tokens = 0, seconds = 0;
    Source source = Source::kText;
  };
  struct Outcomes {
    Outlook expected, came;  // sums that fade
  };
  Outlook outlook_;
  std::array<Outcomes, kSources> outcomes_{};
  std::vector<double> reached_;  // scratch of Plan
  std::vector<int32_t> depths_;
};

}  // namespace quire::runner::draft
