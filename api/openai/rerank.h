// Reranking and scoring requests of all dialects: bodies of /v1/rerank, /rerank, /v2/rerank and /v1/score to
// pairs of texts, scores to reply bodies. Pure functions.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "api/base/request.h"
#include "api/openai/embedding.h"

namespace quire::api {

enum class RerankDialect : uint8_t {
  kJina,    // /v1/rerank, /rerank, /reranking: "documents"; with "texts" the reply is that of TEI
  kCohere,  // /v2/rerank
  kScore,   // /v1/score: "text_1" and "text_2"
};

struct RerankRequest {
  RerankDialect dialect = RerankDialect::kJina;
  EmbedRequest pairs;  // an input for each document, in the body's order
  int64_t top_n = 0;   // results in the reply, the best ones; 0 = all
  bool return_documents = false;
  bool raw_scores = false;  // the model's numbers, otherwise their logistic function: between 0 and 1
  bool texts = false;       // the body said "texts"
};

// Errors name the field. Documents that are too long are cut unless "truncate" is false.
Result<RerankRequest> ParseRerank(RerankDialect dialect, std::string_view body);

// `result` holds a vector of one number for each pair, the model's score.
std::string EncodeRerank(const RerankRequest& request, const EmbedResult& result, int64_t created);

}  // namespace quire::api
