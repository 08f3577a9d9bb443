#include "runner/tokenizer/load_pre_tokenizer.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runner/tokenizer/json_fields.h"
#include "runner/tokenizer/known_patterns.h"

namespace quire::runner::tokenizer {
namespace {

using nlohmann::json;

constexpr size_t kStepsMax = 64;

struct Node {
  const json* value = nullptr;
  std::string path;
};

// The leaves of nested {"type": "Sequence", <list>: [...]}, in order, each with its path.
api::Result<std::vector<Node>> Flatten(const json& root, std::string path, const char* list) {
  std::vector<Node> leaves;
  std::vector<Node> open;
  open.push_back({&root, std::move(path)});
  while (!open.empty()) {
    Node node = std::move(open.back());
    open.pop_back();
    auto type = StringMember(*node.value, "type", node.path);
    if (!type) return std::unexpected(std::move(type.error()));
    if (*type != "Sequence") {
      leaves.push_back(std::move(node));
      continue;
    }
    const json* members = Member(*node.value, list);
    const std::string list_path = fmt::format("{}.{}", node.path, list);
    if (members == nullptr || !members->is_array()) return BadField(list_path, "not an array");
    if (members->size() + leaves.size() + open.size() > kStepsMax)
      return BadField(list_path, "too many steps");
    for (size_t i = members->size(); i > 0; --i) {
      open.push_back({&(*members)[i - 1], fmt::format("{}[{}]", list_path, i - 1)});
    }
  }
  return leaves;
}

std::optional<NormalForm> NormalFormNamed(std::string_view name) {
  if (name == "NFC") return NormalForm::kNfc;
  if (name == "NFD") return NormalForm::kNfd;
  if (name == "NFKC") return NormalForm::kNfkc;
  if (name == "NFKD") return NormalForm::kNfkd;
  return std::nullopt;
}

std::optional<SplitBehavior> BehaviorNamed(std::string_view name) {
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return std::nullopt;
}

api::Result<Regex> CompileField(std::string_view pattern, Regex::Syntax syntax, std::string_view path) {
  auto regex = Regex::Compile(pattern, syntax);
  if (!regex) return BadField(path, regex.error().message);
  return regex;
}

class Loader {
 public:
  api::Result<PreTokenizer> Run(const json& root) {
    auto leaves = Flatten(root, "pre_tokenizer", "pretokenizers");
    if (!leaves) return std::unexpected(std::move(leaves.error()));
    for (const Node& leaf : *leaves) {
      if (auto done = Step(leaf); !done) return std::unexpected(std::move(done.error()));
    }
    if (!byte_level_) return BadField("pre_tokenizer", "no ByteLevel; only byte-level BPE is supported");
    return std::move(result_);
  }

 private:
  api::Result<void> Step(const Node& node) {
    if (byte_level_) return BadField(node.path, "a step after ByteLevel is not supported");
    const std::string_view type = (*node.value)["type"].get_ref<const std::string&>();
    if (type == "Split") return Split(node);
    if (type == "Digits") return Digits(node);
    if (type == "ByteLevel") return ByteLevel(node);
    return BadField(node.path, fmt::format("type \"{}\" is not supported", type));
  }

  api::Result<void> Split(const Node& node) {
    const json* pattern = Member(*node.value, "pattern");
    const std::string pattern_path = node.path + ".pattern";
    if (pattern == nullptr || !pattern->is_object()) return BadField(pattern_path, "not an object");
    const bool literal = Member(*pattern, "String") != nullptr;
    auto text = StringMember(*pattern, literal ? "String" : "Regex", pattern_path);
    if (!text) return std::unexpected(std::move(text.error()));
    auto regex = CompileField(*text, literal ? Regex::Syntax::kLiteral : Regex::Syntax::kOniguruma,
                              pattern_path + (literal ? ".String" : ".Regex"));
    if (!regex) return std::unexpected(std::move(regex.error()));
    auto name = StringMember(*node.value, "behavior", node.path);
    if (!name) return std::unexpected(std::move(name.error()));
    const auto behavior = BehaviorNamed(*name);
    if (!behavior) return BadField(node.path + ".behavior", fmt::format("\"{}\" is not known", *name));
    auto invert = BoolMember(*node.value, "invert", false, node.path);
    if (!invert) return std::unexpected(std::move(invert.error()));
    result_.steps.push_back({.regex = *std::move(regex), .behavior = *behavior, .invert = *invert});
    return {};
  }

  api::Result<void> Digits(const Node& node) {
    auto individual = BoolMember(*node.value, "individual_digits", false, node.path);
    if (!individual) return std::unexpected(std::move(individual.error()));
    return Isolate(*individual ? R"(\p{N})" : R"(\p{N}+)", node.path);
  }

  api::Result<void> ByteLevel(const Node& node) {
    auto prefix = BoolMember(*node.value, "add_prefix_space", true, node.path);
    if (!prefix) return std::unexpected(std::move(prefix.error()));
    auto use_regex = BoolMember(*node.value, "use_regex", true, node.path);
    if (!use_regex) return std::unexpected(std::move(use_regex.error()));
    if (*prefix && !result_.steps.empty()) {
      return BadField(node.path + ".add_prefix_space", "after another step it is not supported");
    }
    byte_level_ = true;
    result_.add_prefix_space = *prefix;
    if (*use_regex) return Isolate(kGpt2Pattern, node.path);
    return {};
  }

  api::Result<void> Isolate(std::string_view pattern, std::string_view path) {
    auto regex = CompileField(pattern, Regex::Syntax::kOniguruma, path);
    if (!regex) return std::unexpected(std::move(regex.error()));
    result_.steps.push_back({.regex = *std::move(regex)});
    return {};
  }

  PreTokenizer result_;
  bool byte_level_ = false;
};

}  // namespace

api::Result<NormalForm> LoadNormalForm(const json& value) {
  NormalForm form = NormalForm::kNone;
  if (value.is_null()) return form;
  auto leaves = Flatten(value, "normalizer", "normalizers");
  if (!leaves) return std::unexpected(std::move(leaves.error()));
  for (const Node& leaf : *leaves) {
    const std::string_view type = (*leaf.value)["type"].get_ref<const std::string&>();
    const auto named = NormalFormNamed(type);
    if (!named) return BadField(leaf.path, fmt::format("type \"{}\" is not supported", type));
    if (form != NormalForm::kNone && form != *named) {
      return BadField(leaf.path, "more than one normal form is not supported");
    }
    form = *named;
  }
  return form;
}

api::Result<PreTokenizer> LoadPreTokenizer(const json& value) {
  if (value.is_null()) return BadField("pre_tokenizer", "absent; only byte-level BPE is supported");
  return Loader().Run(value);
}

}  // namespace quire::runner::tokenizer
