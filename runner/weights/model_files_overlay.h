// A model's files with other tensors; everything else is as it was.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runner/weights/model_files.h"
#include "runner/weights/tensor_index.h"

namespace quire::runner::weights {

class ModelFilesOverlay final : public ModelFiles {
 public:
  // `memory`: what the tensors that are not those of `files` lie in. `config`, unless null, takes the place
  // of that of `files`, and there are no raw tensors. `panel_bytes_max`: as ModelFiles says.
  ModelFilesOverlay(std::shared_ptr<const ModelFiles> files, std::vector<Tensor> tensors,
                    std::shared_ptr<const void> memory, bool metadata_only,
                    std::shared_ptr<const nlohmann::ordered_json> config = nullptr,
                    int64_t panel_bytes_max = kNoPanelLimit)
      : files_(std::move(files)),
        memory_(std::move(memory)),
        index_(std::move(tensors)),
        metadata_only_(metadata_only),
        config_(std::move(config)),
        panel_bytes_max_(panel_bytes_max) {}

  const Tensor* Find(std::string_view name) const override { return index_.Find(name); }
  const std::vector<Tensor>& tensors() const override { return index_.all(); }
  bool metadata_only() const override { return metadata_only_; }
  bool CanRead(const Tensor& tensor) const override {
    if (!metadata_only_) return true;
    const Tensor* const own = files_->Find(tensor.name);
    return own != nullptr && own->data.data() == tensor.data.data() && files_->CanRead(*own);
  }
  int64_t panel_bytes_max() const override { return panel_bytes_max_; }

  Format format() const override { return files_->format(); }
  std::string path() const override { return files_->path(); }
  std::string architecture() const override { return files_->architecture(); }
  std::span<const IntegerTensor> integer_tensors() const override { return files_->integer_tensors(); }
  std::span<const RawTensor> raw_tensors() const override {
    return config_ ? std::span<const RawTensor>() : files_->raw_tensors();
  }
  const nlohmann::ordered_json& config() const override { return config_ ? *config_ : files_->config(); }
  const nlohmann::ordered_json& generation_config() const override { return files_->generation_config(); }
  const nlohmann::ordered_json& tokenizer_config() const override { return files_->tokenizer_config(); }
  const std::string& tokenizer_json() const override { return files_->tokenizer_json(); }
  std::span<const std::byte> tokenizer_model() const override { return files_->tokenizer_model(); }
  api::Result<std::optional<std::string>> pooling_json() const override { return files_->pooling_json(); }
  api::Result<std::vector<SentenceModule>> sentence_modules() const override {
    return files_->sentence_modules();
  }
  std::string sentence_config() const override { return files_->sentence_config(); }
  std::string sentence_prompts() const override { return files_->sentence_prompts(); }
  api::Result<std::string> processor_config() const override { return files_->processor_config(); }
  std::string chat_template() const override { return files_->chat_template(); }
  std::string named_chat_template(std::string_view name) const override {
    return files_->named_chat_template(name);
  }
  std::vector<int32_t> end_of_generation_ids() const override { return files_->end_of_generation_ids(); }
  std::span<const std::string> repairs() const override { return files_->repairs(); }

 private:
  const std::shared_ptr<const ModelFiles> files_;
  const std::shared_ptr<const void> memory_;
  const TensorIndex index_;
  const bool metadata_only_;
  const std::shared_ptr<const nlohmann::ordered_json> config_;
  const int64_t panel_bytes_max_;
};

}  // namespace quire::runner::weights
