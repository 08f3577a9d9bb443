#include "runner/weights/metadata_only.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "runner/weights/model_files_overlay.h"

namespace quire::runner::weights {

std::shared_ptr<const void> ReserveUnreadable(size_t bytes) {
  bytes = std::max<size_t>(bytes, 1);
  void* const data = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) return nullptr;
  return {data, [bytes](const void* at) { ::munmap(const_cast<void*>(at), bytes); }};
}

api::Result<std::shared_ptr<const ModelFiles>> MetadataOnly(std::shared_ptr<const ModelFiles> files) {
  std::vector<Tensor> tensors = files->tensors();
  size_t largest = 0;
  for (const Tensor& tensor : tensors) largest = std::max(largest, tensor.data.size());
  auto nothing = ReserveUnreadable(largest);
  if (!nothing) {
    return api::Fail(api::ErrorCode::kInternal,
                     fmt::format("{}: no address space for {} bytes", files->path(), largest));
  }
  for (Tensor& tensor : tensors) {
    if (tensor.data.size() <= kSmallTensorBytes) continue;
    tensor.data = std::span(static_cast<const std::byte*>(nothing.get()), tensor.data.size());
  }
  return std::make_shared<const ModelFilesOverlay>(std::move(files), std::move(tensors), std::move(nothing),
                                                   /*metadata_only=*/true);
}

}  // namespace quire::runner::weights
