// How long the prompts in progress will still take, from what prompts took before. I/O thread only.
//
// Requests whose prompt is built have an exact number of tokens to compute. Of those that wait only the
// body's size is known; the tokens that a byte of a body cost before, cached ones left out, predict the rest.
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "server/http/request_log.h"

namespace quire::server {

class PrefillEstimates {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // A request that has ended.
  void Observe(const RequestLog& log);

  // Seconds until the request's first token, without those it waits for others; 0 behind it. What has taken t
  // seconds on a model that nothing is known of is expected to take as long again.
  double RemainingSeconds(const RequestLog& log, TimePoint now) const;

  // Bytes of request bodies that are computed per second, cached ones left out; 0 = not known.
  double BytesPerSecond(const std::string& model) const;

 private:
  // Sums over requests, the older the less.
  struct Sums {
    double seconds = 0, computed_tokens = 0, prompt_tokens = 0, body_bytes = 0;
  };
  std::map<std::string, Sums> models_;
};

}  // namespace quire::server
