#include "runner/weights/packed_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "runner/weights/ggml_types.h"
#include "runner/weights/gguf_writer.h"
#include "runner/weights/json_text.h"
#include "runner/weights/model_formats.h"
#include "runner/weights/mxfp4_parts.h"
#include "runner/weights/quantized_checkpoint.h"
#include "runner/weights/tensor_index.h"
#include "runner/weights/text.h"

namespace quire::runner::weights {
namespace {

using nlohmann::ordered_json;

constexpr const char* kConfig = "quire.huggingface.config";
constexpr const char* kGenerationConfig = "quire.huggingface.generation_config";
constexpr const char* kTokenizerConfig = "quire.huggingface.tokenizer_config";
constexpr const char* kTokenizer = "quire.huggingface.tokenizer";
constexpr const char* kPooling = "quire.huggingface.pooling";
constexpr const char* kModules = "quire.huggingface.modules";
constexpr const char* kSentence = "quire.huggingface.sentence_config";
constexpr const char* kSentencePrompts = "quire.huggingface.sentence_prompts";
constexpr const char* kProcessor = "quire.huggingface.processor_config";
constexpr const char* kEndIds = "quire.huggingface.end_ids";
constexpr const char* kTemplate = "tokenizer.chat_template";
constexpr const char* kToolTemplate = "tokenizer.chat_template.tool_use";
constexpr size_t kGgufDimensionsMax = 4;  // of a tensor in a GGUF file

std::unexpected<api::Error> RefusePacked(const std::string& file, std::string_view reason) {
  return api::Fail(api::ErrorCode::kBadModel, fmt::format("{}: {}", file, reason));
}

std::string DumpOrEmpty(const ordered_json& value) {
  return value.is_null() ? std::string() : value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::unexpected<api::Error> TooManyDimensions(const ModelFiles& files, const auto& tensor) {
  return RefusePacked(files.path(),
                      fmt::format("tensor {} has {} dimensions", Quoted(tensor.name), tensor.shape.size()));
}

// The kernels of convolutions over time have five dimensions. Whoever reads them wants rows and the rest.
std::vector<int64_t> Folded(std::vector<int64_t> shape) {
  while (shape.size() > kGgufDimensionsMax) {
    shape[shape.size() - 2] *= shape.back();
    shape.pop_back();
  }
  return shape;
}

class PackedModel : public ModelFiles {
 public:
  struct Parts {
    std::string architecture, tokenizer_json, chat_template, tool_template, pooling, sentence_config,
        sentence_prompts, processor_config;
    std::vector<SentenceModule> modules;
    ordered_json config, generation_config, tokenizer_config;
    std::vector<int32_t> end_ids;
  };

  PackedModel(MappedFile file, Parts parts, GgufContents contents)
      : file_(std::move(file)),
        parts_(std::move(parts)),
        tensors_(std::move(contents.tensors)),
        integers_(std::move(contents.integers)) {}

  Format format() const override { return Format::kHuggingFace; }
  std::string path() const override { return file_.path(); }
  std::string architecture() const override { return parts_.architecture; }
  const Tensor* Find(std::string_view name) const override { return tensors_.Find(name); }
  const std::vector<Tensor>& tensors() const override { return tensors_.all(); }
  std::span<const IntegerTensor> integer_tensors() const override { return integers_; }
  const ordered_json& config() const override { return parts_.config; }
  const ordered_json& generation_config() const override { return parts_.generation_config; }
  const ordered_json& tokenizer_config() const override { return parts_.tokenizer_config; }
  const std::string& tokenizer_json() const override { return parts_.tokenizer_json; }
  api::Result<std::optional<std::string>> pooling_json() const override {
    return parts_.pooling.empty() ? std::nullopt : std::optional(parts_.pooling);
  }
  api::Result<std::vector<SentenceModule>> sentence_modules() const override { return parts_.modules; }
  std::string sentence_config() const override { return parts_.sentence_config; }
  std::string sentence_prompts() const override { return parts_.sentence_prompts; }
  api::Result<std::string> processor_config() const override { return parts_.processor_config; }
  std::string chat_template() const override { return parts_.chat_template; }
  std::string named_chat_template(std::string_view name) const override {
    return name == "tool_use" ? parts_.tool_template : std::string();
  }
  std::vector<int32_t> end_of_generation_ids() const override { return parts_.end_ids; }

 private:
  const MappedFile file_;  // first: the tensors point into it
  const Parts parts_;
  const TensorIndex tensors_;
  const std::vector<IntegerTensor> integers_;
};

std::string TextAt(const ordered_json& metadata, const char* key) {
  const auto found = metadata.find(key);
  return found != metadata.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// The object in the text at `key`, or null when there is none.
api::Result<ordered_json> ObjectAt(const ordered_json& metadata, const char* key, const std::string& file) {
  const std::string text = TextAt(metadata, key);
  if (text.empty()) return ordered_json();
  auto value = ParseJson(text, fmt::format("{}: {}", file, key));
  if (value && !value->is_object()) return RefusePacked(file, fmt::format("{} is not a JSON object", key));
  return value;
}

std::vector<int32_t> EndIdsIn(const std::string& text) {
  std::vector<int32_t> ids;
  const auto parsed = ordered_json::parse(text, nullptr, false);
  if (!parsed.is_array()) return ids;
  for (const ordered_json& id : parsed) {
    if (id.is_number_unsigned() && id.get<uint64_t>() <= uint64_t{INT32_MAX})
      ids.push_back(id.get<int32_t>());
  }
  return ids;
}

std::vector<SentenceModule> ModulesIn(const std::string& text) {
  std::vector<SentenceModule> modules;
  const auto parsed = ordered_json::parse(text, nullptr, false);
  if (!parsed.is_array()) return modules;
  for (const ordered_json& entry : parsed) {
    const bool whole = entry.is_array() && entry.size() == 3 &&
                       std::ranges::all_of(entry, [](const ordered_json& part) { return part.is_string(); });
    if (!whole) return {{.kind = "an unreadable module", .path = {}, .config_json = {}}};
    modules.push_back(
        {entry[0].get<std::string>(), entry[1].get<std::string>(), entry[2].get<std::string>()});
  }
  return modules;
}

void AddTexts(GgufWriter& writer, const ModelFiles& files, const ordered_json& config) {
  const auto add = [&writer](const char* key, const std::string& text) {
    if (!text.empty()) writer.AddText(key, text);
  };
  add("general.architecture", files.architecture());
  add(kConfig, DumpOrEmpty(config));
  add(kGenerationConfig, DumpOrEmpty(files.generation_config()));
  add(kTokenizerConfig, DumpOrEmpty(files.tokenizer_config()));
  add(kTokenizer, files.tokenizer_json());
  add(kTemplate, files.chat_template());
  add(kToolTemplate, files.named_chat_template("tool_use"));
  const auto pooling = files.pooling_json();
  if (pooling && *pooling) add(kPooling, **pooling);
  const auto modules = files.sentence_modules();
  ordered_json list = ordered_json::array();
  for (const SentenceModule& module : modules ? *modules : std::vector<SentenceModule>()) {
    list.push_back(ordered_json::array({module.kind, module.path, module.config_json}));
  }
  if (!list.empty()) add(kModules, DumpOrEmpty(list));
  add(kSentence, files.sentence_config());
  add(kSentencePrompts, files.sentence_prompts());
  if (const auto processor = files.processor_config()) add(kProcessor, *processor);
  add(kEndIds, DumpOrEmpty(ordered_json(files.end_of_generation_ids())));
}

using Progress = std::function<void(float)>;

// Tensors that are written as they lie in the directory.
class StoredTensors {
 public:
  api::Result<void> Add(const ModelFiles& files, const std::vector<Tensor>& tensors, GgufWriter& writer) {
    for (const Tensor& tensor : tensors) {
      writer.AddTensor(tensor.name, tensor.type, Folded(tensor.shape));
      Append(tensor.data);
    }
    for (const IntegerTensor& tensor : files.integer_tensors()) {
      if (tensor.shape.size() > kGgufDimensionsMax) return TooManyDimensions(files, tensor);
      writer.AddIntegers(tensor);
      Append(tensor.data);
    }
    return {};
  }
  size_t count() const { return contents_.size(); }
  size_t bytes() const { return bytes_; }
  // The rows from `first` on that fill `data`.
  void Copy(size_t index, int64_t first, int64_t rows, std::span<std::byte> data) const {
    const size_t row_bytes = data.size() / static_cast<size_t>(rows);
    std::memcpy(data.data(), contents_[index].data() + static_cast<size_t>(first) * row_bytes, data.size());
  }

 private:
  void Append(std::span<const std::byte> data) {
    contents_.push_back(data);
    bytes_ += data.size();
  }
  std::vector<std::span<const std::byte>> contents_;
  size_t bytes_ = 0;
};

api::Result<void> PackStored(const ModelFiles& files, OutputFile to, const Progress& on_progress) {
  const auto mxfp4 = FindMxfp4Parts(files);
  if (!mxfp4) return std::unexpected(mxfp4.error());
  GgufWriter writer;
  AddTexts(writer, files, files.config());
  StoredTensors stored;
  if (auto added = stored.Add(files, files.tensors(), writer); !added) return added;
  size_t total = stored.bytes(), written = 0;
  for (const Mxfp4Parts& parts : *mxfp4) {
    if (parts.shape.size() > kGgufDimensionsMax) return TooManyDimensions(files, parts);
    writer.AddTensor(parts.name, DataType::kMXFP4, parts.shape);
    total += parts.quants.size() + parts.scales.size();
  }
  const auto fill = [&](size_t index, int64_t first, int64_t rows, std::span<std::byte> data) {
    if (index < stored.count()) {
      stored.Copy(index, first, rows, data);
    } else {
      (*mxfp4)[index - stored.count()].CopyRows(static_cast<size_t>(first), static_cast<size_t>(rows),
                                                data.data());
    }
    written += data.size();
    if (on_progress) on_progress(static_cast<float>(written) / static_cast<float>(total));
  };
  return writer.Write(std::move(to), fill);
}

// The layers of another quantization are converted as they are written.
api::Result<void> PackQuantized(const ModelFiles& files, const QuantizedCheckpoint& checkpoint, OutputFile to,
                                const Progress& on_progress) {
  GgufWriter writer;
  AddTexts(writer, files, *checkpoint.config);
  StoredTensors stored;
  if (auto added = stored.Add(files, checkpoint.tensors, writer); !added) return added;
  size_t total = stored.bytes(), written = 0;
  for (const QuantizedLinear& linear : checkpoint.linears) {
    if (auto checked = linear.Check(files.path()); !checked) return checked;
    writer.AddTensor(linear.name, linear.type, linear.shape);
    total += static_cast<size_t>(linear.out()) * RowBytes(linear.type, linear.in());
  }
  std::string no_number;  // the tensor that has such a code
  writer.WriteTo(to, [&](size_t index, int64_t first, int64_t rows, std::span<std::byte> data) {
    if (index < stored.count()) {
      stored.Copy(index, first, rows, data);
    } else {
      const QuantizedLinear& linear = checkpoint.linears[index - stored.count()];
      if (!linear.CopyRows(first, rows, data.data())) no_number = linear.name;
    }
    written += data.size();
    if (on_progress) on_progress(static_cast<float>(written) / static_cast<float>(total));
  });
  if (no_number.empty()) return to.Finish();
  return RefusePacked(files.path(), fmt::format("tensor {}: a code is no number", Quoted(no_number)));
}

}  // namespace

api::Result<void> PackHuggingFace(const ModelSource& directory, OutputFile to,
                                  const std::function<void(float)>& on_progress) {
  const auto files = OpenHuggingFace(directory);
  if (!files) return std::unexpected(files.error());
  // What a packed model could not say again is refused here.
  if (auto pooling = (*files)->pooling_json(); !pooling) return std::unexpected(pooling.error());
  if (auto modules = (*files)->sentence_modules(); !modules) return std::unexpected(modules.error());
  if (auto processor = (*files)->processor_config(); !processor) return std::unexpected(processor.error());
  if ((*files)->tokenizer_json().empty()) {
    return api::Fail(api::ErrorCode::kUnsupported, "a safetensors model requires tokenizer.json");
  }
  const auto quantized = ReadQuantizedCheckpoint(**files);
  if (!quantized) return std::unexpected(quantized.error());
  return *quantized ? PackQuantized(**files, **quantized, std::move(to), on_progress)
                    : PackStored(**files, std::move(to), on_progress);
}

bool IsPacked(const GgufContents& contents) { return contents.metadata->contains(kConfig); }

api::Result<std::shared_ptr<const ModelFiles>> OpenPacked(MappedFile file, GgufContents contents) {
  const std::string path = file.path();
  const ordered_json& metadata = *contents.metadata;
  PackedModel::Parts parts;
  for (const auto& [key, object] : {std::pair{kConfig, &parts.config},
                                    {kGenerationConfig, &parts.generation_config},
                                    {kTokenizerConfig, &parts.tokenizer_config}}) {
    auto value = ObjectAt(metadata, key, path);
    if (!value) return std::unexpected(value.error());
    *object = std::move(*value);
  }
  parts.architecture = TextAt(metadata, "general.architecture");
  if (parts.config.is_null() || parts.architecture.empty() ||
      parts.config.value("model_type", ordered_json()) != parts.architecture) {
    return RefusePacked(path,
                        "its configuration has no model_type, or one that differs from general.architecture");
  }
  parts.tokenizer_json = TextAt(metadata, kTokenizer);
  parts.chat_template = TextAt(metadata, kTemplate);
  parts.tool_template = TextAt(metadata, kToolTemplate);
  parts.pooling = TextAt(metadata, kPooling);
  parts.modules = ModulesIn(TextAt(metadata, kModules));
  parts.sentence_config = TextAt(metadata, kSentence);
  parts.sentence_prompts = TextAt(metadata, kSentencePrompts);
  parts.processor_config = TextAt(metadata, kProcessor);
  parts.end_ids = EndIdsIn(TextAt(metadata, kEndIds));
  return std::make_shared<const PackedModel>(std::move(file), std::move(parts), std::move(contents));
}

}  // namespace quire::runner::weights
