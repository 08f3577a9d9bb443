// Fetches a model's tensors by name and checks each against the shape that the configuration promises. Like
// ConfigReader, it is asked for everything and then for the first error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/base/error.h"
#include "runner/kernels/matmul.h"
#include "runner/models/forward_context.h"
#include "runner/models/linear.h"
#include "runner/models/panel_store.h"
#include "runner/weights/model_files.h"

namespace quire::runner::models {

// A tensor's names in the two formats, without what its scope puts before them.
struct TensorName {
  std::string_view hugging_face;
  std::string_view gguf;
};

class TensorScope;

class TensorBinder {
 public:
  // `files` and `panels` outlive the binder, its scopes and every Matrix from it. Without `panels` every
  // matrix stays as it lies in its file.
  explicit TensorBinder(const weights::ModelFiles& files, PanelStore* panels = nullptr);

  // Names behind any prefix.
  TensorScope Named(std::string prefix);
  bool gguf() const { return files_.format() == weights::Format::kGguf; }
  // Names that stand alone: "lm_head" or "output".
  TensorScope Outside();
  // Names of the text model: "model.norm", or "output_norm". Multimodal checkpoints put it deeper.
  TensorScope Global();
  // Names of the MTP tensors of a model with `layers` layers: "mtp.fc", or "blk.24.nextn.eh_proj"; and of the
  // MTP layer: "mtp.layers.0.self_attn.q_proj", or "blk.24.attn_q".
  TensorScope MtpScope(size_t layers);
  TensorScope MtpLayerScope(size_t layers);
  // Names of decoder layer `index`: "model.layers.3.self_attn.q_proj", or "blk.3.attn_q". `layers` is what a
  // checkpoint calls them.
  TensorScope Layer(size_t index, std::string_view layers = "layers");
  // A checkpoint stores the matrices of linear layers that are bound from here on [in, out].
  void ExpectTransposed() { transposed_ = !gguf(); }

  // The same matrix for many products: with panels, where they pay. Of metadata-only files it stays as it is,
  // and its panels are counted. kMade, where `matrix` lies in memory that its caller frees when it has
  // panels.
  kernels::Matrix InPanels(const kernels::Matrix& matrix, WeightUse use = WeightUse::kAlways);
  // A matrix that no file has as it is. Its memory is freed when it has panels, else the store keeps it.
  // REQUIRES: `memory` is that of `matrix`; the binder has panels.
  kernels::Matrix InPanels(const kernels::Matrix& matrix, std::unique_ptr<std::byte[]> memory);
  // What products of experts pass, bound so far; null where all are in panels.
  ExpertPanels* expert_panels() { return panels_ == nullptr ? nullptr : panels_->experts(); }

  // Totals of all tensors returned.
  int64_t parameters() const { return parameters_; }
  int64_t bytes() const { return bytes_; }
  // Memory of the weights while the model runs: packed into panels, converted to float32, or mapped if
  // products read them in place. Rows that are only looked up are not counted: they belong to the system's
  // file cache.
  int64_t resident_bytes() const;
  // PanelStore::streamed_bytes.
  int64_t streamed_bytes() const { return panels_ == nullptr ? 0 : panels_->streamed_bytes(); }
  // Noted by those who bind layers.
  RowWidths& widths() { return widths_; }

  // After all reads: an error if a GGUF file has a ".scale" beside a weight that was read without it.
  void RefuseUnreadScales();

  // kBadModel names file and tensor.
  const std::optional<api::Error>& error() const { return error_; }

 private:
  friend class TensorScope;
  using Shape = std::vector<int64_t>;

  // The tensor, if it is there in one of the shapes.
  const weights::Tensor* Require(const std::string& name, std::span<const Shape> shapes);
  void Fail(const std::string& name, const std::string& reason);
  // As floats; of metadata-only files, zeros.
  std::vector<float> AsFloat32(const weights::Tensor& tensor);

  const weights::ModelFiles& files_;
  PanelStore* const panels_;
  std::optional<ThreadPool> pool_;  // fills panels
  std::string prefix_;              // of the text model
  bool transposed_ = false;
  std::set<std::string> read_;  // names of tensors
  int64_t parameters_ = 0;
  int64_t bytes_ = 0;
  int64_t float32_bytes_ = 0;
  RowWidths widths_;
  std::optional<api::Error> error_;
};

enum class Bias : uint8_t { kAbsent, kPresent, kIfStored };

// The tensors of one part of a model. Every method but Values, Rows, Stacked and Has adds ".weight" to the
// name. After an error they return empty things.
class TensorScope {
 public:
  // A matrix [out, in], in place, whose rows are looked up.
  kernels::Matrix Matrix(TensorName name, int64_t out, int64_t in) const;
  // Likewise; the complete name.
  kernels::Matrix Rows(TensorName name, int64_t out, int64_t in) const;
  // Equally shaped matrices stacked in one tensor [count, out, in], in place; the complete name.
  std::vector<kernels::Matrix> Stacked(TensorName name, int64_t count, int64_t out, int64_t in) const;
  // With its ".bias" beside it, or the certainty that there is none.
  Linear BindLinear(TensorName name, int64_t out, int64_t in, Bias bias = Bias::kAbsent) const;
  // As BindLinear, the rows of one stored matrix apart: a matrix of sizes[i] rows each. With `groups`, the
  // stored rows are as many times a share of all sizes, each 1 / groups.
  std::vector<Linear> BindRows(TensorName name, std::span<const int64_t> sizes, int64_t in,
                               Bias bias = Bias::kAbsent, int64_t groups = 1) const;
  // Columns [begin, end) of floats [in, columns] as the rows of a matrix.
  kernels::Matrix ColumnsOf(TensorName name, const kernels::Matrix& stored, int64_t begin, int64_t end) const;
  // The ".bias" beside a weight, or the certainty that there is none.
  std::vector<float> BiasOf(TensorName name, int64_t size, Bias bias) const;
  // A vector [size] as float32; the complete name.
  std::vector<float> Values(TensorName name, int64_t size) const;
  // A matrix [rows, columns] as float32; the complete name.
  std::vector<float> Table(TensorName name, int64_t rows, int64_t columns) const;
  // The bytes of a tensor that is no weight by itself (weights::RawTensor); the complete name.
  std::span<const std::byte> Raw(std::string_view hugging_face, std::string_view dtype,
                                 std::span<const int64_t> shape) const;
  bool HasRaw(std::string_view hugging_face) const;
  // A table [rows, columns] of integers below `limit`; the complete name.
  std::vector<int32_t> Indices(TensorName name, int64_t rows, int64_t columns, int64_t limit) const;
  // A number, stored alone; the complete name.
  float Scalar(TensorName name) const;
  // `size` numbers as float32, in whatever shape; the complete name.
  std::vector<float> Elements(TensorName name, int64_t size) const;
  // A norm's weight [size] as float32.
  std::vector<float> Norm(TensorName name, int64_t size) const;
  // A depthwise convolution's weights, [channels, 1, kernel] or [channels, kernel] in the file, or the first
  // behind a dimension of 1, converted to float32 and transposed to [kernel, channels].
  std::vector<float> Taps(TensorName name, int64_t channels, int64_t kernel) const;
  // A convolution's ".bias" [channels]; empty where there must be none.
  std::vector<float> TapsBias(TensorName name, int64_t channels, Bias bias) const;

  // Whether a tensor of this complete name is stored.
  bool Has(TensorName name) const;
  // Whether the weight of this name is stored; never without a name.
  bool HasWeight(TensorName name) const;
  // Whether a tensor of this complete name is stored, and its values may be looked at
  // (weights::ModelFiles::CanRead).
  bool CanRead(TensorName name) const;
  // The stored tensor's type; nothing when it is absent.
  std::optional<weights::DataType> TypeOf(TensorName name) const;
  // The stored tensor's shape; empty when it is absent. The complete name.
  std::vector<int64_t> ShapeOf(TensorName name) const;
  void Fail(TensorName name, const std::string& reason) const { binder_->Fail(Full(name, ""), reason); }
  kernels::Matrix InPanels(const kernels::Matrix& matrix, WeightUse use = WeightUse::kAlways) const {
    return binder_->InPanels(matrix, use);
  }
  kernels::Matrix InPanels(const kernels::Matrix& matrix, std::unique_ptr<std::byte[]> memory) const {
    return binder_->InPanels(matrix, std::move(memory));
  }
  ExpertPanels* expert_panels() const { return binder_->expert_panels(); }
  RowWidths& widths() const { return binder_->widths(); }
  bool gguf() const { return binder_->files_.format() == weights::Format::kGguf; }
  bool metadata_only() const { return binder_->files_.metadata_only(); }
  bool failed() const { return binder_->error().has_value(); }

 private:
  friend class TensorBinder;
  TensorScope(TensorBinder* binder, std::string prefix) : binder_(binder), prefix_(std::move(prefix)) {}
  std::string Full(TensorName name, std::string_view suffix) const;
  // The number beside a linear layer in a GGUF file, or 1. A vector is not a product's.
  float ScaleOf(TensorName name) const;
  kernels::Matrix RowsOf(const std::string& name, int64_t out, int64_t in) const;
  std::vector<float> Vector(const std::string& name, int64_t size) const;

  TensorBinder* binder_;
  std::string prefix_;
};

}  // namespace quire::runner::models
