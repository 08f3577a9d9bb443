// Compares a model with its goldens, prompt by prompt, and says so in words.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tests/golden/golden_file.h"
#include "tests/golden/golden_run.h"

namespace quire::runner::golden {

struct CompareOptions {
  float tolerance = 2e-3F;
  std::vector<size_t> chunks =
      {};  // prefill is also run in chunks of this many tokens; must be bit-identical
  bool restore_every_offset = false;  // of the prompt whose states are recorded, else of the longest one
  bool verbose = false;               // hidden activations too
};

struct Comparison {
  float max_abs = 0;        // largest logit difference
  size_t greedy_equal = 0;  // tokens of all prompts
  size_t greedy_total = 0;
  bool bit_identical = true;  // chunked and restored against one go
  bool inputs_equal = true;   // what was made of pictures before the text model (vision_stages.h)
  float max_state = 0;  // largest difference of cached state, relative to the largest value it is part of
  size_t states = 0;    // arrays of state compared
  std::vector<std::string> lines;  // one or more per prompt

  bool pass(float tolerance) const {
    return max_abs <= tolerance && max_state <= tolerance && greedy_equal == greedy_total && bit_identical &&
           inputs_equal;
  }
  // "golden: PASS max_abs=1.5e-05 greedy=192/192"
  std::string Verdict(float tolerance) const;
};

// How far log-probabilities are from exact ones because activations are rounded to int8: the mean over the
// tokens that another engine found likely behind each prompt, ours and the other's.
struct Rounding {
  double mean = 0, peer_mean = 0;
  size_t tokens = 0;
  bool bit_identical = true;  // chunked against one go
  std::vector<std::string> lines;

  // No worse than the other engine, with room for the noise of so few tokens.
  bool pass() const { return bit_identical && tokens > 0 && mean <= 1.25 * peer_mean; }
  std::string Verdict() const;
};

// REQUIRES: as Compare; the golden is one of quantized weights.
Rounding CompareRounding(GoldenRun& run, const GoldenFile& golden, const CompareOptions& options);

// REQUIRES: the golden's vocabulary is the model's, and the run has room for its longest prompt and
// continuation.
Comparison Compare(GoldenRun& run, const GoldenFile& golden, const CompareOptions& options);

}  // namespace quire::runner::golden
