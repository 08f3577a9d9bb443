// A loaded model: its cache mix and its forward pass.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "api/error.h"
#include "cache/layout.h"
#include "cache/write.h"

namespace quire::runner {
class ThreadPool;
namespace weights {
class ModelFiles;
}
}  // namespace quire::runner

namespace quire::runner::models {

using TokenId = int32_t;

// One step's tokens of many sequences, laid end to end (ragged): rows [row_begin[i], row_begin[i + 1]) belong
// to sequence i of the StepView. Plain data, owned by the engine.
struct Batch {
  std::vector<TokenId> tokens;      // [rows]
  std::vector<int32_t> row_begin;   // [sequences + 1]
  std::vector<int32_t> logit_rows;  // rows that need logits, ascending
};

// Receives named intermediate activations, for the golden tests only. Names are those of fixtures/README.md
// ("hidden.embed", "hidden.layer3", "hidden.final_norm").
class Probe {
 public:
  virtual ~Probe() = default;
  virtual void Activation(const std::string& name, std::span<const float> values, int64_t rows) = 0;
};

// Engine thread only. The weights stay mapped while the model lives.
class Model {
 public:
  virtual ~Model() = default;

  virtual const std::string& architecture() const = 0;
  virtual int32_t vocab_size() const = 0;
  virtual int32_t context_length() const = 0;  // trained, tokens
  virtual int64_t parameters() const = 0;
  virtual int64_t weight_bytes() const = 0;  // mapped or held
  virtual const cache::Layout& cache_layout() const = 0;

  // Runs all layers over the batch, writing K, V and recurrent state through `step`, and fills `logits`
  // [logit_rows, vocab_size]. Every row's result depends only on its own sequence (DESIGN "The same bits").
  // REQUIRES: batch and step describe the same sequences; tokens are in [0, vocab_size) (the caller checks
  // input).
  virtual void Forward(const Batch& batch, cache::StepView& step, ThreadPool& pool, std::span<float> logits,
                       Probe* probe = nullptr) = 0;
};

// Picks the family by architecture name and builds the model. kBadModel names the file, tensor and reason;
// an architecture nobody registered is kBadModel too and lists those that are.
api::Result<std::unique_ptr<Model>> LoadModel(std::shared_ptr<const weights::ModelFiles> files);

}  // namespace quire::runner::models
