#include "runner/weights/model_files.h"

#include "runner/weights/model_formats.h"

namespace quire::runner::weights {

std::optional<std::vector<int64_t>> ModelFiles::Integers(std::string_view) const { return std::nullopt; }

api::Result<std::shared_ptr<const ModelFiles>> Open(const ModelSource& source) {
  return source.is_directory() ? OpenHuggingFace(source) : OpenGgufModel(source);
}

}  // namespace quire::runner::weights
