// Fetches a model's tensors by name and checks each against the shape that the configuration promises. Like
// ConfigReader, it is asked for everything and then for the first error.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "api/error.h"
#include "runner/kernels/matmul.h"
#include "runner/weights/model_files.h"

namespace quire::runner::models {

class TensorBinder {
 public:
  // `files` outlives the binder and every Matrix from it.
  explicit TensorBinder(const weights::ModelFiles& files) : files_(files) {}

  // A matrix [out, in], in place.
  kernels::Matrix Matrix(const std::string& name, int64_t out, int64_t in);
  // A vector [size], widened to float32.
  std::vector<float> Vector(const std::string& name, int64_t size);
  // A depthwise convolution's weights, [channels, 1, kernel] or [channels, kernel] in the file, widened and
  // turned into [kernel, channels].
  std::vector<float> Taps(const std::string& name, int64_t channels, int64_t kernel);
  // A tensor that the configuration says is not there must not be.
  void RequireAbsent(const std::string& name);

  // Of all tensors handed out.
  int64_t parameters() const { return parameters_; }
  int64_t bytes() const { return bytes_; }

  // kBadModel names file and tensor.
  const std::optional<api::Error>& error() const { return error_; }

 private:
  using Shape = std::vector<int64_t>;

  // The tensor, if it is there in one of the shapes.
  const weights::Tensor* Require(const std::string& name, std::span<const Shape> shapes);
  std::vector<float> Widen(const weights::Tensor& tensor);
  void Fail(const std::string& name, const std::string& reason);

  const weights::ModelFiles& files_;
  int64_t parameters_ = 0;
  int64_t bytes_ = 0;
  std::optional<api::Error> error_;
};

}  // namespace quire::runner::models
