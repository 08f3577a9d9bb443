#include "runner/models/testing/double_reference.h"

#include <cstddef>

#include "cache/hybrid_cache.h"
#include "runner/kernels/matmul.h"
#include "runner/kernels/thread_pool.h"

namespace quire::runner::models::test {

Doubles DoubleWeights::Values(const std::string& name) const {
  const weights::Tensor& tensor = *files_.Find(name);
  std::vector<int32_t> rows;
  rows.reserve(static_cast<size_t>(tensor.rows()));
  for (int32_t i = 0; i < tensor.rows(); ++i) rows.push_back(i);
  std::vector<float> values(static_cast<size_t>(tensor.elements()));
  kernels::EmbeddingRows(kernels::AsMatrix(tensor), rows, values);
  return {values.begin(), values.end()};
}

Doubles DoubleWeights::Row(const std::string& name, int row, size_t width) const {
  const Doubles all = Values(name);
  const auto first = all.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(row) * width);
  return {first, first + static_cast<ptrdiff_t>(width)};
}

Doubles DoubleWeights::Linear(const Doubles& x, const std::string& name) const {
  const Doubles w = Values(name + ".weight");
  Doubles y(w.size() / x.size());
  for (size_t o = 0; o < y.size(); ++o) {
    for (size_t i = 0; i < x.size(); ++i) y[o] += w[o * x.size() + i] * x[i];
  }
  return y;
}

void Add(const Doubles& x, Doubles* y) {
  for (size_t i = 0; i < x.size(); ++i) (*y)[i] += x[i];
}

std::vector<TokenId> SomeTokens() {
  std::vector<TokenId> tokens;
  tokens.reserve(24);
  for (TokenId i = 0; i < 24; ++i) tokens.push_back(i * 41 % 500);
  return tokens;
}

std::vector<float> AllLogits(Model& model, const std::vector<TokenId>& tokens) {
  ThreadPool pool(2);
  const auto cache = cache::HybridCache::Create(model.cache_layout(), {.bytes = 16 << 20}).value();
  cache::Sequence sequence = cache->NewSequence();
  const auto count = static_cast<int32_t>(tokens.size());
  Batch batch{.tokens = tokens, .row_begin = {0, count}, .logit_rows = {}};
  for (int32_t row = 0; row < count; ++row) batch.logit_rows.push_back(row);
  const cache::Append appends[] = {{.sequence = &sequence, .tokens = count}};
  const auto step = cache->Begin(appends).value();
  std::vector<float> logits(tokens.size() * static_cast<size_t>(model.vocab_size()));
  model.Forward(batch, *step, pool, logits);
  step->Commit();
  return logits;
}

}  // namespace quire::runner::models::test
