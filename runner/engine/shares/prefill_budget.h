// How many prompt tokens a step may compute so that it keeps to its time, from the steps measured so far.
//
// A step's time is modeled as idle(decoding sequences) + tokens * cost: idle is measured from steps without
// a prompt, the cost from those with one. It follows the measurements, so a prompt whose tokens grow dearer
// with its length is cut into smaller chunks. Chunking does not change the result (docs/numerics.md).
// No clock of its own; engine thread only.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <vector>

namespace quire::runner::engine {

struct StepTarget {
  // The gap between two tokens of a running stream stays under `gap`, or under `idle_factor` times its gap
  // without any prompt, whichever is larger.
  std::chrono::nanoseconds gap = std::chrono::milliseconds(150);
  double idle_factor = 2.0;
  // Where a step without any prompt is short, so are the others: their gap is what makes it this share of
  // them, but not under `short_gap`. Shorter steps would cost the prompts more than they give the streams.
  double idle_share = 0.05;
  std::chrono::nanoseconds short_gap = std::chrono::milliseconds(50);
  // A step that nobody waits for but the prompts themselves, and those that want to cancel or join.
  std::chrono::nanoseconds alone = std::chrono::milliseconds(200);
  // It may be as long as this where shorter ones lose much: one that reads 4 GB of weights, or most of a
  // model's experts, takes about as long with few tokens as with many.
  std::chrono::nanoseconds alone_max = std::chrono::seconds(1);
  int32_t tokens_max = 512;
};

class PrefillBudget {
 public:
  explicit PrefillBudget(StepTarget target = {}) : target_(target) {}

  // A step over `decoding` sequences and `prefill` prompt tokens took `took`.
  void Observe(int32_t decoding, int32_t prefill, std::chrono::nanoseconds took);
  // Prompt tokens for a step beside `decoding` sequences, in [1, tokens_max].
  int32_t Tokens(int32_t decoding) const;
  double token_seconds() const { return cost_; }  // of computing a prompt token; 0 = not measured

 private:
  double Idle(int32_t decoding) const;
  double LimitBeside(double idle) const;
  int32_t Efficient(int32_t tokens) const;

  static constexpr size_t kSizes = 10;  // powers of two, the last without an end
  static size_t SizeOf(int32_t tokens);

  StepTarget target_;
  std::vector<double> idle_;  // seconds by number of decoding sequences; 0 = not measured
  double cost_ = 0;           // seconds per prompt token; 0 = not measured
  // Tokens per second of prompts alone, by tokens of a step [2^i, 2^(i + 1)); 0 = not measured.
  std::array<double, kSizes> rates_ = {};
  int32_t last_ = 0;  // tokens of the latest larger steps with a prompt
};

}  // namespace quire::runner::engine
