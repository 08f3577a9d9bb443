// A model's files without weights, to estimate the memory of a model without loading it.
#pragma once

#include <cstddef>
#include <memory>

#include "api/base/error.h"
#include "runner/weights/model_files.h"

namespace quire::runner::weights {

// Tensors of at most this size keep their data. A family's loader can refuse a model for a value before it is
// loaded.
inline constexpr size_t kSmallTensorBytes = 4096;

// `files` with larger tensors whose data has its true size but lies where nothing may be read: who does ends
// the process. QuantizeOnLoad of such files changes types and sizes, and computes nothing. kInternal when not
// even address space can be had.
api::Result<std::shared_ptr<const ModelFiles>> MetadataOnly(std::shared_ptr<const ModelFiles> files);

// Address space of `bytes` that nothing may touch; null when there is none.
std::shared_ptr<const void> ReserveUnreadable(size_t bytes);

}  // namespace quire::runner::weights
