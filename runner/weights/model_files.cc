#include "runner/weights/model_files.h"

#include <fmt/format.h>

#include <system_error>
#include <utility>

#include "runner/weights/gguf_model.h"
#include "runner/weights/hugging_face.h"
#include "runner/weights/mapped_file.h"

namespace quire::runner::weights {

std::optional<std::vector<int64_t>> ModelFiles::Integers(std::string_view) const { return std::nullopt; }

api::Result<std::shared_ptr<const ModelFiles>> Open(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return OpenHuggingFace(path);
  auto file = MappedFile::Open(path);
  if (!file) return std::unexpected(file.error());
  return OpenGgufModel(std::move(*file));
}

}  // namespace quire::runner::weights
