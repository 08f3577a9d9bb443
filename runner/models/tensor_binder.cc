#include "runner/models/tensor_binder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "runner/kernels/float_panels.h"
#include "runner/kernels/numa_plan.h"
#include "runner/kernels/panels.h"

namespace quire::runner::models {
namespace {

std::vector<float> ToFloat32(const weights::Tensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.elements()));
  std::vector<int32_t> rows(static_cast<size_t>(tensor.rows()));
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int32_t>(i);
  kernels::EmbeddingRows(kernels::AsMatrix(tensor), rows, values);
  return values;
}

// Rows [begin, begin + size) of each of `count` groups of `stride` rows.
struct RowGroups {
  int64_t begin, size, stride, count;
};

std::vector<float> Gather(const RowGroups& rows, const std::vector<float>& from) {
  std::vector<float> gathered;
  for (int64_t group = 0; group < rows.count; ++group) {
    const auto first = from.begin() + rows.begin + group * rows.stride;
    gathered.insert(gathered.end(), first, first + rows.size);
  }
  return gathered;
}

kernels::Matrix GatherRows(TensorBinder& bind, const kernels::Matrix& from, const RowGroups& rows,
                           bool metadata_only) {
  kernels::Matrix to = from;
  to.out = rows.size * rows.count;
  if (metadata_only) return bind.InPanels(to, WeightUse::kMade);
  const size_t row_bytes = weights::RowBytes(from.type, from.in);
  const size_t bytes = static_cast<size_t>(rows.size) * row_bytes;
  auto memory = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(rows.count) * bytes);
  for (int64_t group = 0; group < rows.count; ++group) {
    std::memcpy(memory.get() + static_cast<size_t>(group) * bytes,
                from.data + static_cast<size_t>(rows.begin + group * rows.stride) * row_bytes, bytes);
  }
  to.data = memory.get();
  return bind.InPanels(to, std::move(memory));
}

}  // namespace

TensorBinder::TensorBinder(const weights::ModelFiles& files, PanelStore* panels)
    : files_(files), panels_(panels) {
  if (files.format() == weights::Format::kGguf) return;
  prefix_ = "model.";
  // The last one: saved as what is inside of a model that generates, as models that embed are.
  constexpr const char* kPrefixes[] = {"model.language_model.",
                                       "language_model.model.",
                                       "model.text_model.",
                                       "backbone.",
                                       "transformer.",
                                       "gpt_neox.",
                                       ""};
  constexpr const char* kEmbeddings[] = {"embed_tokens",    "embedding", "embeddings", "wte",
                                         "word_embeddings", "embed_in",  "embed"};
  for (const char* prefix : kPrefixes) {
    for (const char* embedding : kEmbeddings) {
      if (files.Find(fmt::format("{}{}.weight", prefix, embedding)) != nullptr) prefix_ = prefix;
    }
  }
}

TensorScope TensorBinder::Named(std::string prefix) { return {this, std::move(prefix)}; }

TensorScope TensorBinder::Outside() {
  return {this, prefix_ == "language_model.model." ? "language_model." : ""};
}

TensorScope TensorBinder::Global() { return {this, prefix_}; }

TensorScope TensorBinder::MtpScope(size_t layers) {
  const bool gguf = files_.format() == weights::Format::kGguf;
  return {this, gguf ? fmt::format("blk.{}.nextn.", layers) : "mtp."};
}

TensorScope TensorBinder::MtpLayerScope(size_t layers) {
  const bool gguf = files_.format() == weights::Format::kGguf;
  return gguf ? Layer(layers) : TensorScope(this, "mtp.layers.0.");
}

TensorScope TensorBinder::Layer(size_t index, std::string_view layers) {
  return {this, gguf() ? fmt::format("blk.{}.", index) : fmt::format("{}{}.{}.", prefix_, layers, index)};
}

void TensorBinder::Fail(const std::string& name, const std::string& reason) {
  if (error_) return;
  error_ =
      api::Error{api::ErrorCode::kBadModel, fmt::format("{}: tensor {} {}", files_.path(), name, reason)};
}

kernels::Matrix TensorBinder::InPanels(const kernels::Matrix& matrix, WeightUse use) {
  if (error_ || panels_ == nullptr) return matrix;
  if (!pool_) {
    pool_.emplace(files_.metadata_only() ? 1 : ComputeThreads());
  }
  return panels_->Add(*pool_, matrix, use);
}

kernels::Matrix TensorBinder::InPanels(const kernels::Matrix& matrix, std::unique_ptr<std::byte[]> memory) {
  const kernels::Matrix packed = InPanels(matrix, WeightUse::kMade);
  if (packed.panels == nullptr && panels_ != nullptr) panels_->Store(std::move(memory));
  return packed;
}

void TensorBinder::RefuseUnreadScales() {
  constexpr std::string_view kScale = ".scale";
  for (const weights::Tensor& tensor : files_.tensors()) {
    if (!gguf() || !tensor.name.ends_with(kScale) || read_.contains(tensor.name)) continue;
    const std::string_view stem = std::string_view(tensor.name).substr(0, tensor.name.size() - kScale.size());
    if (read_.contains(fmt::format("{}.weight", stem))) Fail(tensor.name, "is not supported");
  }
}

int64_t TensorBinder::resident_bytes() const {
  return float32_bytes_ + (panels_ != nullptr ? panels_->bytes() + panels_->mapped_bytes() : 0);
}

std::vector<float> TensorBinder::AsFloat32(const weights::Tensor& tensor) {
  float32_bytes_ += tensor.elements() * static_cast<int64_t>(sizeof(float));
  if (!files_.CanRead(tensor)) return std::vector<float>(static_cast<size_t>(tensor.elements()));
  return ToFloat32(tensor);
}

const weights::Tensor* TensorBinder::Require(const std::string& name, std::span<const Shape> shapes) {
  if (error_) return nullptr;
  const weights::Tensor* tensor = files_.Find(name);
  if (tensor == nullptr) {
    Fail(name, "is missing");
    return nullptr;
  }
  if (std::find(shapes.begin(), shapes.end(), tensor->shape) == shapes.end()) {
    Fail(name, fmt::format("has the shape [{}], but the configuration requires [{}]",
                           fmt::join(tensor->shape, ", "), fmt::join(shapes.front(), ", ")));
    return nullptr;
  }
  if (tensor->columns() % weights::BlockElements(tensor->type) != 0) {
    Fail(name, "has rows that are not a multiple of the block size");
    return nullptr;
  }
  read_.insert(name);
  parameters_ += tensor->elements();
  bytes_ += static_cast<int64_t>(tensor->data.size());
  return tensor;
}

std::string TensorScope::Full(TensorName name, std::string_view suffix) const {
  return fmt::format("{}{}{}", prefix_, gguf() ? name.gguf : name.hugging_face, suffix);
}

std::vector<float> TensorScope::Vector(const std::string& name, int64_t size) const {
  const TensorBinder::Shape shapes[] = {{size}};
  const weights::Tensor* tensor = binder_->Require(name, shapes);
  return tensor == nullptr ? std::vector<float>() : binder_->AsFloat32(*tensor);
}

std::vector<float> TensorScope::BiasOf(TensorName name, int64_t size, Bias bias) const {
  const std::string full = Full(name, ".bias");
  const bool stored = binder_->files_.Find(full) != nullptr;
  if (bias == Bias::kPresent || (bias == Bias::kIfStored && stored)) return Vector(full, size);
  if (stored) binder_->Fail(full, "is present, but the configuration does not use it");
  return {};
}

float TensorScope::ScaleOf(TensorName name) const {
  if (!gguf()) return 1;
  const std::string scale = fmt::format("{}.scale", name.gguf);
  const weights::Tensor* const stored = binder_->files_.Find(Full({"", scale}, ""));
  return stored != nullptr && stored->elements() == 1 ? Scalar({"", scale}) : 1;
}

kernels::Matrix TensorScope::Matrix(TensorName name, int64_t out, int64_t in) const {
  return RowsOf(Full(name, ".weight"), out, in);
}

kernels::Matrix TensorScope::Rows(TensorName name, int64_t out, int64_t in) const {
  return RowsOf(Full(name, ""), out, in);
}

kernels::Matrix TensorScope::RowsOf(const std::string& name, int64_t out, int64_t in) const {
  std::vector<TensorBinder::Shape> shapes = {{out, in}};
  // As in Table(): llama-quantize does that to the one row of a classification head.
  if (out == 1) shapes.push_back({in});
  const weights::Tensor* tensor = binder_->Require(name, shapes);
  return tensor == nullptr ? kernels::Matrix() : kernels::AsMatrix(*tensor);
}

std::vector<kernels::Matrix> TensorScope::Stacked(TensorName name, int64_t count, int64_t out,
                                                  int64_t in) const {
  const TensorBinder::Shape shapes[] = {{count, out, in}};
  const weights::Tensor* tensor = binder_->Require(Full(name, ""), shapes);
  std::vector<kernels::Matrix> matrices;
  for (int64_t i = 0; tensor != nullptr && i < count; ++i) {
    matrices.push_back(kernels::RowsOf(kernels::AsMatrix(*tensor), i * out, (i + 1) * out));
  }
  return matrices;
}

kernels::Matrix TensorScope::ColumnsOf(TensorName name, const kernels::Matrix& stored, int64_t begin,
                                       int64_t end) const {
  kernels::Matrix matrix{.data = stored.data, .type = stored.type, .out = end - begin, .in = stored.out};
  if (failed()) return matrix;
  if (!kernels::IsFloat(stored.type)) {
    Fail(name, "is quantized across its inputs; only floats are supported");
    return matrix;
  }
  if (metadata_only()) return binder_->InPanels(matrix, WeightUse::kMade);
  const size_t bytes = weights::RowBytes(stored.type, 1), columns = static_cast<size_t>(stored.in);
  const auto out = static_cast<size_t>(matrix.out), in = static_cast<size_t>(matrix.in);
  const std::byte* const first = stored.data + static_cast<size_t>(begin) * bytes;
  auto memory = std::make_unique_for_overwrite<std::byte[]>(out * in * bytes);
  for (size_t i = 0; i < in; ++i) {
    for (size_t o = 0; o < out; ++o) {
      std::memcpy(memory.get() + (o * in + i) * bytes, first + (i * columns + o) * bytes, bytes);
    }
  }
  matrix.data = memory.get();
  return binder_->InPanels(matrix, std::move(memory));
}

Linear TensorScope::BindLinear(TensorName name, int64_t out, int64_t in, Bias bias) const {
  Linear linear{.weight = binder_->transposed_ ? ColumnsOf(name, Matrix(name, in, out), 0, out)
                                               : InPanels(Matrix(name, out, in)),
                .bias = {}};
  if (kernels::HasPanels(linear.weight.type)) RowWidths::Grow(widths().quantized, in);
  linear.bias = BiasOf(name, out, bias);
  linear.scale = ScaleOf(name);
  return linear;
}

std::vector<Linear> TensorScope::BindRows(TensorName name, std::span<const int64_t> sizes, int64_t in,
                                          Bias bias, int64_t groups) const {
  const int64_t all = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  const bool transposed = binder_->transposed_;
  const kernels::Matrix matrix = transposed ? Matrix(name, in, all) : Matrix(name, all, in);
  const std::vector<float> biases = BiasOf(name, all, bias);
  std::vector<Linear> parts(sizes.size());
  if (failed()) return parts;
  int64_t begin = 0;  // of the part, in the first group
  for (size_t i = 0; i < parts.size(); begin += sizes[i++] / groups) {
    const RowGroups rows{.begin = begin, .size = sizes[i] / groups, .stride = all / groups, .count = groups};
    if (transposed) {
      parts[i].weight = ColumnsOf(name, matrix, begin, begin + sizes[i]);
    } else if (groups == 1) {
      parts[i].weight = InPanels(kernels::RowsOf(matrix, begin, begin + sizes[i]));
    } else {
      parts[i].weight = GatherRows(*binder_, matrix, rows, metadata_only());
    }
    if (kernels::HasPanels(parts[i].weight.type)) RowWidths::Grow(widths().quantized, in);
    if (!biases.empty()) parts[i].bias = Gather(rows, biases);
    parts[i].scale = ScaleOf(name);
  }
  return parts;
}

std::vector<float> TensorScope::Values(TensorName name, int64_t size) const {
  return Vector(Full(name, ""), size);
}

std::vector<float> TensorScope::Elements(TensorName name, int64_t size) const {
  const weights::Tensor* tensor = binder_->files_.Find(Full(name, ""));
  const bool holds =
      tensor != nullptr && std::ranges::count_if(tensor->shape, [](int64_t n) { return n != 1; }) <= 1;
  const TensorBinder::Shape shapes[] = {holds && tensor->elements() == size ? tensor->shape
                                                                            : TensorBinder::Shape{size}};
  tensor = binder_->Require(Full(name, ""), shapes);
  return tensor == nullptr ? std::vector<float>() : binder_->AsFloat32(*tensor);
}

std::vector<float> TensorScope::Table(TensorName name, int64_t rows, int64_t columns) const {
  std::vector<TensorBinder::Shape> shapes = {{rows, columns}, {rows, 1, 1, columns}};
  // Tools that rewrite GGUF files drop dimensions of 1.
  if (rows == 1 || columns == 1) shapes.push_back({rows * columns});
  const weights::Tensor* tensor = binder_->Require(Full(name, ""), shapes);
  return tensor == nullptr ? std::vector<float>() : binder_->AsFloat32(*tensor);
}

std::span<const std::byte> TensorScope::Raw(std::string_view hugging_face, std::string_view dtype,
                                            std::span<const int64_t> shape) const {
  if (failed()) return {};
  const std::string name = Full({hugging_face, ""}, "");
  const weights::RawTensor* tensor = binder_->files_.FindRaw(name);
  if (tensor == nullptr) {
    binder_->Fail(name, "is missing");
  } else if (tensor->dtype != dtype || !std::ranges::equal(tensor->shape, shape)) {
    binder_->Fail(
        name, fmt::format("has the type {} and the shape [{}], but the configuration requires {} and [{}]",
                          tensor->dtype, fmt::join(tensor->shape, ", "), dtype, fmt::join(shape, ", ")));
  } else {
    binder_->bytes_ += static_cast<int64_t>(tensor->data.size());
    return tensor->data;
  }
  return {};
}

bool TensorScope::HasRaw(std::string_view hugging_face) const {
  return binder_->files_.FindRaw(Full({hugging_face, ""}, "")) != nullptr;
}

std::vector<int32_t> TensorScope::Indices(TensorName name, int64_t rows, int64_t columns,
                                          int64_t limit) const {
  if (failed()) return {};
  const std::string full = Full(name, "");
  const auto count = static_cast<size_t>(rows * columns);
  std::vector<int32_t> indices(count);
  if (metadata_only()) return indices;
  const auto stored = binder_->files_.Integers(full);
  if (!stored || stored->size() != count) {
    binder_->Fail(full, fmt::format("is missing or no table [{}, {}] of integers", rows, columns));
    return {};
  }
  for (size_t i = 0; i < count; ++i) {
    const int64_t index = (*stored)[i];
    if (index < 0 || index >= limit) {
      binder_->Fail(full, fmt::format("has {}, which is not below {}", index, limit));
      return {};
    }
    indices[i] = static_cast<int32_t>(index);
  }
  return indices;
}

float TensorScope::Scalar(TensorName name) const {
  const TensorBinder::Shape shapes[] = {{1}, {}};
  const weights::Tensor* tensor = binder_->Require(Full(name, ""), shapes);
  return tensor == nullptr ? 0 : binder_->AsFloat32(*tensor).front();
}

std::vector<float> TensorScope::Norm(TensorName name, int64_t size) const {
  return Vector(Full(name, ".weight"), size);
}

std::vector<float> TensorScope::Taps(TensorName name, int64_t channels, int64_t kernel) const {
  const TensorBinder::Shape shapes[] = {{channels, 1, kernel}, {channels, kernel}, {1, channels, 1, kernel}};
  const weights::Tensor* tensor = binder_->Require(Full(name, ".weight"), shapes);
  if (tensor == nullptr) return {};
  const std::vector<float> by_channel = binder_->AsFloat32(*tensor);
  std::vector<float> taps(by_channel.size());
  const auto width = static_cast<size_t>(channels), length = static_cast<size_t>(kernel);
  for (size_t c = 0; c < width; ++c) {
    for (size_t k = 0; k < length; ++k) taps[k * width + c] = by_channel[c * length + k];
  }
  return taps;
}

std::vector<float> TensorScope::TapsBias(TensorName name, int64_t channels, Bias bias) const {
  return BiasOf(name, channels, bias);
}

std::optional<weights::DataType> TensorScope::TypeOf(TensorName name) const {
  const weights::Tensor* tensor = binder_->files_.Find(Full(name, ""));
  return tensor == nullptr ? std::nullopt : std::optional(tensor->type);
}

std::vector<int64_t> TensorScope::ShapeOf(TensorName name) const {
  const weights::Tensor* tensor = binder_->files_.Find(Full(name, ""));
  return tensor == nullptr ? std::vector<int64_t>() : tensor->shape;
}

bool TensorScope::Has(TensorName name) const { return binder_->files_.Find(Full(name, "")) != nullptr; }

bool TensorScope::CanRead(TensorName name) const {
  const weights::Tensor* const tensor = binder_->files_.Find(Full(name, ""));
  return tensor != nullptr && binder_->files_.CanRead(*tensor);
}

bool TensorScope::HasWeight(TensorName name) const {
  const std::string_view in_file = gguf() ? name.gguf : name.hugging_face;
  return !in_file.empty() && binder_->files_.Find(Full(name, ".weight")) != nullptr;
}

}  // namespace quire::runner::models
