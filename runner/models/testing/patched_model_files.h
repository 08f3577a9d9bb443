// A real model's files with some of them changed, for the tests of what LoadModel accepts and refuses.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runner/models/model.h"
#include "runner/weights/model_files.h"

namespace quire::runner::models::test {

using Json = nlohmann::ordered_json;
using weights::Tensor;

// A real model's files, but with another configuration or other tensors. Calls itself "the/file".
class PatchedModelFiles final : public weights::ModelFiles {
 public:
  explicit PatchedModelFiles(const std::string& path);
  ~PatchedModelFiles() override;

 private:
  std::shared_ptr<const weights::ModelFiles> original_;
  const std::unique_ptr<Json> config_;  // before the reference to it
  std::vector<Tensor> tensors_;
  std::vector<std::vector<std::byte>> bytes_;

 public:
  Json& json;  // the configuration

  Tensor& Edit(std::string_view name);
  void Remove(std::string_view name);
  void AddCopy(std::string_view of, const std::string& name);
  void AddF32(const std::string& name, std::vector<int64_t> shape, float value);
  void Add(const std::string& name, weights::DataType type, std::vector<int64_t> shape,
           std::vector<std::byte> data);
  // Renames every tensor whose name begins so.
  void MoveTo(const std::string& prefix, const std::string& new_prefix);

  weights::Format format() const override { return original_->format(); }
  std::string path() const override { return "the/file"; }
  std::string architecture() const override;
  const Tensor* Find(std::string_view name) const override;
  const std::vector<Tensor>& tensors() const override { return tensors_; }
  std::span<const weights::IntegerTensor> integer_tensors() const override {
    return original_->integer_tensors();
  }
  const Json& config() const override { return *config_; }
  const Json& generation_config() const override { return original_->generation_config(); }
  const Json& tokenizer_config() const override { return original_->tokenizer_config(); }
  const std::string& tokenizer_json() const override { return original_->tokenizer_json(); }
  api::Result<std::vector<weights::SentenceModule>> sentence_modules() const override {
    return original_->sentence_modules();
  }
  std::string sentence_config() const override { return original_->sentence_config(); }
  std::string sentence_prompts() const override { return original_->sentence_prompts(); }
  api::Result<std::string> processor_config() const override { return original_->processor_config(); }
  std::string chat_template() const override { return {}; }
  std::vector<int32_t> end_of_generation_ids() const override { return {}; }
};

using Edit = std::function<void(PatchedModelFiles&)>;

api::Result<std::unique_ptr<Model>> LoadPatched(const std::string& path, const Edit& edit);

// The logits after some tokens. The second loads the edited model first, and fails the test if it cannot.
std::vector<float> LastLogits(Model& model);

// The logits behind the same tokens, with a range in their middle removed from the caches and never there.
// With one layer they agree as far as the caches' type does: keys and values then depend on their own token
// and position alone.
struct RemovalLogits {
  std::vector<float> removed, fresh;
};
RemovalLogits LogitsBehindARemoval(Model& model);
std::vector<float> LastLogits(const std::string& path, const Edit& edit);

}  // namespace quire::runner::models::test
