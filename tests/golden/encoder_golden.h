// Goldens of encoders (kind "embedding") and of models that score pairs (kind "reranker"): token ids, hidden
// states, pooled vectors, scores.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "api/base/error.h"
#include "runner/kernels/thread_pool.h"
#include "runner/models/model.h"

namespace quire::runner::golden {

struct EncoderCase {
  std::string name;  // "p0", "t2", "pair1"
  std::vector<models::TokenId> ids;
  std::vector<int32_t> types;    // or empty
  std::string text, second;      // of "t" and "pair"
  std::vector<float> hidden;     // [ids, hidden]; empty when not recorded
  std::vector<float> embedding;  // pooled, or empty
  std::vector<float> score;      // one number, or empty
};

struct EncoderGolden {
  int32_t vocab = 0;
  bool ranks = false;
  std::vector<EncoderCase> cases;
};

struct EncoderComparison {
  float max_abs = 0;    // of hidden states and vectors
  float max_score = 0;  // of scores
  // For vectors; for a model that ranks, for hidden states: the smallest, and the sum over `cosines` of them.
  double min_cosine = 1, cosine_sum = 0;
  size_t cosines = 0;
  size_t ids_equal = 0, ids_total = 0;         // texts and pairs whose ids are the reference's
  size_t states = 0, vectors = 0, scores = 0;  // cases that were compared by each
  bool order = true;                           // scores in the reference's order
  bool bit_identical = true;  // each case alone against all in one batch, and 1 thread against several
  bool quantized = false;     // weights that are rounded: judged by the mean cosine and the order
  std::vector<std::string> lines;

  double mean_cosine() const { return cosines == 0 ? 0 : cosine_sum / static_cast<double>(cosines); }
  void AddCosine(double cosine);
  bool pass(float tolerance) const;
  // "golden: PASS max_abs=1.5e-05 score=0.0e+00 cosine=1.000000 ids=8/8"
  std::string Verdict(float tolerance) const;
};

// 1 for two vectors of zeros, 0 beside a vector of zeros.
double Cosine(std::span<const float> a, std::span<const float> b);
// Whether the vector is of length 1, as a reference's is where its model says so.
bool IsNormalized(std::span<const float> vector);
// Whether pairs (ours, the reference's) are in one order, up to what counts as equal.
bool SameOrder(const std::vector<std::pair<float, float>>& scores, float equal);
// Whether the directory's golden is of an encoder.
bool IsEncoderGolden(const std::filesystem::path& directory);
api::Result<EncoderGolden> ReadEncoderGolden(const std::filesystem::path& directory);
// kBadModel: the model does not load.
api::Result<EncoderComparison> CompareEncoder(const std::filesystem::path& model, const EncoderGolden& golden,
                                              ThreadPool& pool);

}  // namespace quire::runner::golden
