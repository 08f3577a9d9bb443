// A Hugging Face checkpoint in FP8, GPTQ, AWQ or compressed-tensors as a model in the types that are
// multiplied here (quantized_linears.h).
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "api/base/error.h"
#include "runner/weights/model_files.h"
#include "runner/weights/quantized_linears.h"

namespace quire::runner::weights {

struct QuantizedCheckpoint {
  std::vector<QuantizedLinear> linears;                  // they refer to the files
  std::vector<Tensor> tensors;                           // those that are no part of a layer above
  std::shared_ptr<const nlohmann::ordered_json> config;  // without quantization_config
};

// Null for other files. kBadModel names the key or tensor that is not supported. No weight is read.
api::Result<std::unique_ptr<const QuantizedCheckpoint>> ReadQuantizedCheckpoint(const ModelFiles& files);

// `files` with its quantized layers converted, by `threads` >= 1 at once; other files as they are. The layers
// lie in a ScratchFile; of files without weights (metadata_only.h) only types and shapes change. kBadModel
// names the tensor whose scales or zero points cannot be converted, kInternal when there is no temporary
// file.
api::Result<std::shared_ptr<const ModelFiles>> ConvertCheckpoint(std::shared_ptr<const ModelFiles> files,
                                                                 int threads);

}  // namespace quire::runner::weights
