#include "runner/weights/model_files.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runner/weights/model_files_overlay.h"
#include "runner/weights/model_formats.h"

namespace quire::runner::weights {

std::optional<std::vector<int64_t>> ModelFiles::Integers(std::string_view name) const {
  const std::span<const IntegerTensor> tensors = integer_tensors();
  const auto found = std::ranges::find(tensors, name, &IntegerTensor::name);
  if (found == tensors.end()) return std::nullopt;
  std::vector<int64_t> values(found->data.size() / found->bytes);
  for (size_t i = 0; i < values.size(); ++i) {
    if (found->bytes == sizeof(int64_t)) {
      std::memcpy(&values[i], found->data.data() + i * found->bytes, sizeof(int64_t));
    } else {
      int32_t value = 0;
      std::memcpy(&value, found->data.data() + i * found->bytes, sizeof(value));
      values[i] = value;
    }
  }
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

std::shared_ptr<const ModelFiles> LimitPanels(std::shared_ptr<const ModelFiles> files, int64_t bytes_max) {
  std::vector<Tensor> tensors = files->tensors();
  const bool metadata_only = files->metadata_only();
  return std::make_shared<const ModelFilesOverlay>(std::move(files), std::move(tensors), /*memory=*/nullptr,
                                                   metadata_only, /*config=*/nullptr, bytes_max);
}

}  // namespace quire::runner::weights
