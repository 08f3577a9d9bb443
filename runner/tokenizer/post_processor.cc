#include "runner/tokenizer/post_processor.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "runner/tokenizer/json_fields.h"

namespace quire::runner::tokenizer {
namespace {

using nlohmann::json;

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
  return {};
}

api::Result<void> Processor(const json& processor, const std::string& path, int32_t vocab_size,
                            TextFrame& frame) {
  auto type = StringMember(processor, "type", path);
  if (!type) return std::unexpected(std::move(type.error()));
  if (*type == "ByteLevel") return {};  // trims offsets, of no use here
  if (*type == "TemplateProcessing") return Template(processor, path, vocab_size, frame);
  return BadField(path, fmt::format("type \"{}\" is not supported", type->substr(0, 64)));
}

}  // namespace

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
