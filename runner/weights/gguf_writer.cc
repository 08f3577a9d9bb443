#include "runner/weights/gguf_writer.h"

#include <algorithm>

#include "runner/weights/block_formats.h"
#include "runner/weights/ggml_types.h"

namespace quire::runner::weights {
namespace {

constexpr uint32_t kVersion = 3;
constexpr uint64_t kAlignment = 32;
constexpr uint32_t kUint32 = 4;  // of a value
constexpr uint32_t kText = 8;

template <class T>
void AppendNumber(std::string& to, T value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void AppendText(std::string& to, std::string_view text) {
  AppendNumber<uint64_t>(to, text.size());
  to += text;
}

uint64_t Padded(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

void GgufWriter::Add(std::string_view key, std::span<const std::byte> typed_value) {
  AppendText(keys_, key);
  keys_.append(reinterpret_cast<const char*>(typed_value.data()), typed_value.size());
  ++key_count_;
}

void GgufWriter::AddUint32(std::string_view key, uint32_t value) {
  AppendText(keys_, key);
  AppendNumber(keys_, kUint32);
  AppendNumber(keys_, value);
  ++key_count_;
}

void GgufWriter::AddText(std::string_view key, std::string_view value) {
  AppendText(keys_, key);
  AppendNumber(keys_, kText);
  AppendText(keys_, value);
  ++key_count_;
}

void GgufWriter::AddTensor(std::string_view name, DataType type, const std::vector<int64_t>& shape) {
  AddInfo(name, FormatOf(type).ggml_id, shape, RowBytes(type, shape.empty() ? 1 : shape.back()));
}

void GgufWriter::AddIntegers(const IntegerTensor& tensor) {
  const auto columns = static_cast<size_t>(tensor.shape.empty() ? 1 : tensor.shape.back());
  AddInfo(tensor.name, tensor.bytes == sizeof(int32_t) ? kGgmlI32 : kGgmlI64, tensor.shape,
          columns * tensor.bytes);
}

void GgufWriter::AddInfo(std::string_view name, uint32_t ggml_type, const std::vector<int64_t>& shape,
                         size_t row_bytes) {
  AppendText(infos_, name);
  AppendNumber(infos_, static_cast<uint32_t>(shape.size()));
  // The fastest-running dimension first.
  for (auto dimension = shape.rbegin(); dimension != shape.rend(); ++dimension) {
    AppendNumber(infos_, static_cast<uint64_t>(*dimension));
  }
  AppendNumber(infos_, ggml_type);
  AppendNumber(infos_, data_bytes_);
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  data_bytes_ += Padded(static_cast<uint64_t>(rows) * row_bytes);
  tensors_.push_back({rows, row_bytes});
}

void GgufWriter::WriteTo(OutputFile& file, const Fill& fill, size_t piece_bytes) const {
  std::string head = "GGUF";
  AppendNumber(head, kVersion);
  AppendNumber<uint64_t>(head, tensors_.size());
  AppendNumber(head, key_count_);
  head += keys_;
  head += infos_;
  head.resize(Padded(head.size()), '\0');
  file.Write(head);
  std::vector<std::byte> piece;
  for (size_t tensor = 0; tensor < tensors_.size() && !file.failed(); ++tensor) {
    const Info& info = tensors_[tensor];
    const auto rows_at_once =
        std::max<int64_t>(1, static_cast<int64_t>(piece_bytes / std::max<size_t>(1, info.row_bytes)));
    for (int64_t first = 0; first < info.rows && !file.failed(); first += rows_at_once) {
      const int64_t rows = std::min(rows_at_once, info.rows - first);
      piece.assign(static_cast<size_t>(rows) * info.row_bytes, std::byte{0});
      fill(tensor, first, rows, piece);
      file.Write(piece);
    }
    const uint64_t bytes = static_cast<uint64_t>(info.rows) * info.row_bytes;
    file.Write(std::string(Padded(bytes) - bytes, '\0'));
  }
}

api::Result<void> GgufWriter::Write(OutputFile file, const Fill& fill, size_t piece_bytes) const {
  WriteTo(file, fill, piece_bytes);
  return file.Finish();
}

}  // namespace quire::runner::weights
