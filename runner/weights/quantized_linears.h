// The linear layers of a checkpoint that was quantized elsewhere: FP8, GPTQ, AWQ, compressed-tensors, BitNet.
// A layer is several tensors in the file and becomes one weight in a type that this engine multiplies:
//
//   codes                                    becomes   because
//   4 bits, every zero point 8               Q4_0      the same numbers: the scale is float16 (1)
//   4 bits, other zero points                Q4_1      scale exact (1), offset -zero * scale as float16
//   8 bits, every zero point 128; INT8       Q8_0      the same numbers (1)
//   groups that are not in order, or that
//   are no whole blocks of 32; 8 bits with
//   other zero points                        F16       rounded to nearest
//   FP8                                      BF16      rounded to nearest
//   -1, 0 and 1                              TQ2_0     the same numbers (1); F16, where rows are no whole
//                                                      blocks of 256
//
// (1) Scales that are bfloat16 or float32 in the file are rounded to float16.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "runner/weights/checkpoint_method.h"
#include "runner/weights/model_files.h"

namespace quire::runner::weights {

class QuantizedLinear {
 public:
  enum class Packing : uint8_t { kGptq, kAwq, kRows, kInt8, kFp8, kTernary };

  std::string name;                // of the weight: "model.layers.0.mlp.up_proj.weight"
  DataType type = DataType::kF16;  // that it becomes
  std::vector<int64_t> shape;      // [out, in]

  Packing packing = Packing::kGptq;
  int32_t bits = 4;
  int32_t zero = 8;      // of every group, unless `zeros` has them
  int32_t zero_add = 0;  // to those in `zeros`
  // GPTQ, AWQ: codes [in / per, out] and [in, out / per]; kRows: [out, in / per], where `per` are in 32 bits;
  // kTernary: bytes [out / 4, in], in which output o has the bits 2 (o / (out / 4)) and the next.
  const RawTensor* codes = nullptr;
  const RawTensor* zeros = nullptr;  // GPTQ, AWQ: [groups, out / per]; kRows: [out / per, groups]
  const RawTensor* order = nullptr;  // the group of each input; null: in order
  const Tensor* scales = nullptr;    // floats
  int64_t groups = 1, group = 0;     // scales of a row; inputs of a scale
  int64_t rows_per_scale = 1;        // FP8: outputs that share a scale
  bool scales_by_group = false;      // scales [groups, out], else [rows, groups]
  bool inverse_scales = false;       // they divide

  int64_t out() const { return shape[0]; }
  int64_t in() const { return shape[1]; }
  // kBadModel names what its data contradict: zero points, groups, scales that are no finite float16.
  api::Result<void> Check(const std::string& file) const;
  // Writes rows [first, first + rows) in `type`. False for a code of FP8 or of three that is no number.
  // REQUIRES: Check().
  bool CopyRows(int64_t first, int64_t rows, std::byte* to) const;

 private:
  float Scale(int64_t row, int64_t group) const;
  int32_t Zero(int64_t row, int64_t group) const;
  int64_t GroupOf(int64_t column) const;
  void Unpack(int64_t first, int64_t rows, std::span<uint8_t> out) const;
  void EncodeRow(int64_t row, std::span<const uint8_t> codes, std::byte* to) const;
};

// All of them, and in `used` the names of the float tensors that they are made of. kBadModel names a tensor
// that is missing, has an unexpected shape, or belongs to no layer. They refer to `files`, whose data is not
// looked at.
api::Result<std::vector<QuantizedLinear>> FindQuantizedLinears(const ModelFiles& files,
                                                               const CheckpointMethod& method,
                                                               std::vector<std::string_view>* used);

}  // namespace quire::runner::weights
