// Pieces of replies that the dialects share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/event.h"
#include "api/json/type.h"

namespace quire::api {

// [{token, logprob, bytes, top_logprobs: [{token, logprob, bytes}]}]
Json EncodeLogprobs(const std::vector<TokenLogprob>& logprobs);

// A prompt's tokens, as vLLM has them: [null, {"7": {logprob, rank, decoded_token}}], the token first, then
// the best `alternatives`.
Json EncodePromptLogprobs(const std::vector<TokenLogprob>& tokens, int32_t alternatives);

// JSON has no minus infinity: -9999, as OpenAI gives for a token that has next to no chance.
float JsonLogprob(float logprob);

// Adds a delta to a whole answer, so that what is not streamed is what would have been.
void Append(TextDelta& answer, const TextDelta& delta);

// Whether it tells the client nothing.
bool IsSilent(const TextDelta& delta);

// A call's arguments as an object.
Json ArgumentsOf(const ToolCall& call);

// An object as a server-sent event, named by its member "type".
std::string NamedEvent(const Json& data);

// "stop" or "length".
std::string_view Name(FinishReason reason);

}  // namespace quire::api
