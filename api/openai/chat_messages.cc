#include "api/openai/chat_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/base/image_use.h"
#include "api/json/body.h"
#include "api/json/omitted_content.h"
#include "api/json/read.h"
#include "api/json/text.h"
#include "api/openai/image_part.h"

namespace quire::api::openai {
namespace {

// Reads the content of one message.
class Content {
 public:
  Content(Fields& fields, Message& message, const std::string& model, OmittedContent& omitted)
      : fields_(fields), message_(message), model_(model), omitted_(omitted) {}

  void Get() {
    constexpr std::string_view kName = "content";
    const Json* content = fields_.Find(kName);
    if (content == nullptr) {
      const bool may_lack = message_.role == "assistant" || message_.role == "tool";
      if (!may_lack) fields_.Reject(kName, "is required in a message of this role");
      fields_.Get("refusal", message_.content);
    } else if (content->is_string()) {
      message_.content = TakeText(*content);
    } else if (content->is_array()) {
      GetParts(*content);
    } else {
      fields_.Reject(kName, "must be of type string or array of parts");
    }
    GetPlan();
  }

 private:
  // All text parts are one text.
  void GetParts(const Json& parts) {
    for (size_t i = 0; i < parts.size() && fields_.ok(); ++i) {
      Fields part(parts[i], fields_.PathOf(fmt::format("content[{}]", i)), fields_.error());
      std::string type;
      if (!part.Get("type", type)) part.Reject("type", "is required and must be of type string");
      if (type == "text" || type == "refusal") {
        AppendText(message_.content, RequireText(part, type));
      } else if (type == "thinking" && message_.role == "assistant") {
        AppendText(message_.thinking, RequireText(part, type));
      } else if (const Json* document = DocumentOf(part, type)) {
        AddLine(DumpJson(*document));
      } else if (part.ok()) {
        AddOther(part, type);
      }
    }
  }

  void AddOther(Fields& part, std::string_view type) {
    const bool now = message_.role == "user" || message_.role == "system";
    const auto turn = now ? OmittedContent::Turn::kNow : OmittedContent::Turn::kHistory;
    std::string refusal = fmt::format("{} does not support content of type \"{}\"", model_, type);
    if (auto image = ImageOf(part, type)) {
      Error text_only{ErrorCode::kUnsupported, std::move(refusal), part.PathOf("type")};
      omitted_.AddImage(message_, *std::move(image), turn, std::move(text_only));
    } else {
      AddLine(omitted_.LineFor(part, "type", type, turn, std::move(refusal)));
    }
  }

  // Cohere's text beside calls, which a reply of ours has as content, too.
  void GetPlan() {
    std::string plan;
    if (!fields_.Take("tool_plan", plan) || plan == message_.content) return;
    PrependText(message_, message_.content.empty() ? plan : plan + "\n");
  }

  static std::string RequireText(Fields& part, std::string_view name) {
    std::string text;
    if (!part.Take(name, text)) part.Reject(name, "is required and must be of type string");
    return text;
  }

  // {"type": "document", "document": {"data": {...}}}, as a result of Cohere's tools has it.
  static const Json* DocumentOf(Fields& part, std::string_view type) {
    if (type != "document") return nullptr;
    const Json* document = part.Find("document");
    if (document == nullptr || !document->is_object()) return nullptr;
    const auto data = document->find("data");
    return data != document->end() && (data->is_object() || data->is_string()) ? &*data : nullptr;
  }

  void AddLine(const std::string& line) {
    std::string& text = message_.content;
    if (!text.empty() && text.back() != '\n') text += '\n';
    text += line + "\n";
  }

  Fields& fields_;
  Message& message_;
  const std::string& model_;
  OmittedContent& omitted_;
};

Message GetMessage(Fields& fields, const std::string& model, OmittedContent& omitted) {
  constexpr std::array<std::string_view, 4> kRoles = {"system", "user", "assistant", "tool"};
  Message message;
  message.role = GetRole(fields);
  if (message.role == "developer") message.role = "system";
  if (message.role ==
      "function") {  // what "tool" replaced: the result of the last call, by its function's name
    message.role = "tool";
    fields.Get("name", message.tool_name);
  }
  if (std::ranges::find(kRoles, message.role) == kRoles.end()) {
    fields.Reject("role", "must be system, developer, user, assistant or tool");
  }
  message.tool_calls = GetToolCalls(fields);
  if (const Json* call = fields.FindObject("function_call")) {  // what "tool_calls" replaced
    Fields function(*call, fields.PathOf("function_call"), fields.error());
    message.tool_calls.push_back(GetFunction(function));
  }
  fields.Get("tool_call_id", message.tool_call_id);
  if (!fields.Take("reasoning_content", message.thinking)) fields.Take("reasoning", message.thinking);
  if (message.role == "assistant") omitted.AnswerFollows();
  Content(fields, message, model, omitted).Get();
  return message;
}

}  // namespace

std::vector<Message> GetMessages(Fields& body, const std::string& model, ImageUse& images,
                                 std::vector<std::string>& unknown) {
  OmittedContent omitted;
  std::vector<Message> messages =
      MessageList(body).Get([&](Fields& message) { return GetMessage(message, model, omitted); });
  omitted.Finish(body, unknown);
  images = omitted.images();
  if (messages.empty()) body.Reject("messages", "must be a non-empty array");
  return messages;
}

}  // namespace quire::api::openai
