#include "runner/weights/dialects/repair_gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runner/weights/block_formats.h"
#include "runner/weights/dialects/gguf_edits.h"
#include "runner/weights/text.h"

namespace quire::runner::weights {
namespace {

using nlohmann::ordered_json;
using Memory = std::vector<std::vector<float>>;

// In this order: each sees what the ones before changed, and what a family means by an absent key comes
// before what that means in general.
constexpr std::array kDialects = {
    &DetectArchitectureName, &DetectGptOss,   &DetectRopeSpelling, &DetectGemma,       &DetectQwenNext,
    &DetectQwenMoe,          &DetectLfm2,     &DetectOlmo,         &DetectPhi3,        &DetectMistral3,
    &DetectDeepSeek,         &DetectNemotron, &DetectCharsmap,     &DetectPreTokenizer};

constexpr int64_t kNormElementsMax = int64_t{1} << 18;

// "OLD.x" becomes "NEW.x". REQUIRES: no key begins with "NEW.".
void RenameArchitecture(const std::string& name, ordered_json& metadata) {
  const std::string prefix = metadata["general.architecture"].get<std::string>() + ".";
  ordered_json renamed = ordered_json::object();
  for (auto& [key, value] : metadata.items()) {
    const bool own = key.starts_with(prefix);
    renamed[own ? name + "." + key.substr(prefix.size()) : key] = std::move(value);
  }
  renamed["general.architecture"] = name;
  metadata = std::move(renamed);
}

void EditMetadata(const GgufEdits& edits, ordered_json& metadata) {
  if (!edits.architecture.empty()) RenameArchitecture(edits.architecture, metadata);
  for (const GgufEdits::Key& edit : edits.keys) {
    std::visit([&](const auto& value) { metadata[edit.key] = value; }, edit.value);
  }
  for (const GgufEdits::Element& edit : edits.elements) {
    if (const auto array = metadata.find(edit.array); array != metadata.end() && array->is_array()) {
      if (edit.index < array->size()) (*array)[edit.index] = edit.value;
    }
  }
  for (const GgufEdits::Cut& edit : edits.cuts) {
    const auto array = metadata.find(edit.array);
    if (array == metadata.end() || !array->is_array() || array->size() <= edit.count) continue;
    array->erase(array->begin() + static_cast<ptrdiff_t>(edit.count), array->end());
  }
}

api::Result<void> AddOne(Tensor& tensor, Memory& memory) {
  if (tensor.shape.size() != 1 || tensor.elements() > kNormElementsMax) {
    return Contradiction(Quoted(tensor.name), "not the weight of a norm");
  }
  std::vector<float> weights(static_cast<size_t>(tensor.elements()));
  Dequantize(tensor.type, tensor.data.data(), tensor.elements(), weights.data());
  for (float& weight : weights) weight += 1;
  memory.push_back(std::move(weights));
  tensor.type = DataType::kF32;
  tensor.data = std::as_bytes(std::span(memory.back()));
  return {};
}

api::Result<void> EditTensors(const GgufEdits& edits, std::vector<Tensor>& tensors, Memory& memory) {
  if (edits.tensors.empty()) return {};
  std::map<std::string_view, const GgufEdits::Name*> by_name;
  for (const GgufEdits::Name& edit : edits.tensors) by_name.emplace(edit.from, &edit);
  std::set<std::string> names;
  for (Tensor& tensor : tensors) {
    if (const auto edit = by_name.find(tensor.name); edit != by_name.end()) {
      if (edit->second->plus_one) {
        if (auto done = AddOne(tensor, memory); !done) return done;
      }
      tensor.name = edit->second->to;
    }
    if (!names.insert(tensor.name).second) {
      return Contradiction(Quoted(tensor.name), "the file has this tensor under two names");
    }
  }
  return {};
}

// Converters write -1 or 4294967295 for a special token that the vocabulary does not have.
void DropForeignIds(ordered_json& metadata, std::vector<std::string>& notes) {
  const auto tokens = metadata.find("tokenizer.ggml.tokens");
  if (tokens == metadata.end() || !tokens->is_array()) return;
  std::vector<std::string> foreign;
  for (const auto& [key, value] : metadata.items()) {
    if (!key.starts_with("tokenizer.ggml.") || !key.ends_with("_token_id") || !value.is_number_integer()) {
      continue;
    }
    const bool known =
        value.is_number_unsigned() ? value.get<uint64_t>() < tokens->size() : value.get<int64_t>() >= 0;
    if (!known) foreign.push_back(key);
  }
  for (const std::string& key : foreign) {
    notes.push_back(fmt::format("{}: {} is not the id of a token, ignored", key, metadata[key].dump()));
    metadata.erase(key);
  }
}

}  // namespace

api::Result<GgufRepairs> RepairGguf(GgufContents& contents, const std::string& file) {
  GgufRepairs repairs;
  const auto memory = std::make_shared<Memory>();
  const auto refuse = [&file](const api::Error& error) {
    return api::Fail(error.code, fmt::format("{}: {}", file, error.message));
  };
  for (Dialect* detect : kDialects) {
    const auto edits = detect(GgufView(*contents.metadata, contents.tensors));
    if (!edits) return refuse(edits.error());
    if (edits->empty()) continue;
    EditMetadata(*edits, *contents.metadata);
    if (auto done = EditTensors(*edits, contents.tensors, *memory); !done) return refuse(done.error());
    repairs.notes.insert(repairs.notes.end(), edits->notes.begin(), edits->notes.end());
  }
  DropForeignIds(*contents.metadata, repairs.notes);
  for (const std::string& name : contents.empty) {
    repairs.notes.push_back(fmt::format("tensor {}: has no elements, ignored", Quoted(name)));
  }
  repairs.memory = memory;
  return repairs;
}

}  // namespace quire::runner::weights
