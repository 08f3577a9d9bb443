// Reranking by a decoder: how much likelier "yes" is than "no" as its answer to a fixed question about a
// query and a document (Qwen3-Reranker, Zhang et al. 2025).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "api/base/error.h"
#include "runner/weights/model_files.h"

namespace quire::runner::models {

// The question: what stands before the query, between query and document, and behind it. Control tokens in
// these, but not in query and document, are meant as such.
struct RankPrompt {
  std::string before, between, after;
  // Bytes of `before` that are the instruction, which a request may replace; end = 0: there is none.
  size_t instruction_begin = 0, instruction_end = 0;
  bool only_with_instruction = false;  // a pair without one is query and document, one behind the other
};

// Immutable; any thread.
struct RankHead {
  std::vector<float> yes, no;  // [hidden], rows of the output matrix; `no` is empty where one row scores
  // The tokens that the rows belong to, where the files say so.
  std::optional<std::array<int32_t, 2>> tokens;
  RankPrompt prompt;

  // logit("yes") - logit("no") after the final hidden state of the last token.
  float Score(std::span<const float> state) const;
};

// Whether a decoder's files say that it ranks, without reading weights: GGUF with a "cls.output" of two
// answers and pooling by rank; a directory whose modules.json has a LogitScore, or whose model is a sequence
// classifier of one label.
bool RanksByAnswer(const weights::ModelFiles& files);
// REQUIRES: RanksByAnswer(files). kBadModel for answers or a question that are not understood.
api::Result<RankHead> ReadRankHead(const weights::ModelFiles& files);
// Makes the head of a directory, for these two tokens.
api::Result<RankHead> MakeRankHead(const weights::ModelFiles& files, int32_t yes, int32_t no);

}  // namespace quire::runner::models
