#include "runner/tokenizer/load_text_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "runner/tokenizer/json_fields.h"

namespace quire::runner::tokenizer {
namespace {

using nlohmann::json;
using Status = api::Result<void>;

constexpr size_t kGrowthMax = 4096;

std::optional<NormalForm> NormalFormNamed(std::string_view name) {
  if (name == "NFC") return NormalForm::kNfc;
  if (name == "NFD") return NormalForm::kNfd;
  if (name == "NFKC") return NormalForm::kNfkc;
  if (name == "NFKD") return NormalForm::kNfkd;
  return std::nullopt;
}

// Nothing when the text is no base64.
std::optional<std::vector<std::byte>> FromBase64(std::string_view text) {
  constexpr std::string_view kBase64Alphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::array<int8_t, 256> value;
  value.fill(-1);
  for (size_t i = 0; i < kBase64Alphabet.size(); ++i)
    value[static_cast<uint8_t>(kBase64Alphabet[i])] = static_cast<int8_t>(i);
  while (text.ends_with('=')) text.remove_suffix(1);
  std::vector<std::byte> bytes;
  bytes.reserve(text.size() / 4 * 3 + 2);
  uint32_t bits = 0;
  unsigned count = 0;
  for (const char c : text) {
    const int8_t six = value[static_cast<uint8_t>(c)];
    if (six < 0) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(six);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<std::byte>(bits >> count & 0xFFU));
  }
  return bytes;
}

// A text that a step writes for another: short, so that what a text grows to is bounded.
api::Result<std::string> ShortText(const json& object, const char* key, const std::string& path) {
  auto text = StringMember(object, key, path);
  if (!text) return std::unexpected(std::move(text.error()));
  if (text->size() > kStepTextBytesMax) return BadField(fmt::format("{}.{}", path, key), "too long");
  return std::string(*text);
}

// The {"String": ...} of a step's "pattern".
api::Result<std::string> LiteralPattern(const json& step, const std::string& path) {
  const json* pattern = Member(step, "pattern");
  if (pattern == nullptr || Member(*pattern, "String") == nullptr) {
    return BadField(path + ".pattern", "only a String is supported");
  }
  auto text = ShortText(*pattern, "String", path + ".pattern");
  if (text && text->empty()) return BadField(path + ".pattern.String", "empty");
  return text;
}

// How many times longer a step may make a text.
size_t GrowthMax(const TextStep& step) {
  if (const auto* replace = std::get_if<Replace>(&step)) {
    return std::max<size_t>(1, (replace->to.size() + replace->from.size() - 1) / replace->from.size());
  }
  if (std::holds_alternative<NormalForm>(step)) return 18;
  if (std::holds_alternative<BertText>(step)) return kBertTextGrowthMax;
  if (std::holds_alternative<OneSpace>(step)) return 2;  // two spaces become three bytes
  return std::holds_alternative<std::shared_ptr<const CharacterMap>>(step) ? kReplacementBytesMax : 1;
}

// The one regular expression that is known: two spaces or more.
bool IsManySpaces(const json& step) {
  const json* pattern = Member(step, "pattern");
  const json* regex = pattern == nullptr ? nullptr : Member(*pattern, "Regex");
  return regex != nullptr && *regex == " {2,}";
}

Status AddBertText(const FieldNode& leaf, LoadedNormalizer& loaded) {
  const json& value = *leaf.value;
  BertText step;
  const std::pair<const char*, bool*> flags[] = {{"clean_text", &step.clean},
                                                 {"handle_chinese_chars", &step.isolate_han},
                                                 {"lowercase", &step.lowercase}};
  for (const auto& [key, flag] : flags) {
    auto set = BoolMember(value, key, true, leaf.path);
    if (!set) return std::unexpected(std::move(set.error()));
    *flag = *set;
  }
  auto strip = BoolMember(value, "strip_accents", step.lowercase, leaf.path);
  if (!strip) return std::unexpected(std::move(strip.error()));
  step.strip_accents = *strip;
  loaded.steps.emplace_back(step);
  return {};
}

Status AddStep(const FieldNode& leaf, LoadedNormalizer& loaded) {
  const json& value = *leaf.value;
  const std::string_view type = value["type"].get_ref<const std::string&>();
  if (const auto form = NormalFormNamed(type)) {
    if (loaded.steps.empty() && loaded.normal_form == NormalForm::kNone) {
      loaded.normal_form = *form;
    } else if (!loaded.steps.empty() || loaded.normal_form != *form) {
      loaded.steps.emplace_back(*form);
    }
    return {};
  }
  if (type == "Prepend") {
    auto text = ShortText(value, "prepend", leaf.path);
    if (!text) return std::unexpected(std::move(text.error()));
    loaded.steps.emplace_back(Prepend{*std::move(text)});
    return {};
  }
  if (type == "BertNormalizer") return AddBertText(leaf, loaded);
  if (type == "Lowercase" || type == "StripAccents") {
    const bool lower = type == "Lowercase";
    loaded.steps.emplace_back(
        BertText{.clean = false, .isolate_han = false, .strip_accents = !lower, .lowercase = lower});
    return {};
  }
  if (type == "Strip") {
    auto left = BoolMember(value, "strip_left", false, leaf.path);
    if (!left) return std::unexpected(std::move(left.error()));
    auto right = BoolMember(value, "strip_right", false, leaf.path);
    if (!right) return std::unexpected(std::move(right.error()));
    loaded.steps.emplace_back(Strip{.left = *left, .right = *right});
    return {};
  }
  if (type == "Replace" && IsManySpaces(value)) {
    auto to = ShortText(value, "content", leaf.path);
    if (!to) return std::unexpected(std::move(to.error()));
    if (*to != " " && *to != kSpaceMark) {
      return BadField(leaf.path + ".content", "only one space or U+2581 is supported");
    }
    loaded.steps.emplace_back(OneSpace{*std::move(to)});
    return {};
  }
  if (type == "Replace") {
    auto from = LiteralPattern(value, leaf.path);
    if (!from) return std::unexpected(std::move(from.error()));
    auto to = ShortText(value, "content", leaf.path);
    if (!to) return std::unexpected(std::move(to.error()));
    loaded.steps.emplace_back(Replace{.from = *std::move(from), .to = *std::move(to)});
    return {};
  }
  if (type == "Precompiled") {
    auto text = StringMember(value, "precompiled_charsmap", leaf.path);
    if (!text) return std::unexpected(std::move(text.error()));
    const auto bytes = FromBase64(*text);
    const std::string path = leaf.path + ".precompiled_charsmap";
    if (!bytes) return BadField(path, "not base64");
    if (bytes->empty()) return {};
    auto map = CharacterMap::Parse(*bytes);
    if (!map) return BadField(path, map.error().message);
    loaded.steps.emplace_back(std::make_shared<const CharacterMap>(*std::move(map)));
    return {};
  }
  return BadField(leaf.path, fmt::format("type \"{}\" is not supported", type.substr(0, 64)));
}

Status AddDecoder(const FieldNode& leaf, LoadedDecoder& loaded) {
  const json& value = *leaf.value;
  const std::string_view type = value["type"].get_ref<const std::string&>();
  if (type == "ByteFallback" || type == "Fuse" || type == "ByteLevel") return {};  // what we always do
  if (type == "WordPiece") {
    loaded.leading_spaces = LeadingSpaces::kDropOne;
    return {};
  }
  if (type == "Replace") {
    auto from = LiteralPattern(value, leaf.path);
    if (!from) return std::unexpected(std::move(from.error()));
    auto to = ShortText(value, "content", leaf.path);
    if (!to) return std::unexpected(std::move(to.error()));
    if (*from != kSpaceMark || *to != " ") return BadField(leaf.path, "only U+2581 to space is supported");
    loaded.marks_are_spaces = true;
    return {};
  }
  if (type == "Strip") {
    const json* start = Member(value, "start");
    const json* stop = Member(value, "stop");
    const json* content = Member(value, "content");
    const bool one_space = content != nullptr && *content == " " && stop != nullptr && *stop == 0;
    if (!one_space || start == nullptr || (*start != 0 && *start != 1)) {
      return BadField(leaf.path, "only one space at the start can be stripped");
    }
    if (*start == 1) loaded.leading_spaces = LeadingSpaces::kDropOne;
    return {};
  }
  if (type == "Metaspace") {
    auto prefix = MetaspacePrefix(value, leaf.path);
    if (!prefix) return std::unexpected(std::move(prefix.error()));
    loaded.marks_are_spaces = true;
    if (*prefix != MarkSpaces::Prefix::kNever) loaded.leading_spaces = LeadingSpaces::kDropMarks;
    return {};
  }
  return BadField(leaf.path, fmt::format("type \"{}\" is not supported", type.substr(0, 64)));
}

}  // namespace

api::Result<LoadedNormalizer> LoadNormalizer(const json& value) {
  LoadedNormalizer loaded;
  if (value.is_null()) return loaded;
  auto leaves = FlattenSequence(value, "normalizer", "normalizers");
  if (!leaves) return std::unexpected(std::move(leaves.error()));
  for (const FieldNode& leaf : *leaves) {
    if (auto done = AddStep(leaf, loaded); !done) return std::unexpected(std::move(done.error()));
  }
  size_t growth = 1;
  for (const TextStep& step : loaded.steps) {
    growth *= GrowthMax(step);
    if (growth > kGrowthMax) return BadField("normalizer", "its steps may make a text too long");
  }
  return loaded;
}

api::Result<LoadedDecoder> LoadDecoder(const json& value) {
  LoadedDecoder loaded;
  if (value.is_null()) return loaded;
  auto leaves = FlattenSequence(value, "decoder", "decoders");
  if (!leaves) return std::unexpected(std::move(leaves.error()));
  for (const FieldNode& leaf : *leaves) {
    if (auto done = AddDecoder(leaf, loaded); !done) return std::unexpected(std::move(done.error()));
  }
  return loaded;
}

}  // namespace quire::runner::tokenizer
