#include "runner/weights/quantize_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "runner/weights/ggml_types.h"
#include "runner/weights/gguf.h"
#include "runner/weights/gguf_writer.h"
#include "runner/weights/mapped_file.h"
#include "runner/weights/model_formats.h"
#include "runner/weights/quantize.h"
#include "runner/weights/text.h"

namespace quire::runner::weights {
namespace {

struct Preset {
  std::string_view name;  // a general.file_type
  DataType main;
  DataType output;
  bool more_bits = false;  // Q6_K for some value and down projections
};

constexpr auto kPresets = std::to_array<Preset>({
    {"F16", DataType::kF16, DataType::kF16},
    {"BF16", DataType::kBF16, DataType::kBF16},
    {"Q8_0", DataType::kQ8_0, DataType::kQ8_0},
    {"Q6_K", DataType::kQ6_K, DataType::kQ6_K},
    {"Q4_K_M", DataType::kQ4_K, DataType::kQ6_K, true},
    {"Q4_K_S", DataType::kQ4_K, DataType::kQ6_K},
    {"Q4_0", DataType::kQ4_0, DataType::kQ6_K},
});

const Preset* FindPreset(std::string_view name) {
  const auto* found = std::ranges::find(kPresets, name, &Preset::name);
  return found == kPresets.end() ? nullptr : found;
}

// Parts of names of matrices that stay as they are: norms, routers, convolutions, small projections, what
// mixes a row with the one before it.
constexpr std::string_view kNotQuantized[] = {"_norm.weight",
                                              "ffn_gate_inp.weight",
                                              "altup",
                                              "laurel",
                                              "ssm_conv1d",
                                              "shortconv.conv.weight",
                                              "position_embd",
                                              "token_types",
                                              "per_layer_model_proj",
                                              ".conv.weight",
                                              "conv1d.weight",
                                              "mlp.gate.weight",
                                              "ffn.gate.weight",
                                              "feed_forward.gate.weight",
                                              "ssm_dt.weight",
                                              "ssm_x.weight",
                                              "time_mix_w",
                                              "time_mix_a",
                                              "time_mix_v1",
                                              "time_mix_v2",
                                              "time_mix_g",
                                              "mix_lerp",
                                              "_fn.weight",
                                              "_ape.weight"};

bool IsFloat(DataType type) { return BlockElements(type) == 1; }

// "blk.7.attn_v.weight" as 7 and "attn_v.weight".
std::pair<int64_t, std::string_view> BlockOf(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  int64_t block = -1;
  if (!name.starts_with(kPrefix)) return {block, name};
  const char* end = name.data() + name.size();
  const auto read = std::from_chars(name.data() + kPrefix.size(), end, block);
  if (read.ec != std::errc() || read.ptr == end || *read.ptr != '.') return {-1, name};
  return {block, name.substr(static_cast<size_t>(read.ptr - name.data()) + 1)};
}

// The first and last eighth of the layers, and every third between.
bool UseMoreBits(size_t place, size_t places) {
  return place < places / 8 || place >= 7 * places / 8 || (place - places / 8) % 3 == 2;
}

std::vector<DataType> TypesOf(const std::vector<Tensor>& tensors) {
  std::vector<DataType> types;
  types.reserve(tensors.size());
  for (const Tensor& tensor : tensors) types.push_back(tensor.type);
  return types;
}

// `rows` rows of a tensor's data from `first` on, which fill `to`.
void CopyRows(std::span<const std::byte> data, int64_t first, int64_t rows, std::span<std::byte> to) {
  const size_t row_bytes = to.size() / static_cast<size_t>(rows);
  std::memcpy(to.data(), data.data() + static_cast<size_t>(first) * row_bytes, to.size());
}

// The type that each tensor gets.
std::vector<DataType> PlanTypes(const ModelFiles& files, std::string_view preset) {
  std::map<std::string_view, std::vector<std::pair<int64_t, size_t>>>
      kinds;  // by name after the block: block, index
  const std::vector<Tensor>& tensors = files.tensors();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto [block, kind] = BlockOf(tensors[i].name);
    kinds[kind].emplace_back(block, i);
  }
  const bool tied = files.Find("output.weight") == nullptr && files.Find("lm_head.weight") == nullptr;
  std::vector<DataType> types(tensors.size());
  for (auto& [kind, members] : kinds) {
    std::ranges::sort(members);
    const bool is_output = tied ? kind == "token_embd.weight" || kind.ends_with("embed_tokens.weight")
                                : kind == "output.weight" || kind == "lm_head.weight";
    for (size_t place = 0; place < members.size(); ++place) {
      const size_t index = members[place].second;
      types[index] = QuantizedType(preset, tensors[index], is_output, place, members.size());
    }
  }
  return types;
}

}  // namespace

std::vector<std::string_view> QuantizationNames() {
  std::vector<std::string_view> names;
  names.reserve(std::size(kPresets));
  for (const Preset& preset : kPresets) names.push_back(preset.name);
  return names;
}

DataType QuantizedType(std::string_view preset_name, const Tensor& tensor, bool is_output, size_t place,
                       size_t places) {
  const Preset& preset = *FindPreset(preset_name);
  const bool not_quantized = std::ranges::any_of(
      kNotQuantized, [&](std::string_view part) { return tensor.name.find(part) != std::string::npos; });
  if (tensor.shape.size() < 2 || !tensor.name.ends_with("weight") || not_quantized) return tensor.type;
  if (IsOfVisionTower(tensor.name)) return tensor.type;
  DataType type = is_output ? preset.output : preset.main;
  const std::string_view kind = BlockOf(tensor.name).second;
  const bool favored = kind == "attn_v.weight" || kind == "ffn_down.weight" || kind == "ffn_down_exps.weight";
  if (preset.more_bits && favored && UseMoreBits(place, places)) type = DataType::kQ6_K;
  if (tensor.columns() % BlockElements(type) == 0) return type;
  return tensor.columns() % BlockElements(DataType::kQ8_0) == 0 ? DataType::kQ8_0 : DataType::kF16;
}

api::Result<void> QuantizeGguf(const ModelSource& from, std::string_view preset, OutputFile to, int threads,
                               const std::function<void(float)>& on_progress) {
  const bool as_they_are = preset.empty();
  if (!as_they_are && FindPreset(preset) == nullptr) {
    return api::Fail(api::ErrorCode::kInvalidArgument,
                     fmt::format("{} is not a supported quantization; supported are: {}", Quoted(preset),
                                 fmt::join(QuantizationNames(), ", ")));
  }
  auto file = from.Open("");
  if (!file) return std::unexpected(file.error());
  auto first = ParseGguf(file->bytes(), file->path());
  if (!first) return std::unexpected(first.error());
  // A copy keeps the file's own names: it is repaired when it is opened.
  auto files = OpenGgufModel(from, Spelling::kOfFile);
  if (!files) return std::unexpected(files.error());

  GgufWriter writer;
  for (const GgufPair& pair : first->pairs) {
    const bool by_type = pair.key == "general.file_type" || pair.key == "general.quantization_version";
    const bool by_layout = pair.key == "general.alignment" || pair.key.starts_with("split.");
    if (!by_layout && (as_they_are || !by_type)) writer.Add(pair.key, pair.typed_value);
  }
  if (!as_they_are) {
    writer.AddUint32("general.quantization_version", 2);
    writer.AddUint32("general.file_type", static_cast<uint32_t>(*GgufFileTypeNamed(preset)));
  }

  const std::vector<Tensor>& tensors = (*files)->tensors();
  const std::vector<DataType> types = as_they_are ? TypesOf(tensors) : PlanTypes(**files, preset);
  size_t total_bytes = 0, written_bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!as_they_are && !IsFloat(tensors[i].type)) {
      return api::Fail(api::ErrorCode::kBadModel,
                       fmt::format("{}: tensor {} is already {}; only F32, F16 and BF16 can be quantized",
                                   (*files)->path(), Quoted(tensors[i].name), Name(tensors[i].type)));
    }
    writer.AddTensor(tensors[i].name, types[i], tensors[i].shape);
    total_bytes += static_cast<size_t>(tensors[i].rows()) * RowBytes(types[i], tensors[i].columns());
  }
  const std::span<const IntegerTensor> integers = (*files)->integer_tensors();
  for (const IntegerTensor& tensor : integers) {
    writer.AddIntegers(tensor);
    total_bytes += tensor.data.size();
  }
  const auto fill = [&](size_t tensor, int64_t row, int64_t rows, std::span<std::byte> data) {
    if (tensor >= tensors.size()) {
      CopyRows(integers[tensor - tensors.size()].data, row, rows, data);
    } else if (as_they_are) {
      CopyRows(tensors[tensor].data, row, rows, data);
    } else {
      ConvertRows(tensors[tensor], types[tensor], row, rows, std::max(1, threads), data);
    }
    written_bytes += data.size();
    if (on_progress) on_progress(static_cast<float>(written_bytes) / static_cast<float>(total_bytes));
  };
  return writer.Write(std::move(to), fill);
}

}  // namespace quire::runner::weights
