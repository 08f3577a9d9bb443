#include "api/anthropic/content_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "api/json/text.h"

namespace quire::api::anthropic {
namespace {

std::string TextsOf(Fields& block, std::string_view name) {
  std::string text;
  const Json* content = block.Find(name);
  if (content == nullptr) return text;
  ForEachBlock(block, name, *content, [&](Fields& inner, std::string_view type) {
    if (type == "text") AppendLine(text, RequireString(inner, "text"));
  });
  return text;
}

std::string SearchResult(Fields& block) {
  std::string text, source;
  block.Get("title", text);
  if (block.Get("source", source)) AppendLine(text, source);
  AppendLine(text, TextsOf(block, "content"));
  return text;
}

std::optional<std::string> PlainDocument(Fields& block) {
  const Json* value = block.FindObject("source");
  if (value == nullptr) return std::nullopt;
  Fields source(*value, block.PathOf("source"), block.error());
  const std::string type = RequireString(source, "type");
  if (type != "text" && type != "content") return std::nullopt;
  std::string text, context;
  block.Get("title", text);
  if (block.Get("context", context)) AppendLine(text, context);
  AppendLine(text, type == "text" ? RequireString(source, "data") : TextsOf(source, "content"));
  return text;
}

}  // namespace

std::string RequireString(Fields& fields, std::string_view name) {
  std::string text;
  if (!fields.Take(name, text)) fields.Reject(name, "is required and must be of type string");
  return text;
}

bool OneOf(std::string_view value, std::initializer_list<std::string_view> known) {
  return std::ranges::find(known, value) != known.end();
}

void AppendLine(std::string& text, const std::string& more) {
  if (!text.empty() && !more.empty()) text += '\n';
  text += more;
}

void ForEachBlock(Fields& fields, std::string_view name, const Json& content,
                  const std::function<void(Fields& block, std::string_view type)>& visit) {
  if (content.is_string()) {
    Json block = {{"type", "text"}};
    block["text"] = TakeText(content);
    Fields one(block, fields.PathOf(name), fields.error());
    return visit(one, std::string_view("text"));
  }
  if (!content.is_array()) return fields.Reject(name, "must be of type string or array of content blocks");
  for (size_t i = 0; i < content.size() && fields.ok(); ++i) {
    Fields block(content[i], fields.PathOf(fmt::format("{}[{}]", name, i)), fields.error());
    const std::string type = RequireString(block, "type");
    visit(block, std::string_view(type));
  }
}

Result<ImageFile> ImageOfBlock(Fields& block) {
  const std::string path = block.PathOf("source");
  const Json* value = block.Find("source");
  if (value == nullptr || !value->is_object()) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("field \"{}\" is required and must be of type object", path), path);
  }
  Fields source(*value, path, block.error());
  source.Find("media_type");
  const Json* type = source.Find("type");
  if (type == nullptr || !type->is_string() || IsText(*type, "base64")) return ReadImageField(source, "data");
  if (IsText(*type, "url")) return ReadImageField(source, "url");  // which may be a data URL
  return Fail(ErrorCode::kUnsupported, fmt::format("{}.type: only images of type \"base64\" are read", path),
              path + ".type");
}

std::optional<std::string> TextOfBlock(Fields& block, std::string_view type) {
  if (type == "search_result") return SearchResult(block);
  return type == "document" ? PlainDocument(block) : std::nullopt;
}

}  // namespace quire::api::anthropic
