#include "runner/weights/quantized_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "runner/weights/metadata_only.h"
#include "runner/weights/model_files_overlay.h"
#include "runner/weights/scratch_file.h"
#include "runner/weights/text.h"

namespace quire::runner::weights {
namespace {

constexpr size_t kLayerAlignment = 64;
constexpr int64_t kRowsPerTask = 64;

size_t BytesOf(const QuantizedLinear& linear) {
  return static_cast<size_t>(linear.out()) * RowBytes(linear.type, linear.in());
}

size_t SpaceOf(const QuantizedLinear& linear) {
  return (BytesOf(linear) + kLayerAlignment - 1) / kLayerAlignment * kLayerAlignment;
}

// Whether all codes are numbers.
bool ConvertLayer(const QuantizedLinear& linear, int threads, std::span<std::byte> to) {
  const size_t row_bytes = RowBytes(linear.type, linear.in());
  std::atomic<int64_t> next = 0;
  std::atomic<bool> numbers = true;
  const auto work = [&] {
    for (int64_t first = next.fetch_add(kRowsPerTask); first < linear.out();
         first = next.fetch_add(kRowsPerTask)) {
      const int64_t rows = std::min(kRowsPerTask, linear.out() - first);
      if (!linear.CopyRows(first, rows, to.data() + static_cast<size_t>(first) * row_bytes)) numbers = false;
    }
  };
  std::vector<std::jthread> helpers;
  const int64_t tasks = (linear.out() + kRowsPerTask - 1) / kRowsPerTask;
  const auto helper_count = static_cast<size_t>(std::min<int64_t>(threads, tasks) - 1);
  helpers.reserve(helper_count);
  for (size_t i = 0; i < helper_count; ++i) helpers.emplace_back(work);
  work();
  helpers.clear();
  return numbers;
}

using ConvertedBytes = std::pair<std::shared_ptr<const void>, std::span<const std::byte>>;

api::Result<ConvertedBytes> Converted(const QuantizedCheckpoint& checkpoint, const std::string& path,
                                      size_t bytes, int threads) {
  auto scratch = ScratchFile::Make(bytes);
  if (!scratch) return std::unexpected(scratch.error());
  size_t at = 0;
  for (const QuantizedLinear& linear : checkpoint.linears) {
    if (auto checked = linear.Check(path); !checked) return std::unexpected(checked.error());
    if (!ConvertLayer(linear, threads, scratch->data().subspan(at, BytesOf(linear)))) {
      return api::Fail(api::ErrorCode::kBadModel,
                       fmt::format("{}: tensor {}: a code is no number", path, Quoted(linear.name)));
    }
    at += SpaceOf(linear);
  }
  const std::span<const std::byte> data = scratch->data();
  return ConvertedBytes{std::make_shared<const ScratchFile>(*std::move(scratch)), data};
}

}  // namespace

api::Result<std::unique_ptr<const QuantizedCheckpoint>> ReadQuantizedCheckpoint(const ModelFiles& files) {
  if (files.format() != Format::kHuggingFace || files.raw_tensors().empty()) return nullptr;
  const auto method = ReadCheckpointMethod(files.config(), files.path());
  if (!method) return std::unexpected(method.error());
  if (!*method) return nullptr;
  std::vector<std::string_view> used;
  auto linears = FindQuantizedLinears(files, **method, &used);
  if (!linears) return std::unexpected(linears.error());
  auto checkpoint = std::make_unique<QuantizedCheckpoint>();
  checkpoint->linears = *std::move(linears);
  const std::set<std::string_view> parts(used.begin(), used.end());
  for (const Tensor& tensor : files.tensors()) {
    if (!parts.contains(tensor.name)) checkpoint->tensors.push_back(tensor);
  }
  auto config = std::make_shared<nlohmann::ordered_json>(files.config());
  config->erase("quantization_config");
  checkpoint->config = std::move(config);
  return checkpoint;
}

api::Result<std::shared_ptr<const ModelFiles>> ConvertCheckpoint(std::shared_ptr<const ModelFiles> files,
                                                                 int threads) {
  auto checkpoint = ReadQuantizedCheckpoint(*files);
  if (!checkpoint) return std::unexpected(checkpoint.error());
  if (*checkpoint == nullptr) return files;
  const bool headers = files->metadata_only();
  size_t bytes = 0, largest = 0;
  for (const QuantizedLinear& linear : (*checkpoint)->linears) {
    bytes += SpaceOf(linear);
    largest = std::max(largest, BytesOf(linear));
  }
  ConvertedBytes memory;
  if (headers) {
    memory.first = ReserveUnreadable(largest);
    if (!memory.first) return api::Fail(api::ErrorCode::kInternal, "no address space for converted weights");
    memory.second = std::span(static_cast<const std::byte*>(memory.first.get()), largest);
  } else {
    auto converted = Converted(**checkpoint, files->path(), bytes, std::max(threads, 1));
    if (!converted) return std::unexpected(converted.error());
    memory = *std::move(converted);
  }
  std::vector<Tensor> tensors = (*checkpoint)->tensors;
  tensors.reserve(tensors.size() + (*checkpoint)->linears.size());
  size_t at = 0;
  for (const QuantizedLinear& linear : (*checkpoint)->linears) {
    tensors.push_back({.name = linear.name,
                       .type = linear.type,
                       .shape = linear.shape,
                       .data = memory.second.subspan(headers ? 0 : at, BytesOf(linear))});
    at += SpaceOf(linear);
  }
  return std::make_shared<const ModelFilesOverlay>(std::move(files), std::move(tensors),
                                                   std::move(memory.first), headers, (*checkpoint)->config);
}

}  // namespace quire::runner::weights
