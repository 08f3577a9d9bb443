#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runner/weights/checkpoint_method.h"
#include "runner/weights/json_text.h"
#include "runner/weights/mapped_file.h"
#include "runner/weights/model_formats.h"
#include "runner/weights/safetensors.h"
#include "runner/weights/tensor_index.h"
#include "runner/weights/text.h"
#include "runner/weights/vocabulary_files.h"

namespace quire::runner::weights {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr uint64_t kConfigBytesMax = uint64_t{16} << 20;
constexpr uint64_t kPoolingBytesMax = uint64_t{1} << 20;
constexpr uint64_t kTemplateBytesMax = uint64_t{1} << 20;
constexpr uint64_t kIndexBytesMax = uint64_t{32} << 20;
constexpr size_t kShardsMax = 1024;

std::unexpected<api::Error> RefuseDirectory(const fs::path& file, std::string_view reason) {
  return api::Fail(api::ErrorCode::kBadModel, fmt::format("{}: {}", file.string(), reason));
}

// The file's text, or nothing when there is no such file.
api::Result<std::optional<std::string>> ReadOptional(const ModelSource& source, std::string_view name,
                                                     uint64_t bytes_max) {
  auto text = ReadText(source, name, bytes_max);
  if (text) return std::move(*text);
  if (text.error().code == api::ErrorCode::kNotFound) return std::nullopt;
  return std::unexpected(text.error());
}

// The file's JSON object, or null when there is no such file.
api::Result<ordered_json> ReadObject(const ModelSource& source, std::string_view name, uint64_t bytes_max) {
  auto text = ReadOptional(source, name, bytes_max);
  if (!text) return std::unexpected(text.error());
  if (!*text) return ordered_json();
  const fs::path file = source.PathOf(name);
  auto value = ParseJson(WithInfinityAsObject(**text), file.string());
  if (value && !value->is_object()) return RefuseDirectory(file, "not a JSON object");
  return value;
}

const ordered_json* FindMember(const ordered_json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

// eos_token_id as a number or a list of numbers; nothing when the object has none.
api::Result<std::vector<int32_t>> EndIds(const ordered_json& object, const fs::path& file) {
  std::vector<int32_t> ids;
  const ordered_json* member = FindMember(object, "eos_token_id");
  if (member == nullptr) return ids;
  const auto add = [&ids](const ordered_json& id) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > uint64_t{INT32_MAX}) return false;
    ids.push_back(id.get<int32_t>());
    return true;
  };
  const bool taken = member->is_array() ? std::ranges::all_of(*member, add) : add(*member);
  if (!taken) return RefuseDirectory(file, "eos_token_id is not a token id or a list of token ids");
  return ids;
}

struct ChatTemplates {
  std::string chat;
  std::string tool_use;  // named so; mostly empty
};

// chat_template of tokenizer_config.json or chat_template.json: a text, or a list of named texts of which
// "default" counts, else the first.
api::Result<ChatTemplates> TemplatesOf(const ordered_json& object, const fs::path& file) {
  const ordered_json* member = FindMember(object, "chat_template");
  if (member == nullptr) return ChatTemplates();
  if (member->is_string()) return ChatTemplates{member->get<std::string>(), {}};
  std::optional<std::string> chosen;
  ChatTemplates templates;
  if (member->is_array()) {
    for (const ordered_json& entry : *member) {
      const ordered_json* name = FindMember(entry, "name");
      const ordered_json* text = FindMember(entry, "template");
      if (name == nullptr || text == nullptr || !text->is_string()) continue;
      if (!chosen || *name == "default") chosen = text->get<std::string>();
      if (*name == "tool_use") templates.tool_use = text->get<std::string>();
    }
  }
  if (!chosen)
    return RefuseDirectory(file, "chat_template is neither a string nor a list of named templates");
  templates.chat = *std::move(chosen);
  return templates;
}

class HuggingFaceModel : public ModelFiles {
 public:
  struct Parts {
    fs::path directory;
    ordered_json config;
    ordered_json generation_config;
    ordered_json tokenizer_config;
    std::string tokenizer_json;
    std::optional<MappedFile> tokenizer_model;  // when there is no tokenizer.json
    api::Result<std::optional<std::string>> pooling_json;
    api::Result<std::vector<SentenceModule>> modules;
    std::string sentence_config, sentence_prompts;
    api::Result<std::string> processor_config;
    std::string chat_template, tool_template;
    std::vector<int32_t> end_ids;
    std::vector<MappedFile> files;
    std::vector<std::unique_ptr<std::byte[]>> copies;  // of tensors that lie misaligned in their file
    std::vector<Tensor> tensors;                       // into files and copies
    std::vector<IntegerTensor> integers;
    std::vector<RawTensor> raw;
    std::set<std::string> left_out;  // tensors that are no weights
  };

  explicit HuggingFaceModel(Parts parts) : parts_(std::move(parts)), tensors_(std::move(parts_.tensors)) {}

  Format format() const override { return Format::kHuggingFace; }
  std::string path() const override { return parts_.directory.string(); }
  std::string architecture() const override { return parts_.config.at("model_type").get<std::string>(); }
  const Tensor* Find(std::string_view name) const override { return tensors_.Find(name); }
  const std::vector<Tensor>& tensors() const override { return tensors_.all(); }
  std::span<const IntegerTensor> integer_tensors() const override { return parts_.integers; }
  std::span<const RawTensor> raw_tensors() const override { return parts_.raw; }
  const ordered_json& config() const override { return parts_.config; }
  const ordered_json& generation_config() const override { return parts_.generation_config; }
  const ordered_json& tokenizer_config() const override { return parts_.tokenizer_config; }
  const std::string& tokenizer_json() const override { return parts_.tokenizer_json; }
  std::span<const std::byte> tokenizer_model() const override {
    return parts_.tokenizer_model ? parts_.tokenizer_model->bytes() : std::span<const std::byte>();
  }
  api::Result<std::optional<std::string>> pooling_json() const override { return parts_.pooling_json; }
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
  Parts parts_;
  const TensorIndex tensors_;
};

using Parts = HuggingFaceModel::Parts;

api::Result<void> ReadConfigs(const ModelSource& source, Parts& parts) {
  const fs::path config_file = source.PathOf("config.json");
  auto config = ReadObject(source, "config.json", kConfigBytesMax);
  if (!config) return std::unexpected(config.error());
  if (config->is_null()) return RefuseDirectory(config_file, "no such file");
  const ordered_json* type = FindMember(*config, "model_type");
  if (type == nullptr || !type->is_string() || type->get_ref<const std::string&>().empty()) {
    return RefuseDirectory(config_file, "no model_type");
  }
  const fs::path generation_file = source.PathOf("generation_config.json");
  auto generation = ReadObject(source, "generation_config.json", kConfigBytesMax);
  if (!generation) return std::unexpected(generation.error());

  auto ids = EndIds(*generation, generation_file);
  if (ids && ids->empty()) ids = EndIds(*config, config_file);
  const ordered_json* text_config = FindMember(*config, "text_config");
  if (ids && ids->empty() && text_config != nullptr) ids = EndIds(*text_config, config_file);
  if (!ids) return std::unexpected(ids.error());

  parts.config = std::move(*config);
  parts.generation_config = std::move(*generation);
  parts.end_ids = std::move(*ids);
  parts.pooling_json = ReadOptional(source, "1_Pooling/config.json", kPoolingBytesMax);
  return {};
}

// tokenizer_config.json, with the tokens of special_tokens_map.json that it lacks.
api::Result<ordered_json> ReadTokenizerConfig(const ModelSource& source) {
  auto config = ReadObject(source, "tokenizer_config.json", kConfigBytesMax);
  if (!config) return config;
  const auto tokens = ReadObject(source, "special_tokens_map.json", kConfigBytesMax);
  if (!tokens || tokens->is_null()) return tokens ? config : tokens;
  if (config->is_null()) *config = ordered_json::object();
  for (const auto& [name, token] : tokens->items()) {
    if (FindMember(*config, name.c_str()) == nullptr) (*config)[name] = token;
  }
  return config;
}

// Files of templates go before those in tokenizer_config.json.
api::Result<void> ReadTemplates(const ModelSource& source, const ordered_json& tokenizer_config,
                                Parts& parts) {
  constexpr std::string_view kJson = "chat_template.json";
  auto text = ReadOptional(source, "chat_template.jinja", kTemplateBytesMax);
  if (!text) return std::unexpected(text.error());
  auto tool_use = ReadOptional(source, "additional_chat_templates/tool_use.jinja", kTemplateBytesMax);
  if (!tool_use) return std::unexpected(tool_use.error());
  auto object = ReadObject(source, kJson, kConfigBytesMax);
  if (!object) return std::unexpected(object.error());
  auto named = TemplatesOf(*object, source.PathOf(kJson));
  if (named && named->chat.empty())
    named = TemplatesOf(tokenizer_config, source.PathOf("tokenizer_config.json"));
  if (!named && !*text) return std::unexpected(named.error());
  // A template of the file tokenizer_config.json for tools belongs to the one beside it.
  if (!*text) parts.tool_template = std::move(named->tool_use);
  parts.chat_template = *text ? std::move(**text) : std::move(named->chat);
  if (*tool_use) parts.tool_template = std::move(**tool_use);
  return {};
}

api::Result<void> ReadTokenizer(const ModelSource& source, Parts& parts) {
  auto config = ReadTokenizerConfig(source);
  if (!config) return std::unexpected(config.error());
  auto tokenizer = ReadOptional(source, "tokenizer.json", kTokenizerBytesMax);
  if (!tokenizer) return std::unexpected(tokenizer.error());
  if (auto templates = ReadTemplates(source, *config, parts); !templates) return templates;
  if (!*tokenizer) {
    const ordered_json* type = FindMember(parts.config, "model_type");
    const std::string model_type = type != nullptr && type->is_string() ? type->get<std::string>() : "";
    auto other = ReadOtherVocabulary(source, model_type, *config);
    if (!other) return std::unexpected(other.error());
    *tokenizer = *std::move(other);
  }
  if (!*tokenizer) {
    auto model = source.Open("tokenizer.model", kTokenizerBytesMax);
    if (model) {
      parts.tokenizer_model = std::move(*model);
    } else if (model.error().code != api::ErrorCode::kNotFound) {
      return std::unexpected(model.error());
    }
  }
  parts.tokenizer_config = std::move(*config);
  parts.tokenizer_json = std::move(*tokenizer).value_or("");
  return {};
}

// Makes the entry's data fit for its element type: as it lies in the file, or as an aligned copy.
std::span<const std::byte> Aligned(const SafetensorsEntry& entry, Parts& parts) {
  const size_t alignment = *entry.type == DataType::kF32 ? 4 : 2;
  if (reinterpret_cast<uintptr_t>(entry.data.data()) % alignment == 0) return entry.data;
  auto& copy = parts.copies.emplace_back(std::make_unique_for_overwrite<std::byte[]>(entry.data.size()));
  std::memcpy(copy.get(), entry.data.data(), entry.data.size());
  return {copy.get(), entry.data.size()};
}

// Whether the configuration says that tensors of this dtype are blocks or scales that a loader knows.
bool IsRaw(std::string_view dtype, const Parts& parts) {
  if (HasCheckpointMethod(parts.config)) {
    return dtype == "I32" || dtype == "I8" || dtype == "U8" || dtype == "F8_E4M3";
  }
  const ordered_json* quantization = FindMember(parts.config, "quantization_config");
  if (quantization == nullptr) return false;
  const ordered_json* method = FindMember(*quantization, "quant_method");
  return method != nullptr && *method == "mxfp4" && dtype == "U8";
}

// `prefix` goes before the names of the file's tensors.
api::Result<void> ReadWeightFile(const ModelSource& source, std::string_view name, Parts& parts,
                                 std::string_view prefix = {}) {
  auto file = source.Open(name);
  if (!file) return std::unexpected(file.error());
  auto entries = ParseSafetensors(file->bytes(), file->path());
  if (!entries) return std::unexpected(entries.error());
  for (SafetensorsEntry& entry : *entries) {
    if (!prefix.empty()) entry.name.insert(0, prefix);
    // Position ids, masks and orders that some checkpoints carry along; no weight has these types.
    if (entry.dtype == "I64" || entry.dtype == "BOOL") {
      if (!parts.left_out.insert(entry.name).second) {
        return RefuseDirectory(file->path(), fmt::format("tensor {} is in two shards", Quoted(entry.name)));
      }
      if (entry.dtype == "I64") {
        parts.integers.push_back({std::move(entry.name), std::move(entry.shape), entry.data});
      }
      continue;
    }
    if (!entry.type && IsRaw(entry.dtype, parts)) {
      if (!parts.left_out.insert(entry.name).second) {
        return RefuseDirectory(file->path(), fmt::format("tensor {} is in two shards", Quoted(entry.name)));
      }
      parts.raw.push_back({std::move(entry.name), entry.dtype, std::move(entry.shape), entry.data});
      continue;
    }
    if (!entry.type) {
      return RefuseDirectory(file->path(),
                             fmt::format("tensor {} has type {}, which this build does not support",
                                         Quoted(entry.name), entry.dtype));
    }
    const auto data = Aligned(entry, parts);
    parts.tensors.push_back(
        {.name = std::move(entry.name), .type = *entry.type, .shape = std::move(entry.shape), .data = data});
  }
  parts.files.push_back(std::move(*file));
  return {};
}

bool IsShardName(const std::string& name) {
  return name.ends_with(".safetensors") && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

// Reads the shards an index names. REQUIRES: `index` is an object.
api::Result<void> ReadShards(const ModelSource& source, const ordered_json& index, const fs::path& index_file,
                             Parts& parts) {
  const ordered_json* map = FindMember(index, "weight_map");
  if (map == nullptr || !map->is_object() || map->empty())
    return RefuseDirectory(index_file, "no weight_map");
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string() || !IsShardName(shard.get_ref<const std::string&>())) {
      return RefuseDirectory(
          index_file,
          fmt::format("tensor {} is not in a .safetensors file of this directory", Quoted(tensor)));
    }
    shards.insert(shard.get<std::string>());
    if (shards.size() > kShardsMax) return RefuseDirectory(index_file, "too many shards");
  }
  for (const std::string& shard : shards) {
    auto read = ReadWeightFile(source, shard, parts);
    if (!read && read.error().code == api::ErrorCode::kNotFound) {
      return RefuseDirectory(index_file, fmt::format("shard {} is missing", Quoted(shard)));
    }
    if (!read) return read;
  }
  std::set<std::string_view> names;
  for (const Tensor& tensor : parts.tensors) {
    if (!names.insert(tensor.name).second) {
      return RefuseDirectory(index_file, fmt::format("tensor {} is in two shards", Quoted(tensor.name)));
    }
  }
  for (const auto& [tensor, shard] : map->items()) {
    if (!names.contains(tensor) && !parts.left_out.contains(tensor)) {
      return RefuseDirectory(index_file, fmt::format("tensor {} is in no shard", Quoted(tensor)));
    }
  }
  return {};
}

api::Result<void> ReadWeights(const ModelSource& source, Parts& parts) {
  auto read = ReadWeightFile(source, "model.safetensors", parts);
  if (read || read.error().code != api::ErrorCode::kNotFound) return read;
  constexpr std::string_view kIndex = "model.safetensors.index.json";
  const auto index = ReadObject(source, kIndex, kIndexBytesMax);
  if (!index) return std::unexpected(index.error());
  if (index->is_null()) {
    return RefuseDirectory(parts.directory, "neither model.safetensors nor model.safetensors.index.json");
  }
  return ReadShards(source, *index, source.PathOf(kIndex), parts);
}

constexpr size_t kModulesMax = 16;

// A folder's name in the directory: no path, nothing above it.
bool IsFolderName(std::string_view name) {
  return !name.empty() && name.size() <= 64 && name.front() != '.' &&
         name.find_first_of("/\\") == name.npos && name.find('\0') == name.npos;
}

api::Result<std::vector<SentenceModule>> ReadModules(const ModelSource& source, Parts& parts) {
  const fs::path file = source.PathOf("modules.json");
  auto text = ReadOptional(source, "modules.json", kPoolingBytesMax);
  if (!text) return std::unexpected(text.error());
  std::vector<SentenceModule> modules;
  if (!*text) return modules;
  const auto list = ParseJson(**text, file.string());
  if (!list) return std::unexpected(list.error());
  if (!list->is_array() || list->size() > kModulesMax) return RefuseDirectory(file, "not a short list");
  for (const ordered_json& entry : *list) {
    const ordered_json* type = FindMember(entry, "type");
    const ordered_json* path = FindMember(entry, "path");
    if (type == nullptr || !type->is_string() || path == nullptr || !path->is_string()) {
      return RefuseDirectory(file, "a module without type and path");
    }
    const auto& name = type->get_ref<const std::string&>();
    SentenceModule module{
        .kind = name.substr(name.rfind('.') + 1), .path = path->get<std::string>(), .config_json = {}};
    const bool dense = module.kind == "Dense";
    if (dense || module.kind == "LogitScore") {
      if (!IsFolderName(module.path)) {
        return RefuseDirectory(file, fmt::format("a {} module without a folder", module.kind));
      }
      auto config = ReadOptional(source, module.path + "/config.json", kPoolingBytesMax);
      if (!config) return std::unexpected(config.error());
      module.config_json = std::move(*config).value_or("");
    }
    if (dense) {
      auto read = ReadWeightFile(source, module.path + "/model.safetensors", parts, module.path + "/");
      if (!read) return std::unexpected(read.error());
    }
    modules.push_back(std::move(module));
  }
  return modules;
}

api::Result<void> ReadSentenceModules(const ModelSource& source, Parts& parts) {
  parts.modules = ReadModules(source, parts);
  for (const auto& [name, text] : {std::pair{"sentence_bert_config.json", &parts.sentence_config},
                                   {"config_sentence_transformers.json", &parts.sentence_prompts}}) {
    auto config = ReadOptional(source, name, kPoolingBytesMax);
    if (!config) return std::unexpected(config.error());
    *text = std::move(*config).value_or("");
  }
  return {};
}

api::Result<std::string> ReadProcessorConfig(const ModelSource& source) {
  auto config = ReadObject(source, "processor_config.json", kConfigBytesMax);
  if (!config) return std::unexpected(config.error());
  auto images = ReadObject(source, "preprocessor_config.json", kConfigBytesMax);
  if (!images) return std::unexpected(images.error());
  if (!images->is_null() && FindMember(*config, "image_processor") == nullptr) {
    (*config)["image_processor"] = std::move(*images);
  }
  return config->is_null() ? std::string() : config->dump();
}

api::Result<void> ReadProcessorFiles(const ModelSource& source, Parts& parts) {
  parts.processor_config = ReadProcessorConfig(source);
  return {};
}

}  // namespace

api::Result<std::shared_ptr<const ModelFiles>> OpenHuggingFace(const ModelSource& source) {
  Parts parts;
  parts.directory = source.path();
  for (auto* const step :
       {&ReadConfigs, &ReadTokenizer, &ReadWeights, &ReadSentenceModules, &ReadProcessorFiles}) {
    if (auto done = step(source, parts); !done) return std::unexpected(done.error());
  }
  return std::make_shared<const HuggingFaceModel>(std::move(parts));
}

}  // namespace quire::runner::weights
