#include "runner/weights/quantized_linears.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "runner/weights/text.h"

namespace quire::runner::weights {
namespace {

using Kind = CheckpointMethod::Kind;
using Packing = QuantizedLinear::Packing;
using Shape = std::vector<int64_t>;

constexpr int64_t kWordBits = 32;
constexpr int64_t kBlock = 32;  // of Q4_0, Q4_1 and Q8_0

int64_t Ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Finds the layers of one checkpoint.
class LinearFinder {
 public:
  LinearFinder(const ModelFiles& files, const CheckpointMethod& method, std::vector<std::string_view>* used)
      : files_(files), method_(method), used_(used) {
    for (const RawTensor& raw : files.raw_tensors()) raw_by_name_.emplace(raw.name);
  }

  api::Result<std::vector<QuantizedLinear>> Find() {
    std::vector<QuantizedLinear> linears;
    for (const RawTensor& raw : files_.raw_tensors()) {
      const auto linear = Linear(raw);
      if (linear && error_.empty()) linears.push_back(*linear);
      if (!error_.empty()) break;
    }
    for (const std::string_view name : raw_by_name_) {
      if (error_.empty()) error_ = fmt::format("tensor {} belongs to no quantized layer", Quoted(name));
    }
    if (!error_.empty()) {
      return api::Fail(api::ErrorCode::kBadModel, fmt::format("{}: {}", files_.path(), error_));
    }
    return linears;
  }

 private:
  // The layer whose codes these are.
  std::optional<QuantizedLinear> Linear(const RawTensor& raw) {
    const auto stem = [&](std::string_view ending) -> std::optional<std::string> {
      if (!raw.name.ends_with(ending)) return std::nullopt;
      return raw.name.substr(0, raw.name.size() - ending.size());
    };
    if (method_.kind == Kind::kGptq || method_.kind == Kind::kAwq) {
      const auto layer = stem(".qweight");
      return layer ? std::optional(Packed(*layer, raw)) : std::nullopt;
    }
    if (method_.kind == Kind::kCompressedTensors) {
      if (const auto layer = stem(".weight_packed")) return InRows(*layer, raw);
    }
    const auto layer = stem(".weight");
    if (!layer) return std::nullopt;
    if (method_.kind == Kind::kBitNet) return Ternary(*layer, raw);
    if (raw.dtype == "F8_E4M3") return Float8(*layer, raw);
    if (raw.dtype == "I8" && method_.kind == Kind::kCompressedTensors) return Int8(*layer, raw);
    return std::nullopt;
  }

  // GPTQ and AWQ: [in / per, out] or [in, out / per].
  QuantizedLinear Packed(const std::string& layer, const RawTensor& codes) {
    const bool gptq = method_.kind == Kind::kGptq;
    QuantizedLinear linear = Start(layer, codes, gptq ? Packing::kGptq : Packing::kAwq);
    if (!Is(codes, "I32", {-1, -1})) return linear;
    linear.bits = method_.bits;
    const int64_t per = kWordBits / linear.bits;
    const int64_t rows = codes.shape[0], columns = codes.shape[1];
    linear.shape = gptq ? Shape{columns, rows * per} : Shape{columns * per, rows};
    linear.group = method_.group == 0 ? linear.in() : method_.group;
    linear.groups = Ceil(linear.in(), linear.group);
    linear.scales_by_group = true;
    linear.zero = 1 << (linear.bits - 1);
    linear.zero_add = gptq && !method_.zeros_as_are ? 1 : 0;
    if (linear.out() % per != 0) {
      Fail(codes.name, fmt::format("has {} outputs, of which {} share a number", linear.out(), per));
      return linear;
    }
    linear.zeros = Raw(layer + ".qzeros", "I32", {linear.groups, linear.out() / per});
    linear.scales = Floats(layer + ".scales", {{linear.groups, linear.out()}});
    if (gptq && raw_by_name_.contains(layer + ".g_idx"))
      linear.order = Raw(layer + ".g_idx", "I32", {linear.in()});
    if (method_.any_order && linear.order == nullptr)
      Fail(layer + ".g_idx", "is missing, but desc_act is true");
    Choose(linear, gptq && method_.symmetric, gptq && method_.any_order);
    return linear;
  }

  // compressed-tensors: [out, in / per], and the shape beside it.
  QuantizedLinear InRows(const std::string& layer, const RawTensor& codes) {
    QuantizedLinear linear = Start(layer, codes, Packing::kRows);
    const auto shape = files_.Integers(layer + ".weight_shape");
    if (!Is(codes, "I32", {-1, -1})) return linear;
    if (!shape || shape->size() != 2 || (*shape)[0] != codes.shape[0] || (*shape)[1] <= 0 ||
        (*shape)[1] > (1 << 30)) {
      Fail(layer + ".weight_shape", "is missing, or not the shape of the codes");
      return linear;
    }
    linear.shape = *shape;
    for (const int32_t bits : {4, 8}) {
      if (Ceil(linear.in(), kWordBits / bits) == codes.shape[1]) linear.bits = bits;
    }
    const int64_t per = kWordBits / linear.bits;
    if (Ceil(linear.in(), per) != codes.shape[1]) {
      Fail(codes.name, "has codes of neither 4 nor 8 bits");
      return linear;
    }
    linear.zero = 1 << (linear.bits - 1);
    RowScales(linear, layer + ".weight_scale");
    const bool zeros = raw_by_name_.contains(layer + ".weight_zero_point");
    if (zeros)
      linear.zeros = Raw(layer + ".weight_zero_point", "I32", {Ceil(linear.out(), per), linear.groups});
    const bool any_order = raw_by_name_.contains(layer + ".weight_g_idx");
    if (any_order) linear.order = Raw(layer + ".weight_g_idx", "I32", {linear.in()});
    Choose(linear, !zeros, any_order);
    return linear;
  }

  QuantizedLinear Int8(const std::string& layer, const RawTensor& codes) {
    QuantizedLinear linear = Start(layer, codes, Packing::kInt8);
    if (!Is(codes, "I8", {-1, -1})) return linear;
    linear.shape = codes.shape;
    linear.bits = 8;
    linear.zero = 128;
    RowScales(linear, layer + ".weight_scale");
    Choose(linear, true, false);
    return linear;
  }

  QuantizedLinear Ternary(const std::string& layer, const RawTensor& codes) {
    constexpr int64_t kPerByte = 4, kTernaryBlock = 256;
    QuantizedLinear linear = Start(layer, codes, Packing::kTernary);
    if (!Is(codes, "U8", {-1, -1})) return linear;
    linear.shape = {codes.shape[0] * kPerByte, codes.shape[1]};
    linear.bits = 2;
    linear.zero = 1;
    linear.inverse_scales = method_.divides;
    linear.type = linear.in() % kTernaryBlock == 0 ? DataType::kTQ2_0 : DataType::kF16;
    RowScales(linear, layer + ".weight_scale");
    return linear;
  }

  QuantizedLinear Float8(const std::string& layer, const RawTensor& codes) {
    QuantizedLinear linear = Start(layer, codes, Packing::kFp8);
    if (!Is(codes, "F8_E4M3", {-1, -1})) return linear;
    linear.shape = codes.shape;
    linear.bits = 8;
    linear.type = DataType::kBF16;
    const std::string inverse = layer + ".weight_scale_inv";
    const std::string name = files_.Find(inverse) != nullptr ? inverse : layer + ".weight_scale";
    const bool one_block = linear.out() <= method_.block_rows && linear.in() <= method_.block_columns;
    const Tensor* scale = files_.Find(name);
    if (scale != nullptr && IsFloats(*scale) && scale->elements() == 1 &&
        (method_.block_rows == 0 || one_block)) {
      linear.scales = scale;
      used_->push_back(scale->name);
      linear.group = linear.in();
      linear.rows_per_scale = linear.out();
    } else if (method_.block_rows > 0) {
      linear.group = method_.block_columns;
      linear.rows_per_scale = method_.block_rows;
      linear.groups = Ceil(linear.in(), linear.group);
      linear.scales = Floats(name, {{Ceil(linear.out(), linear.rows_per_scale), linear.groups}});
    } else {
      RowScales(linear, name);
    }
    return linear;
  }

  // [out, groups], [out] or one. Blocks of compressed-tensors are 128 x 128.
  void RowScales(QuantizedLinear& linear, const std::string& name) {
    constexpr int64_t kBlockSize = 128;
    const Tensor* scale = files_.Find(name);
    const int64_t rows = scale == nullptr || scale->shape.empty() ? 1 : scale->shape.front();
    const int64_t columns = scale == nullptr || scale->shape.size() < 2 ? 1 : scale->shape[1];
    if (scale == nullptr || !IsFloats(*scale) || scale->shape.size() > 2) {
      return Fail(name, "is missing, or no matrix of floats");
    }
    const Shape blocks = {Ceil(linear.out(), kBlockSize), Ceil(linear.in(), kBlockSize)};
    if (rows == linear.out() && columns <= linear.in() && linear.in() % columns == 0) {
      linear.rows_per_scale = 1;
      linear.group = linear.in() / columns;
    } else if (scale->elements() == 1) {
      linear.rows_per_scale = linear.out();
      linear.group = linear.in();
    } else if (linear.packing == Packing::kFp8 && scale->shape == blocks) {
      linear.rows_per_scale = linear.group = kBlockSize;
    } else {
      return Fail(name, fmt::format("has the shape [{}], which fits no strategy of scales for [{}]",
                                    fmt::join(scale->shape, ", "), fmt::join(linear.shape, ", ")));
    }
    linear.groups = Ceil(linear.in(), linear.group);
    linear.scales = scale;
    used_->push_back(scale->name);
  }

  void Choose(QuantizedLinear& linear, bool symmetric, bool any_order) const {
    const bool blocks = linear.in() % kBlock == 0 && (linear.group % kBlock == 0 || linear.groups == 1);
    if (any_order || !blocks || (linear.bits == 8 && !symmetric)) {
      linear.type = DataType::kF16;
    } else if (linear.bits == 8) {
      linear.type = DataType::kQ8_0;
    } else {
      linear.type = symmetric ? DataType::kQ4_0 : DataType::kQ4_1;
    }
  }

  QuantizedLinear Start(const std::string& layer, const RawTensor& codes, Packing packing) {
    QuantizedLinear linear;
    linear.name = layer + ".weight";
    linear.shape = {1, 1};
    linear.packing = packing;
    linear.codes = &codes;
    raw_by_name_.erase(codes.name);
    if (files_.Find(linear.name) != nullptr) Fail(linear.name, "is there twice, quantized and not");
    return linear;
  }

  static bool IsFloats(const Tensor& tensor) { return BlockElements(tensor.type) == 1; }

  // -1: any size.
  bool Is(const RawTensor& raw, std::string_view dtype, const Shape& shape) {
    bool fits = raw.dtype == dtype && raw.shape.size() == shape.size();
    for (size_t i = 0; fits && i < shape.size(); ++i) fits = shape[i] < 0 || shape[i] == raw.shape[i];
    if (fits)
      fits = std::ranges::all_of(raw.shape, [](int64_t size) { return size > 0 && size <= (1 << 28); });
    if (!fits) {
      Fail(raw.name, fmt::format("has the type {} and the shape [{}], but {} and [{}] are required",
                                 raw.dtype, fmt::join(raw.shape, ", "), dtype, fmt::join(shape, ", ")));
    }
    return fits;
  }
  const RawTensor* Raw(const std::string& name, std::string_view dtype, const Shape& shape) {
    const RawTensor* raw = files_.FindRaw(name);
    raw_by_name_.erase(name);
    if (raw == nullptr) {
      Fail(name, "is missing");
    } else if (!Is(*raw, dtype, shape)) {
      return nullptr;
    }
    return raw;
  }
  const Tensor* Floats(const std::string& name, const Shape& shape) {
    const Tensor* tensor = files_.Find(name);
    if (tensor == nullptr || !IsFloats(*tensor) || tensor->shape != shape) {
      Fail(name,
           fmt::format("is missing, or no tensor of floats with the shape [{}]", fmt::join(shape, ", ")));
      return nullptr;
    }
    used_->push_back(tensor->name);
    return tensor;
  }

  void Fail(std::string_view tensor, std::string_view reason) {
    if (error_.empty()) error_ = fmt::format("tensor {} {}", Quoted(tensor), reason);
  }

  const ModelFiles& files_;
  const CheckpointMethod& method_;
  std::vector<std::string_view>* const used_;
  std::set<std::string_view> raw_by_name_;  // those that no layer has taken
  std::string error_;
};

}  // namespace

api::Result<std::vector<QuantizedLinear>> FindQuantizedLinears(const ModelFiles& files,
                                                               const CheckpointMethod& method,
                                                               std::vector<std::string_view>* used) {
  return LinearFinder(files, method, used).Find();
}

}  // namespace quire::runner::weights
