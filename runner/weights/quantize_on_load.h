// A model whose float matrices are quantized as it is opened, whichever of the formats it is in.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "runner/weights/model_files.h"

namespace quire::runner::weights {

// The types to quantize to, by name: "Q8_0", "Q6_K", "Q4_K", "Q4_0".
std::vector<std::string_view> LoadQuantizationNames();

// `files` with every F32, F16 or BF16 matrix of a linear layer in blocks of the type called `name` (in upper
// or lower case): the same blocks as Quantize makes of its rows. Embeddings and the output get at least Q6_K;
// rows that are no whole blocks get Q8_0 or stay; what is small or sensitive (norms, convolutions, routers)
// and what is in blocks already stays. kInvalidArgument for a name that is none of LoadQuantizationNames().
//
// Memory: a row per thread while it works. The blocks lie in an unnamed file in the directory for temporary
// files ($TMPDIR), mapped like a model's own file: what is in memory of it and of the source is the kernel's
// to drop. kInternal when that file cannot be had. `threads` >= 1 work at once.
api::Result<std::shared_ptr<const ModelFiles>> QuantizeOnLoad(std::shared_ptr<const ModelFiles> files,
                                                              std::string_view name, int threads);

}  // namespace quire::runner::weights
