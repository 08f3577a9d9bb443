// What a model's files recommend for its answers: generation_config.json of a directory, general.sampling.*
// of a GGUF file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/base/options.h"
#include "runner/weights/model_files.h"

namespace quire::runner::weights {

// Plain data; any thread.
struct GenerationDefaults {
  api::Options options;                         // sampling; a request and the model's PARAMETERs go before it
  const char* source = "";                      // where `options` and the rest are
  std::vector<api::TokenId> banned = {};        // suppress_tokens and bad words of one token
  std::vector<api::TokenId> banned_first = {};  // as the first token of an answer
  std::vector<std::string> stop = {};           // stop strings of every answer
  std::vector<std::string> notes = {};          // what is there and not obeyed, a line each
};

// Values that make no sense are left out and noted; no file is refused. Ids that are not in [0, vocab_size)
// likewise.
//  - do_sample counts where it is false: the answer is greedy. transformers leaves it out of files that
//    sample with defaults.
//  - general.sampling.sequence: samplers that it does not name are off; their order is the sampler's own.
GenerationDefaults ReadGenerationDefaults(const ModelFiles& files, int64_t vocab_size = INT32_MAX);

}  // namespace quire::runner::weights
