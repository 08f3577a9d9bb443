#include "api/llama_server/props.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "api/json/body.h"
#include "api/json/read.h"
#include "api/llama_server/completion.h"

namespace quire::api {

Result<TemplateRequest> ParseApplyTemplate(std::string_view text) {
  auto json = ReadBody(text);
  if (!json) return std::unexpected(json.error());
  FirstError error;
  TemplateRequest request;
  Fields body(*json, "", error);
  request.model = GetModelIfAny(body);
  if (error) return std::unexpected(std::move(*error));
  if (request.model.empty()) (*json)["model"] = "loaded";  // a chat names one
  auto chat = openai::ParseChat(DumpJson(*json));
  if (!chat) return std::unexpected(std::move(chat.error()));
  request.chat = *std::move(chat);
  return request;
}

Request ToRequest(TemplateRequest apply, const ModelDefaults& defaults) {
  Request request = openai::ToRequest(std::move(apply.chat), defaults);
  request.prompt_only = true;
  request.return_prompt_text = true;
  request.logprobs = false;
  return request;
}

std::string EncodeProps(const ModelProps& props, std::string_view version) {
  Json settings = {{"n_ctx", props.num_ctx}};
  settings["params"] = llama_server::EncodeSettings(props.params);
  Json body = {{"default_generation_settings", std::move(settings)},
               {"total_slots", props.slots},
               {"model_alias", props.model},
               {"model_path", props.path},
               {"chat_template", props.chat_template},
               {"modalities", {{"vision", props.sees_images}, {"audio", false}}},
               {"build_info", version},
               {"is_sleeping", false}};
  if (!props.sampling_json.empty()) body["sampling"] = ReadJson(props.sampling_json).value_or(Json::object());
  return DumpJson(body);
}

std::string EncodeTokenizerInfo(std::string_view tokenizer_json, const std::string& chat_template,
                                int32_t num_ctx) {
  Json body = ReadJson(tokenizer_json).value_or(Json::object());
  body["tokenizer_class"] = "PreTrainedTokenizerFast";
  body["model_max_length"] = num_ctx;
  if (!chat_template.empty()) body["chat_template"] = chat_template;
  return DumpJson(body);
}

std::string EncodeSlots(const std::vector<SlotEntry>& slots) {
  Json list = Json::array();
  for (size_t id = 0; id < slots.size(); ++id) {
    const SlotEntry& slot = slots[id];
    const Json entry = {
        {"id", id}, {"model", slot.model}, {"n_ctx", slot.num_ctx}, {"is_processing", slot.is_processing}};
    list.push_back(entry);
  }
  return DumpJson(list);
}

}  // namespace quire::api
