// How long an answer took, as llama.cpp's server reports it.
#pragma once

#include "api/base/event.h"
#include "api/json/type.h"

namespace quire::api {

// {cache_n, prompt_n, prompt_ms, prompt_per_token_ms, prompt_per_second, predicted_n, ..., draft_n?,
// draft_n_accepted?}. `prompt_n` counts the tokens that were computed, `cache_n` the reused ones.
Json EncodeTimings(const Usage& usage);

// The sum of several answers to one prompt or to several.
void Add(Usage& sum, const Usage& usage);

}  // namespace quire::api
