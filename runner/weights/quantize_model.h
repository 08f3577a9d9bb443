// A GGUF model made smaller: the same key/values and names, with the weight matrices in blocks.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "runner/weights/model_source.h"
#include "runner/weights/output_file.h"
#include "runner/weights/tensor.h"

namespace quire::runner::weights {

// Quantization presets (file types) that a model can be quantized to, by the names users know: "Q8_0",
// "Q6_K", "Q4_K_M", ...
std::vector<std::string_view> QuantizationNames();

// Which type llama-quantize gives a tensor of a preset: most matrices the type the preset is called after;
// the output matrix (or the embedding that serves as one) Q6_K; in Q4_K_M the value projections and down
// projections of some layers Q6_K; what is small or sensitive stays as it is. `place` of `places`: which of
// the model's tensors of that kind, in the order of its blocks. REQUIRES: `preset` is one of
// QuantizationNames().
DataType QuantizedType(std::string_view preset, const Tensor& tensor, bool is_output, size_t place,
                       size_t places);

// Reads a GGUF model of F32, F16 or BF16 (all its splits) and writes one file with all of it. With an empty
// preset the tensors stay as they are, whatever they are: only the splits become one file.
// kInvalidArgument for a preset that is not known; kBadModel "FILE: reason" when the model is broken or
// quantized already; kInternal when writing fails. `threads` >= 1 quantize at once. Memory: some tens of
// megabytes. `on_progress`, unless empty, is called with the fraction written, now and then.
api::Result<void> QuantizeGguf(const ModelSource& from, std::string_view preset, OutputFile to, int threads,
                               const std::function<void(float fraction)>& on_progress = {});

}  // namespace quire::runner::weights
