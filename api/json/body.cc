#include "api/json/body.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/base/ascii.h"
#include "api/base/duration.h"
#include "api/base/limits.h"
#include "api/json/read.h"

namespace quire::api {

Result<Json> ReadBody(std::string_view body) {
  if (body.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    return Fail(ErrorCode::kInvalidArgument, "missing request body");
  }
  if (body.size() > kBodyBytesMax) {
    return Fail(ErrorCode::kTooLarge, fmt::format("request body is larger than {} bytes", kBodyBytesMax));
  }
  auto value = ReadJson(body);
  if (value && !value->is_object()) {
    return Fail(ErrorCode::kInvalidArgument, "request body must be a JSON object");
  }
  return value;
}

std::string GetModelIfAny(Fields& body, bool name_too) {
  constexpr size_t kBytesMax = 4096;
  std::string model;
  body.Get("model", model);
  if (model.empty() && name_too) body.Get("name", model);
  if (model.size() <= kBytesMax) return model;
  if (body.ok()) body.error() = Error{ErrorCode::kInvalidArgument, "invalid model name", "model"};
  return {};
}

std::string GetModel(Fields& body, bool name_too) {
  std::string model = GetModelIfAny(body, name_too);
  if (model.empty() && body.ok())
    body.error() = Error{ErrorCode::kInvalidArgument, "model is required", "model"};
  return model;
}

namespace {

// The whole text as a finite number.
std::optional<double> ParseNumber(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::chrono::nanoseconds> GetKeepAlive(Fields& body) {
  constexpr std::string_view kName = "keep_alive";
  constexpr double kSecondsMax = 9.2e9;  // what 64 bits of nanoseconds hold
  const Json* value = body.Find(kName);
  if (value == nullptr) return std::nullopt;
  // Settings of programs and shells send the number of seconds as text.
  std::optional<double> seconds;
  if (value->is_number()) seconds = value->get<double>();
  if (value->is_string()) {
    const auto& text = value->get_ref<const std::string&>();
    seconds = ParseNumber(text);
    if (!seconds) {
      if (const auto duration = ParseGoDuration(text)) return duration;
    }
  }
  if (!seconds) {
    body.Reject(kName, "must be a duration such as \"5m\", or a number of seconds");
    return std::nullopt;
  }
  if (*seconds < 0) return std::chrono::nanoseconds(-1);
  if (*seconds > kSecondsMax) {
    body.Reject(kName, fmt::format("must be at most {:g} seconds", kSecondsMax));
    return std::nullopt;
  }
  return std::chrono::nanoseconds(static_cast<int64_t>(*seconds * 1e9));
}

std::string GetCacheSalt(Fields& body) {
  std::string salt;
  body.Get("cache_salt", salt);
  if (salt.size() > kCacheSaltBytesMax) {
    body.Reject("cache_salt", fmt::format("must have at most {} bytes", kCacheSaltBytesMax));
  }
  return salt;
}

int32_t GetTopLogprobs(Fields& body) {
  int32_t top = 0;
  body.Get("top_logprobs", top, 0, kTopLogprobsMax);
  return top;
}

const Json* MessageList::FindMessages(size_t& count) {
  const Json* list = body_.FindArray("messages");
  count = list == nullptr ? 0 : list->size();
  return list;
}

const Json& MessageList::At(const Json& list, size_t i) { return list[i]; }

bool MessageList::Count(const Message& message) {
  counted_ += 1 + message.tool_calls.size();
  if (counted_ > kMessagesMax) {
    body_.Reject("messages", fmt::format("contains more than {} messages and tool calls", kMessagesMax),
                 ErrorCode::kTooLarge);
  }
  return body_.ok();
}

std::string GetRole(Fields& message) {
  std::string role;
  if (!message.Get("role", role)) message.Reject("role", "is required and must be of type string");
  return AsciiLower(role);
}

namespace {

// The JSON text of an object, whichever of its two forms it came in. What a model wrote malformed stays as it
// is: a client sends its history back in every later request.
std::string GetArguments(Fields& function) {
  const Json* arguments = function.Find("arguments");
  if (arguments == nullptr) return "{}";
  return arguments->is_string() ? ArgumentsOfText(arguments->get<std::string>()) : DumpJson(*arguments);
}

}  // namespace

std::string ArgumentsOfText(std::string text) {
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return "{}";
  const auto parsed = ReadJson(text);
  return parsed && parsed->is_object() ? DumpJson(*parsed) : text;
}

ToolCall GetFunction(Fields& function) {
  ToolCall call;
  if (!function.Get("name", call.name)) function.Reject("name", "is required and must be of type string");
  call.arguments_json = GetArguments(function);
  return call;
}

std::vector<ToolCall> GetToolCalls(Fields& message) {
  std::vector<ToolCall> calls;
  const Json* list = message.FindArray("tool_calls");
  if (list == nullptr) return calls;
  for (const Json& value : *list) {
    Fields call(value, message.PathOf(fmt::format("tool_calls[{}]", calls.size())), message.error());
    ToolCall& out = calls.emplace_back();
    std::string id;
    call.Get("id", id);
    if (const Json* function = call.FindObject("function")) {
      Fields fields(*function, call.PathOf("function"), message.error());
      out = GetFunction(fields);
    } else {
      call.Reject("function", "is required and must be of type object");
    }
    out.id = std::move(id);
    if (!message.ok()) break;
  }
  return calls;
}

bool HasValue(Fields& fields, std::string_view name) {
  const Json* value = fields.Find(name);
  if (value == nullptr) return false;
  if (value->is_boolean()) return value->get<bool>();
  if (value->is_string()) return !value->get_ref<const std::string&>().empty();
  return !value->is_structured() || !value->empty();
}

}  // namespace quire::api
