// Test only. What references in double precision have in common: a checkpoint's weights, products, and the
// logits of the model that they are compared with.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "runner/models/model.h"
#include "runner/models/testing/patched_model_files.h"

namespace quire::runner::models::test {

using Doubles = std::vector<double>;

class DoubleWeights {
 public:
  explicit DoubleWeights(const PatchedModelFiles& files) : files_(files) {}  // outlives this

  bool Has(const std::string& name) const { return files_.Find(name) != nullptr; }
  Doubles Values(const std::string& name) const;
  Doubles Row(const std::string& name, int row, size_t width) const;
  // x times the matrix `name`.weight.
  Doubles Linear(const Doubles& x, const std::string& name) const;

 private:
  const PatchedModelFiles& files_;
};

void Add(const Doubles& x, Doubles* y);
inline double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// 24 tokens, and a model's logits behind each of its tokens, computed in one step.
std::vector<TokenId> SomeTokens();
std::vector<float> AllLogits(Model& model, const std::vector<TokenId>& tokens);

}  // namespace quire::runner::models::test
