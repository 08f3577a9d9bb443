// Jobs of the OpenAI dialect, for its own paths and those of llama.cpp's server.
#pragma once

#include "api/base/prompt.h"
#include "api/openai/chat.h"
#include "api/openai/responses.h"
#include "server/routes/relay.h"

namespace quire::server {

// `timings`: the reply says how long it took.
GenerationJob MakeChatJob(api::openai::ChatRequest request, const api::ModelDefaults& defaults, bool timings);
GenerationJob MakeResponsesJob(api::openai::ResponsesRequest request, const api::ModelDefaults& defaults);

}  // namespace quire::server
