#include "runner/tokenizer/load_pre_tokenizer.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "runner/tokenizer/json_fields.h"
#include "runner/tokenizer/known_patterns.h"
#include "runner/tokenizer/load_text_steps.h"
#include "runner/tokenizer/wordpiece.h"

namespace quire::runner::tokenizer {
namespace {

using nlohmann::json;

std::optional<SplitBehavior> BehaviorNamed(std::string_view name) {
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return std::nullopt;
}

api::Result<SplitStep> CompileField(std::string_view pattern, Regex::Syntax syntax, std::string_view path) {
  auto step = CompileSplit(pattern, syntax);
  if (!step) return BadField(path, step.error().message);
  return step;
}

class PreTokenizerLoader {
 public:
  api::Result<LoadedPreTokenizer> Run(const json& root) {
    auto leaves = FlattenSequence(root, "pre_tokenizer", "pretokenizers");
    if (!leaves) return std::unexpected(std::move(leaves.error()));
    for (const FieldNode& leaf : *leaves) {
      if (auto done = Step(leaf); !done) return std::unexpected(std::move(done.error()));
    }
    if (loaded_.words && !loaded_.mark_spaces) {
      return BadField("pre_tokenizer", "WhitespaceSplit without Metaspace is not supported");
    }
    return std::move(loaded_);
  }

 private:
  api::Result<void> Step(const FieldNode& node) {
    if (loaded_.byte_level) return BadField(node.path, "a step after ByteLevel is not supported");
    const std::string_view type = (*node.value)["type"].get_ref<const std::string&>();
    if (type == "Split") return Split(node);
    if (type == "Digits") return Digits(node);
    if (type == "ByteLevel") return ByteLevel(node);
    if (type == "Metaspace") return Metaspace(node);
    if (type == "BertPreTokenizer") {
      SplitLikeBert(loaded_.splits);
      return {};
    }
    if (type == "WhitespaceSplit") return WhitespaceSplit(node);
    return BadField(node.path, fmt::format("type \"{}\" is not supported", type));
  }

  api::Result<void> Split(const FieldNode& node) {
    const json* pattern = Member(*node.value, "pattern");
    const std::string pattern_path = node.path + ".pattern";
    if (pattern == nullptr || !pattern->is_object()) return BadField(pattern_path, "not an object");
    const bool literal = Member(*pattern, "String") != nullptr;
    auto text = StringMember(*pattern, literal ? "String" : "Regex", pattern_path);
    if (!text) return std::unexpected(std::move(text.error()));
    auto step = CompileField(*text, literal ? Regex::Syntax::kLiteral : Regex::Syntax::kOniguruma,
                             pattern_path + (literal ? ".String" : ".Regex"));
    if (!step) return std::unexpected(std::move(step.error()));
    auto name = StringMember(*node.value, "behavior", node.path);
    if (!name) return std::unexpected(std::move(name.error()));
    const auto behavior = BehaviorNamed(*name);
    if (!behavior) return BadField(node.path + ".behavior", fmt::format("\"{}\" is not known", *name));
    auto invert = BoolMember(*node.value, "invert", false, node.path);
    if (!invert) return std::unexpected(std::move(invert.error()));
    step->behavior = *behavior;
    step->invert = *invert;
    loaded_.splits.steps.push_back(*std::move(step));
    return {};
  }

  api::Result<void> Digits(const FieldNode& node) {
    auto individual = BoolMember(*node.value, "individual_digits", false, node.path);
    if (!individual) return std::unexpected(std::move(individual.error()));
    return Isolate(*individual ? R"(\p{N})" : R"(\p{N}+)", node.path);
  }

  api::Result<void> ByteLevel(const FieldNode& node) {
    auto prefix = BoolMember(*node.value, "add_prefix_space", true, node.path);
    if (!prefix) return std::unexpected(std::move(prefix.error()));
    auto use_regex = BoolMember(*node.value, "use_regex", true, node.path);
    if (!use_regex) return std::unexpected(std::move(use_regex.error()));
    if (*prefix && !loaded_.splits.steps.empty()) {
      return BadField(node.path + ".add_prefix_space", "after another step it is not supported");
    }
    loaded_.byte_level = true;
    loaded_.splits.add_prefix_space = *prefix;
    if (*use_regex) return Isolate(kGpt2Pattern, node.path);
    return {};
  }

  // Before a Metaspace that marks every word: white space becomes one space, of which the mark is made.
  api::Result<void> WhitespaceSplit(const FieldNode& node) {
    if (!loaded_.splits.steps.empty() || loaded_.mark_spaces || loaded_.words) {
      return BadField(node.path, "after another step it is not supported");
    }
    loaded_.words = true;
    return {};
  }

  // Rewrites the text, so it comes before whatever splits it.
  api::Result<void> Metaspace(const FieldNode& node) {
    if (!loaded_.splits.steps.empty() || loaded_.mark_spaces) {
      return BadField(node.path, "after another step it is not supported");
    }
    auto mark = StringMember(*node.value, "replacement", node.path);
    if (!mark) return std::unexpected(std::move(mark.error()));
    if (*mark != kSpaceMark) return BadField(node.path + ".replacement", "not U+2581");
    auto prefix = MetaspacePrefix(*node.value, node.path);
    if (!prefix) return std::unexpected(std::move(prefix.error()));
    if (loaded_.words && *prefix != MarkSpaces::Prefix::kAlways) {
      return BadField(node.path + ".prepend_scheme", "behind WhitespaceSplit only \"always\" is supported");
    }
    loaded_.mark_spaces = MarkSpaces{*prefix};
    auto split = BoolMember(*node.value, "split", true, node.path);
    if (!split) return std::unexpected(std::move(split.error()));
    if (!*split) return {};
    auto step = CompileField(kSpaceMark, Regex::Syntax::kLiteral, node.path);
    if (!step) return std::unexpected(std::move(step.error()));
    step->behavior = SplitBehavior::kMergedWithNext;
    loaded_.splits.steps.push_back(*std::move(step));
    return {};
  }

  api::Result<void> Isolate(std::string_view pattern, std::string_view path) {
    auto step = CompileField(pattern, Regex::Syntax::kOniguruma, path);
    if (!step) return std::unexpected(std::move(step.error()));
    loaded_.splits.steps.push_back(*std::move(step));
    return {};
  }

  LoadedPreTokenizer loaded_;
};

}  // namespace

api::Result<MarkSpaces::Prefix> MetaspacePrefix(const json& metaspace, const std::string& path) {
  using Prefix = MarkSpaces::Prefix;
  if (Member(metaspace, "prepend_scheme") == nullptr) {  // older files
    auto add = BoolMember(metaspace, "add_prefix_space", true, path);
    if (!add) return std::unexpected(std::move(add.error()));
    return *add ? Prefix::kAlways : Prefix::kNever;
  }
  auto scheme = StringMember(metaspace, "prepend_scheme", path);
  if (!scheme) return std::unexpected(std::move(scheme.error()));
  if (*scheme == "always") return Prefix::kAlways;
  if (*scheme == "first") return Prefix::kAtStartOfText;
  if (*scheme == "never") return Prefix::kNever;
  return BadField(path + ".prepend_scheme", fmt::format("\"{}\" is not known", scheme->substr(0, 64)));
}

api::Result<LoadedPreTokenizer> LoadPreTokenizer(const json& value) {
  if (value.is_null()) return LoadedPreTokenizer();
  return PreTokenizerLoader().Run(value);
}

}  // namespace quire::runner::tokenizer
