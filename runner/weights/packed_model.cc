#include "runner/weights/packed_model.h"

#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runner/weights/ggml_types.h"
#include "runner/weights/gguf_writer.h"
#include "runner/weights/json_text.h"
#include "runner/weights/model_formats.h"
#include "runner/weights/mxfp4_parts.h"
#include "runner/weights/tensor_index.h"
#include "runner/weights/text.h"

namespace quire::runner::weights {
namespace {

using nlohmann::ordered_json;

constexpr const char* kConfig = "quire.huggingface.config";
constexpr const char* kGenerationConfig = "quire.huggingface.generation_config";
constexpr const char* kTokenizerConfig = "quire.huggingface.tokenizer_config";
constexpr const char* kTokenizer = "quire.huggingface.tokenizer";
constexpr const char* kEndIds = "quire.huggingface.end_ids";
constexpr const char* kTemplate = "tokenizer.chat_template";
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

class PackedModel : public ModelFiles {
 public:
  struct Parts {
    std::string architecture, tokenizer_json, chat_template;
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
  std::string chat_template() const override { return parts_.chat_template; }
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

void AddTexts(GgufWriter& writer, const ModelFiles& files) {
  const auto add = [&writer](const char* key, const std::string& text) {
    if (!text.empty()) writer.AddText(key, text);
  };
  add("general.architecture", files.architecture());
  add(kConfig, DumpOrEmpty(files.config()));
  add(kGenerationConfig, DumpOrEmpty(files.generation_config()));
  add(kTokenizerConfig, DumpOrEmpty(files.tokenizer_config()));
  add(kTokenizer, files.tokenizer_json());
  add(kTemplate, files.chat_template());
  add(kEndIds, DumpOrEmpty(ordered_json(files.end_of_generation_ids())));
}

}  // namespace

api::Result<void> PackHuggingFace(const ModelSource& directory, const std::filesystem::path& to,
                                  const std::function<void(float)>& on_progress) {
  const auto files = OpenHuggingFace(directory);
  if (!files) return std::unexpected(files.error());
  if ((*files)->tokenizer_json().empty()) {
    return api::Fail(api::ErrorCode::kUnsupported, "a safetensors model requires tokenizer.json");
  }
  const auto mxfp4 = FindMxfp4Parts(**files);
  if (!mxfp4) return std::unexpected(mxfp4.error());
  GgufWriter writer;
  AddTexts(writer, **files);
  std::vector<std::span<const std::byte>> contents;  // of the tensors as they are written
  size_t total = 0, written = 0;
  for (const Tensor& tensor : (*files)->tensors()) {
    if (tensor.shape.size() > kGgufDimensionsMax) return TooManyDimensions(**files, tensor);
    writer.AddTensor(tensor.name, tensor.type, tensor.shape);
    contents.push_back(tensor.data);
    total += tensor.data.size();
  }
  for (const IntegerTensor& tensor : (*files)->integer_tensors()) {
    if (tensor.shape.size() > kGgufDimensionsMax) return TooManyDimensions(**files, tensor);
    writer.AddIntegers(tensor.name, tensor.shape);
    contents.push_back(tensor.data);
    total += tensor.data.size();
  }
  for (const Mxfp4Parts& parts : *mxfp4) {
    if (parts.shape.size() > kGgufDimensionsMax) return TooManyDimensions(**files, parts);
    writer.AddTensor(parts.name, DataType::kMXFP4, parts.shape);
    total += parts.quants.size() + parts.scales.size();
  }
  return writer.Write(to, [&](size_t index, int64_t first, int64_t rows, std::span<std::byte> data) {
    const size_t row_bytes = data.size() / static_cast<size_t>(rows);
    if (index < contents.size()) {
      std::memcpy(data.data(), contents[index].data() + static_cast<size_t>(first) * row_bytes, data.size());
    } else {
      (*mxfp4)[index - contents.size()].CopyRows(static_cast<size_t>(first), static_cast<size_t>(rows),
                                                 data.data());
    }
    written += data.size();
    if (on_progress) on_progress(static_cast<float>(written) / static_cast<float>(total));
  });
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
  parts.end_ids = EndIdsIn(TextAt(metadata, kEndIds));
  return std::make_shared<const PackedModel>(std::move(file), std::move(parts), std::move(contents));
}

}  // namespace quire::runner::weights
