#include "runner/weights/model_files.h"

#include <algorithm>
#include <cstring>

#include "runner/weights/model_formats.h"

namespace quire::runner::weights {

std::optional<std::vector<int64_t>> ModelFiles::Integers(std::string_view name) const {
  const std::span<const IntegerTensor> tensors = integer_tensors();
  const auto found = std::ranges::find(tensors, name, &IntegerTensor::name);
  if (found == tensors.end()) return std::nullopt;
  std::vector<int64_t> values(found->data.size() / sizeof(int64_t));
  std::memcpy(values.data(), found->data.data(), values.size() * sizeof(int64_t));
  return values;
}

const RawTensor* ModelFiles::FindRaw(std::string_view name) const {
  const std::span<const RawTensor> tensors = raw_tensors();
  const auto found = std::ranges::find(tensors, name, &RawTensor::name);
  return found == tensors.end() ? nullptr : &*found;
}

api::Result<std::shared_ptr<const ModelFiles>> Open(const ModelSource& source) {
  return source.is_directory() ? OpenHuggingFace(source) : OpenGgufModel(source);
}

}  // namespace quire::runner::weights
