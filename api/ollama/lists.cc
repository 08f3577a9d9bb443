#include "api/ollama/lists.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/base/timestamp.h"
#include "api/json/read.h"
#include "api/ollama/modelfile.h"

namespace quire::api::ollama {
namespace {

// Beyond what 64 bits of nanoseconds since 1970 reach, so no real expiry looks like it.
constexpr std::string_view kNeverExpires = "2300-01-01T00:00:00Z";
constexpr size_t kShortArrayMax = 5;

Json Encode(const ModelDetails& details) {
  return {{"parent_model", details.parent_model},
          {"format", details.format},
          {"family", details.family},
          {"families", details.families},
          {"parameter_size", details.parameter_size},
          {"quantization_level", details.quantization_level}};
}

// The value, or an empty one of the wanted kind when the text is not that. The text comes from a runner or a
// store.
Json ReadOr(std::string_view text, Json fallback) {
  if (text.empty()) return fallback;
  auto value = ReadJson(text);
  return value && value->type() == fallback.type() ? std::move(*value) : std::move(fallback);
}

Json Models(Json list) {
  Json body = Json::object();
  body["models"] = std::move(list);
  return body;
}

void Set(Json& object, std::string_view key, Json value) {
  const auto found = object.find(key);
  if (found != object.end()) {
    *found = std::move(value);
  } else {
    object[std::string(key)] = std::move(value);
  }
}

Json ModelInfo(const ShowReply& reply) {
  Json shown = Json::object();
  Json info = ReadOr(reply.model_info_json, Json::object());
  for (auto& [key, value] : info.get_ref<Json::object_t&>()) {
    if (key == "tokenizer.chat_template") continue;
    const bool hidden = value.is_array() && value.size() > kShortArrayMax && !reply.verbose;
    shown[key] = hidden ? Json::array() : std::move(value);
  }
  if (!reply.basename.empty()) Set(shown, "general.basename", reply.basename);
  return shown;
}

Json Parameters(const ShowReply& reply) {
  Json parameters = ReadOr(reply.parameters_json, Json::object());
  Json overrides = ReadOr(reply.overrides_json, Json::object());
  for (auto& [key, value] : overrides.get_ref<Json::object_t&>()) Set(parameters, key, std::move(value));
  return parameters;
}

Json Encode(const LoadCheck& check) {
  Json encoded = {{"loads", check.error.empty()}};
  if (!check.error.empty()) Set(encoded, "error", check.error);
  if (check.memory_bytes > 0) {
    Set(encoded, "memory", check.memory_bytes);
    Set(encoded, "memory_min", check.memory_min_bytes);
    if (check.streamed_bytes > 0) Set(encoded, "streamed", check.streamed_bytes);
  }
  if (check.memory_limit_bytes > 0) Set(encoded, "memory_limit", check.memory_limit_bytes);
  return encoded;
}

Json ShownMessages(const std::vector<Message>& messages) {
  Json list = Json::array();
  for (const Message& message : messages) {
    Json entry = {{"role", message.role}, {"content", message.content}};
    list.push_back(std::move(entry));
  }
  return list;
}

}  // namespace

std::string EncodeTags(const std::vector<TagEntry>& models) {
  Json list = Json::array();
  for (const TagEntry& model : models) {
    Json entry = {{"name", model.name},
                  {"model", model.name},
                  {"modified_at", FormatTimestamp(model.modified_at)},
                  {"size", model.size},
                  {"digest", model.digest},
                  {"details", Encode(model.details)},
                  {"capabilities", model.capabilities}};
    list.push_back(std::move(entry));
  }
  return DumpJson(Models(std::move(list)));
}

std::string EncodePs(const std::vector<PsEntry>& models) {
  Json list = Json::array();
  for (const PsEntry& model : models) {
    Json entry = {
        {"name", model.name},
        {"model", model.name},
        {"size", model.size},
        {"size_max", model.size_max},
        {"digest", model.digest},
        {"details", Encode(model.details)},
        {"expires_at", model.expires_at ? FormatTimestamp(*model.expires_at) : std::string(kNeverExpires)},
        {"size_vram", model.size_vram},
        {"context_length", model.context_length}};
    if (model.loading) {
      entry["loading"] = {{"progress", std::round(double{model.loading->fraction} * 100) / 100},
                          {"stage", model.loading->stage}};
    }
    list.push_back(std::move(entry));
  }
  return DumpJson(Models(std::move(list)));
}

std::string EncodeShow(const ShowReply& reply) {
  const Json parameters = Parameters(reply);
  Json body = {{"license", fmt::format("{}", fmt::join(reply.licenses, "\n"))},
               {"modelfile", RenderModelfile(reply, parameters)},
               {"parameters", ParameterLines(parameters)},
               {"template", reply.chat_template},
               {"system", reply.system},
               {"details", Encode(reply.details)},
               {"messages", ShownMessages(reply.messages)},
               {"model_info", ModelInfo(reply)},
               {"tensors", ReadOr(reply.tensors_json, Json::array())},
               {"capabilities", reply.capabilities},
               {"modified_at", FormatTimestamp(reply.modified_at)},
               {"requires", reply.requires_version},
               {"renderer", reply.renderer},
               {"parser", reply.parser}};
  if (!reply.projector_info_json.empty())
    Set(body, "projector_info", ReadOr(reply.projector_info_json, Json::object()));
  if (reply.context_length > 0) Set(body, "context_length", reply.context_length);
  if (!reply.sampling_json.empty()) Set(body, "sampling", ReadOr(reply.sampling_json, Json::object()));
  if (!reply.repairs.empty()) Set(body, "repairs", reply.repairs);
  if (reply.check) Set(body, "check", Encode(*reply.check));
  return DumpJson(body);
}

std::string EncodeVersion(std::string_view version) {
  const Json body = {{"version", version}};
  return DumpJson(body);
}

}  // namespace quire::api::ollama
