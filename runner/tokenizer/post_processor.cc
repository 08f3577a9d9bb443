#include "runner/tokenizer/post_processor.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "runner/tokenizer/json_fields.h"

namespace quire::runner::tokenizer {
namespace {

using nlohmann::json;

constexpr size_t kPairItemsMax = 64;

// The one id of a {"SpecialToken": {"id": name}} of a template.
api::Result<api::TokenId> SpecialTokenId(const json& processor, const json& item, const std::string& path,
                                         int32_t vocab_size) {
  auto name = StringMember(item, "id", path);
  if (!name) return std::unexpected(std::move(name.error()));
  const json* table = Member(processor, "special_tokens");
  const json* entry = table == nullptr ? nullptr : Member(*table, std::string(*name).c_str());
  const json* ids = entry == nullptr ? nullptr : Member(*entry, "ids");
  if (ids == nullptr || !ids->is_array() || ids->size() != 1) {
    return BadField(path, fmt::format("\"{}\" is not one id of special_tokens", name->substr(0, 64)));
  }
  auto id = TokenIdOf((*ids)[0], path);
  if (id && *id >= vocab_size) return BadField(path, fmt::format("id {} is outside the vocabulary", *id));
  return id;
}

// The "pair" of a template; none where it is absent. Each text is in it once.
api::Result<void> PairTemplate(const json& processor, const std::string& path, int32_t vocab_size,
                               TextFrame& frame) {
  const json* pair = Member(processor, "pair");
  if (pair == nullptr || (pair->is_array() && pair->empty())) return {};
  const std::string pair_path = path + ".pair";
  if (!pair->is_array() || pair->size() > kPairItemsMax) return BadField(pair_path, "not a short array");
  int texts[2] = {0, 0};
  for (const json& entry : *pair) {
    const json* text = Member(entry, "Sequence");
    const json* special = Member(entry, "SpecialToken");
    if (text == nullptr && special == nullptr) {
      return BadField(pair_path, "neither Sequence nor SpecialToken");
    }
    const json& item = text != nullptr ? *text : *special;
    auto type = TokenIdOf(item.contains("type_id") ? item["type_id"] : json(0), pair_path + ".type_id");
    if (!type) return std::unexpected(std::move(type.error()));
    if (*type > 1) return BadField(pair_path + ".type_id", "only 0 and 1 are supported");
    PairFrame::Item made{.type = *type};
    if (text != nullptr) {
      const bool second = Member(item, "id") != nullptr && item["id"] == "B";
      ++texts[second ? 1 : 0];
      made.kind = second ? PairFrame::Kind::kSecond : PairFrame::Kind::kFirst;
    } else {
      auto id = SpecialTokenId(processor, item, pair_path, vocab_size);
      if (!id) return std::unexpected(std::move(id.error()));
      made.token = *id;
    }
    frame.pair.items.push_back(made);
  }
  if (texts[0] != 1 || texts[1] != 1) return BadField(pair_path, "each text must be in it once");
  return {};
}

// The id of "cls" or "sep": ["</s>", 2].
api::Result<api::TokenId> NamedId(const json& processor, const char* key, const std::string& path,
                                  int32_t vocab_size) {
  const json* value = Member(processor, key);
  const std::string id_path = path + "." + key;
  if (value == nullptr || !value->is_array() || value->size() != 2) {
    return BadField(id_path, "not a text and an id");
  }
  auto id = TokenIdOf((*value)[1], id_path);
  if (id && *id >= vocab_size) return BadField(id_path, fmt::format("id {} is outside the vocabulary", *id));
  return id;
}

// BERT's and RoBERTa's own processors: a pair has one separator in between, or two.
api::Result<void> NamedFrame(const json& processor, bool bert, const std::string& path, int32_t vocab_size,
                             TextFrame& frame) {
  auto cls = NamedId(processor, "cls", path, vocab_size);
  if (!cls) return std::unexpected(std::move(cls.error()));
  auto sep = NamedId(processor, "sep", path, vocab_size);
  if (!sep) return std::unexpected(std::move(sep.error()));
  frame.decides = true;
  frame.prefix = *cls;
  frame.suffix = *sep;
  frame.pair = FrameOfPair(*cls, *sep, bert ? kNoToken : *sep, bert ? 1 : 0);
  return {};
}

api::Result<void> Template(const json& processor, const std::string& path, int32_t vocab_size,
                           TextFrame& frame) {
  const json* single = Member(processor, "single");
  const std::string single_path = path + ".single";
  if (single == nullptr || !single->is_array()) return BadField(single_path, "not an array");
  frame.decides = true;
  bool after_text = false;
  for (const json& item : *single) {
    if (Member(item, "Sequence") != nullptr) {
      if (std::exchange(after_text, true)) return BadField(single_path, "the text twice");
      continue;
    }
    const json* special = Member(item, "SpecialToken");
    if (special == nullptr) return BadField(single_path, "neither Sequence nor SpecialToken");
    auto id = SpecialTokenId(processor, *special, single_path, vocab_size);
    if (!id) return std::unexpected(std::move(id.error()));
    api::TokenId& side = after_text ? frame.suffix : frame.prefix;
    if (side != kNoToken)
      return BadField(single_path, "more than one special token on a side is not supported");
    side = *id;
  }
  if (!after_text) return BadField(single_path, "without the text");
  return PairTemplate(processor, path, vocab_size, frame);
}

api::Result<void> Processor(const json& processor, const std::string& path, int32_t vocab_size,
                            TextFrame& frame) {
  auto type = StringMember(processor, "type", path);
  if (!type) return std::unexpected(std::move(type.error()));
  if (*type == "ByteLevel") return {};  // trims offsets, of no use here
  if (*type == "BertProcessing" || *type == "RobertaProcessing") {
    return NamedFrame(processor, *type == "BertProcessing", path, vocab_size, frame);
  }
  if (*type == "TemplateProcessing") return Template(processor, path, vocab_size, frame);
  return BadField(path, fmt::format("type \"{}\" is not supported", type->substr(0, 64)));
}

}  // namespace

PairFrame FrameOfPair(api::TokenId begin, api::TokenId end, api::TokenId between, int32_t second_type) {
  using Kind = PairFrame::Kind;
  PairFrame frame;
  const auto add = [&frame](Kind kind, api::TokenId token, int32_t type) {
    if (kind != Kind::kToken || token != kNoToken) frame.items.push_back({kind, token, type});
  };
  add(Kind::kToken, begin, 0);
  add(Kind::kFirst, kNoToken, 0);
  add(Kind::kToken, end, 0);
  add(Kind::kToken, between, 0);
  add(Kind::kSecond, kNoToken, second_type);
  add(Kind::kToken, end, second_type);
  return frame;
}

api::Result<TextFrame> LoadPostProcessor(const json& value, int32_t vocab_size) {
  TextFrame frame;
  auto type = StringMember(value, "type", "post_processor");
  if (!type) return std::unexpected(std::move(type.error()));
  if (*type != "Sequence") {
    auto done = Processor(value, "post_processor", vocab_size, frame);
    if (!done) return std::unexpected(std::move(done.error()));
    return frame;
  }
  const json* processors = Member(value, "processors");
  if (processors == nullptr || !processors->is_array()) {
    return BadField("post_processor.processors", "not an array");
  }
  size_t index = 0;
  for (const json& processor : *processors) {
    auto done =
        Processor(processor, fmt::format("post_processor.processors[{}]", index++), vocab_size, frame);
    if (!done) return std::unexpected(std::move(done.error()));
  }
  return frame;
}

}  // namespace quire::runner::tokenizer
