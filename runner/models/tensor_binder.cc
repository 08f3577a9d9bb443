#include "runner/models/tensor_binder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace quire::runner::models {

void TensorBinder::Fail(const std::string& name, const std::string& reason) {
  if (error_) return;
  error_ =
      api::Error{api::ErrorCode::kBadModel, fmt::format("{}: tensor {} {}", files_.path(), name, reason)};
}

const weights::Tensor* TensorBinder::Require(const std::string& name, std::span<const Shape> shapes) {
  if (error_) return nullptr;
  const weights::Tensor* tensor = files_.Find(name);
  if (tensor == nullptr) {
    Fail(name, "is missing");
    return nullptr;
  }
  if (std::find(shapes.begin(), shapes.end(), tensor->shape) == shapes.end()) {
    Fail(name, fmt::format("has the shape [{}], but the configuration asks for [{}]",
                           fmt::join(tensor->shape, ", "), fmt::join(shapes.front(), ", ")));
    return nullptr;
  }
  if (tensor->type == weights::DataType::kQ8_0 && tensor->columns() % 32 != 0) {
    Fail(name, "has rows that are not whole blocks");
    return nullptr;
  }
  parameters_ += tensor->elements();
  bytes_ += static_cast<int64_t>(tensor->data.size());
  return tensor;
}

std::vector<float> TensorBinder::Widen(const weights::Tensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.elements()));
  std::vector<int32_t> rows(static_cast<size_t>(tensor.rows()));
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int32_t>(i);
  kernels::EmbeddingRows(kernels::AsMatrix(tensor), rows, values);
  return values;
}

kernels::Matrix TensorBinder::Matrix(const std::string& name, int64_t out, int64_t in) {
  const Shape shapes[] = {{out, in}};
  const weights::Tensor* tensor = Require(name, shapes);
  return tensor == nullptr ? kernels::Matrix() : kernels::AsMatrix(*tensor);
}

std::vector<float> TensorBinder::Vector(const std::string& name, int64_t size) {
  const Shape shapes[] = {{size}};
  const weights::Tensor* tensor = Require(name, shapes);
  return tensor == nullptr ? std::vector<float>() : Widen(*tensor);
}

std::vector<float> TensorBinder::Taps(const std::string& name, int64_t channels, int64_t kernel) {
  const Shape shapes[] = {{channels, 1, kernel}, {channels, kernel}};
  const weights::Tensor* tensor = Require(name, shapes);
  if (tensor == nullptr) return {};
  const std::vector<float> by_channel = Widen(*tensor);
  std::vector<float> taps(by_channel.size());
  const auto width = static_cast<size_t>(channels), length = static_cast<size_t>(kernel);
  for (size_t c = 0; c < width; ++c) {
    for (size_t k = 0; k < length; ++k) taps[k * width + c] = by_channel[c * length + k];
  }
  return taps;
}

void TensorBinder::RequireAbsent(const std::string& name) {
  if (files_.Find(name) != nullptr) Fail(name, "is there, but the configuration says that it is not used");
}

}  // namespace quire::runner::models
