// How a Hugging Face checkpoint was quantized: "quantization_config" of its config.json.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "api/base/error.h"

namespace quire::runner::weights {

struct CheckpointMethod {
  enum class Kind : uint8_t { kFp8, kGptq, kAwq, kCompressedTensors, kBitNet };
  Kind kind = Kind::kFp8;
  int32_t bits = 4;           // GPTQ, AWQ: of a code
  int64_t group = 0;          // GPTQ, AWQ: inputs that share a scale; 0: all
  bool symmetric = false;     // GPTQ: every zero point is half of the codes
  bool any_order = false;     // GPTQ: desc_act; inputs of a group lie anywhere
  bool zeros_as_are = false;  // GPTQ: version 2 of the format; in version 1 zero points are stored less 1
  bool divides = false;       // BitNet: by scales, which else multiply
  int64_t block_rows = 0, block_columns = 0;  // FP8: of a scale; 0: one scale, or one for each row
};

// Whether `config`, of a config.json, has a method that ReadCheckpointMethod knows. Nothing else is checked.
bool HasCheckpointMethod(const nlohmann::ordered_json& config);

// kBadModel "FILE: quantization_config/KEY ..." for a key that has a meaning and no implementation. Nothing
// when there is no method of those above.
api::Result<std::optional<CheckpointMethod>> ReadCheckpointMethod(const nlohmann::ordered_json& config,
                                                                  const std::string& file);

}  // namespace quire::runner::weights
