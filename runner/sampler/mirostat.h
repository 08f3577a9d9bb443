// Mirostat: keeps the surprise of the sampled tokens near a target (Basu et al., 2021). Version 1 estimates
// the distribution's exponent and takes the k best, version 2 takes what is at most so surprising.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "api/base/request.h"
#include "runner/sampler/sampler.h"

namespace quire::runner::sampler {

// Copyable; one thread. The state that changes is state().
class Mirostat {
 public:
  explicit Mirostat(const api::GenerationParams& params)
      : version_(params.mirostat),
        tau_(params.mirostat_tau),
        eta_(params.mirostat_eta),
        limit_(std::min(2 * params.mirostat_tau, kLimitMax)) {}

  // No double is as unlikely: nothing more is left out. A target has no bound, and the state that follows it
  // is sent in frames.
  static constexpr float kLimitMax = 1e4F;

  bool active() const { return version_ > 0; }
  // The bound of surprise, in bits.
  float state() const { return limit_; }
  void set_state(float limit) { limit_ = limit; }

  // One of the candidates, which are in order; the first has a weight. A choice among one leaves the state as
  // it is. `weights`: memory.
  TokenId Draw(std::span<const Candidate> candidates, std::vector<double>& weights, float temperature,
               double uniform);

 private:
  int32_t version_;
  float tau_;
  float eta_;
  float limit_;
};

}  // namespace quire::runner::sampler
