// Cohere's embedding requests, /v1/embed and /v2/embed, and the errors of its routes. Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "api/base/error.h"
#include "api/json/fields.h"
#include "api/openai/embedding.h"

namespace quire::api {

// "texts", "inputs", "input_type", "embedding_types", "output_dimension", "truncate".
void GetCohereBody(Fields& body, EmbedRequest& request);

std::string EncodeCohereEmbed(const EmbedRequest& request, const EmbedResult& result);

// {"message": "..."}
std::string CohereErrorBody(const Error& error);

// "truncate" as "NONE", "START", "END", in any case, or a boolean: what to do with a text that is too long,
// and which end stays. Absent: `overflow` and the start stay as they are.
void GetTruncation(Fields& body, Overflow& overflow, bool& keep_end);

}  // namespace quire::api
