// One vector for a text: the final hidden states of its tokens, pooled and of length 1.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "api/base/error.h"
#include "runner/weights/model_files.h"

namespace quire::runner::models {

enum class Pooling : uint8_t {
  kMean,   // of all tokens
  kLast,   // the last token's
  kFirst,  // the first token's ("CLS")
};

// GGUF's pooling_type, or 1_Pooling/config.json as sentence-transformers writes it; kLast where neither says,
// as only the last token of a causal model has seen all others. kBadModel for a kind that is none of these.
api::Result<Pooling> ReadPooling(const weights::ModelFiles& files);

// Pools a text that is evaluated in steps. One thread's. The bits do not depend on how the text is cut.
class Pooler {
 public:
  // REQUIRES: tokens >= 1.
  Pooler(Pooling pooling, int32_t hidden, int64_t tokens);

  // Which of the next `count` tokens' final hidden states (Batch::hidden_rows, counted from the first of
  // them) Add is to get.
  std::vector<int32_t> RowsOf(int64_t count) const;
  // Those states [rows, hidden] of the next `count` tokens.
  void Add(int64_t count, std::span<const float> states);

  // The first `dimensions` numbers of [hidden], all of them for 0; of length 1 unless all zero, where
  // `normalize` asks for it. REQUIRES: every token was added; dimensions <= hidden.
  std::vector<float> Finish(int32_t dimensions = 0, bool normalize = true) const;

 private:
  Pooling pooling_;
  int64_t tokens_;
  int64_t seen_ = 0;
  std::vector<double> sum_;  // [hidden]
};

}  // namespace quire::runner::models
