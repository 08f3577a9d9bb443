#include "runner/models/testing/patched_model_files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "cache/hybrid_cache.h"
#include "runner/kernels/thread_pool.h"

namespace quire::runner::models::test {

PatchedModelFiles::PatchedModelFiles(const std::string& path)
    : original_(weights::Open(path).value()),
      config_(std::make_unique<Json>(original_->config())),
      tensors_(original_->tensors()),
      json(*config_) {}

PatchedModelFiles::~PatchedModelFiles() = default;

Tensor& PatchedModelFiles::Edit(std::string_view name) {
  return *std::ranges::find(tensors_, name, &Tensor::name);
}

void PatchedModelFiles::Remove(std::string_view name) {
  std::erase_if(tensors_, [&](const Tensor& tensor) { return tensor.name == name; });
}

void PatchedModelFiles::AddCopy(std::string_view of, const std::string& name) {
  Tensor tensor = Edit(of);
  tensor.name = name;
  tensors_.push_back(std::move(tensor));
}

void PatchedModelFiles::AddF32(const std::string& name, std::vector<int64_t> shape, float value) {
  int64_t elements = 1;
  for (const int64_t size : shape) elements *= size;
  std::vector<std::byte> data(static_cast<size_t>(elements) * sizeof(float));
  for (size_t at = 0; at < data.size(); at += sizeof(float)) std::memcpy(&data[at], &value, sizeof(float));
  Add(name, weights::DataType::kF32, std::move(shape), std::move(data));
}

void PatchedModelFiles::Add(const std::string& name, weights::DataType type, std::vector<int64_t> shape,
                            std::vector<std::byte> data) {
  bytes_.push_back(std::move(data));
  tensors_.push_back({.name = name, .type = type, .shape = std::move(shape), .data = bytes_.back()});
}

void PatchedModelFiles::MoveTo(const std::string& prefix, const std::string& new_prefix) {
  for (Tensor& tensor : tensors_) {
    if (tensor.name.starts_with(prefix)) tensor.name = new_prefix + tensor.name.substr(prefix.size());
  }
}

std::string PatchedModelFiles::architecture() const {
  return json.value(format() == weights::Format::kGguf ? "general.architecture" : "model_type", "");
}

const Tensor* PatchedModelFiles::Find(std::string_view name) const {
  const auto found = std::ranges::find(tensors_, name, &Tensor::name);
  return found == tensors_.end() ? nullptr : &*found;
}

api::Result<std::unique_ptr<Model>> LoadPatched(const std::string& path, const Edit& edit) {
  auto files = std::make_shared<PatchedModelFiles>(path);
  edit(*files);
  return LoadModel(files);
}

std::vector<float> LastLogits(Model& model) {
  ThreadPool pool(2);
  auto cache = cache::HybridCache::Create(model.cache_layout(), {.bytes = 16 << 20}).value();
  cache::Sequence sequence = cache->NewSequence();
  const TokenId high = std::min(300, model.vocab_size() - 1);
  const Batch batch{.tokens = {5, high, 17, 42, 9}, .row_begin = {0, 5}, .logit_rows = {4}};
  const cache::Append appends[] = {{.sequence = &sequence, .tokens = 5}};
  auto step = cache->Begin(appends).value();
  std::vector<float> logits(static_cast<size_t>(model.vocab_size()));
  model.Forward(batch, *step, pool, logits);
  step->Commit();
  return logits;
}

RemovalLogits LogitsBehindARemoval(Model& model) {
  ThreadPool pool(2);
  auto cache = cache::HybridCache::Create(model.cache_layout(), {.bytes = 16 << 20}).value();
  const auto logits = [&](cache::Sequence& sequence, const std::vector<TokenId>& tokens) {
    const auto count = static_cast<int32_t>(tokens.size());
    const cache::Append appends[] = {{.sequence = &sequence, .tokens = count}};
    auto step = cache->Begin(appends).value();
    std::vector<float> last(static_cast<size_t>(model.vocab_size()));
    model.Forward({.tokens = tokens, .row_begin = {0, count}, .logit_rows = {count - 1}}, *step, pool, last);
    step->Commit();
    return last;
  };
  std::vector<TokenId> tokens;
  tokens.reserve(60);
  for (TokenId i = 0; i < 60; ++i) tokens.push_back(i * 37 % 500);
  cache::Sequence cut = cache->NewSequence(), fresh = cache->NewSequence();
  logits(cut, tokens);
  EXPECT_TRUE(cache->RemoveRange(cut, 5, 21, model.key_rotation()));
  tokens.erase(tokens.begin() + 5, tokens.begin() + 21);
  logits(fresh, tokens);
  return {.removed = logits(cut, {7}), .fresh = logits(fresh, {7})};
}

std::vector<float> LastLogits(const std::string& path, const Edit& edit) {
  auto model = LoadPatched(path, edit);
  EXPECT_TRUE(model) << model.error().message;
  return model ? LastLogits(**model) : std::vector<float>();
}

}  // namespace quire::runner::models::test
