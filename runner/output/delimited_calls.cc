// Calls whose parts stand between markers of their own, mostly special tokens.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "api/json/read.h"
#include "runner/output/text.h"
#include "runner/output/tool_call_syntax.h"

namespace quire::runner::output {
namespace {

constexpr std::string_view kFence = "```";

struct Delimiters {
  std::string_view begin;      // of a call
  std::string_view arguments;  // behind what names the call
  std::string_view end;        // of a call; the last one may be missing
};

// The name and perhaps the id of a call from what stands before its arguments.
using NameOf = std::optional<api::ToolCall> (*)(std::string_view head);

// Whether `text` goes on with `mark` or may do so: kCalls, and `text` is behind it; or kIncomplete.
Reading Skip(std::string_view mark, std::string_view& text) {
  if (text.starts_with(mark)) {
    text.remove_prefix(mark.size());
    return Reading::kCalls;
  }
  return IsBeginOf(text, mark) ? Reading::kIncomplete : Reading::kMalformed;
}

// The JSON object that comes next, compact; `text` is behind it.
Reading SkipObject(std::string_view& text, std::string* object) {
  text = TrimLeft(text);
  if (text.empty()) return Reading::kIncomplete;
  if (text.front() != '{') return Reading::kMalformed;
  ValueEnd end;
  const auto state = end.Advance(text);
  if (state == ValueEnd::State::kOpen) return Reading::kIncomplete;
  if (state == ValueEnd::State::kBroken) return Reading::kMalformed;
  const auto value = api::ReadJson(text.substr(0, end.size()));
  if (!value) return Reading::kMalformed;
  *object = api::DumpJson(*value);
  text = TrimLeft(text.substr(end.size()));
  return Reading::kCalls;
}

// `head` is what comes before the object, `text` begins with the object.
Reading FinishCall(const Delimiters& marks, NameOf name_of, std::string_view head, std::string_view& text,
                   std::vector<api::ToolCall>& calls) {
  auto call = name_of(Trim(head));
  if (!call || call->name.empty()) return Reading::kMalformed;
  Reading done = SkipObject(text, &call->arguments_json);
  if (done != Reading::kCalls) return done;
  if (text.starts_with(kFence)) text = TrimLeft(text.substr(kFence.size()));
  if (!text.empty()) {
    done = Skip(marks.end, text);
    if (done != Reading::kCalls) return done;
  }
  calls.push_back(*std::move(call));
  text = TrimLeft(text);
  return Reading::kCalls;
}

Reading ReadDelimited(const Delimiters& marks, NameOf name_of, std::string_view text,
                      std::vector<api::ToolCall>& calls) {
  std::vector<api::ToolCall> read;
  text = TrimLeft(text);
  if (text.empty()) return Reading::kIncomplete;
  while (!text.empty()) {
    Reading done = Skip(marks.begin, text);
    if (done != Reading::kCalls) return done;
    const size_t at = text.find(marks.arguments);
    if (at == std::string_view::npos) {
      return text.find('{') == std::string_view::npos ? Reading::kIncomplete : Reading::kMalformed;
    }
    size_t from = at + marks.arguments.size();
    // DeepSeek V3 has the type of the tool before the mark, and the name and a fence behind it.
    const size_t object = text.find('{', from);
    if (object == std::string_view::npos) return Reading::kIncomplete;
    const size_t named = TrimRight(text.substr(0, object)).size() > from ? object : at;
    const std::string_view head = text.substr(0, named);
    text = text.substr(named == object ? object : from);
    done = FinishCall(marks, name_of, head, text, read);
    if (done != Reading::kCalls) return done;
  }
  std::ranges::move(read, std::back_inserter(calls));
  return Reading::kCalls;
}

constexpr Delimiters kDeepSeek = {"<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"};
constexpr Delimiters kKimi = {"<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"};
constexpr Delimiters kSolar = {"<|tool_call:begin|>", "<|tool_call:args|>", "<|tool_call:end|>"};

std::optional<api::ToolCall> DeepSeekName(std::string_view head) {
  const size_t type = head.find(kDeepSeek.arguments);
  if (type == std::string_view::npos)
    return api::ToolCall{.id = {}, .name = std::string(head), .arguments_json = {}};
  head = TrimLeft(head.substr(type + kDeepSeek.arguments.size()));
  const size_t fence = head.find(kFence);
  if (fence != std::string_view::npos) head = head.substr(0, fence);
  return api::ToolCall{.id = {}, .name = std::string(Trim(head)), .arguments_json = {}};
}

std::optional<api::ToolCall> KimiName(std::string_view head) {
  if (head.find(kKimi.arguments) != std::string_view::npos) return std::nullopt;
  std::string_view name = head;
  constexpr std::string_view kFunctions = "functions.";
  if (name.starts_with(kFunctions)) name.remove_prefix(kFunctions.size());
  return api::ToolCall{
      .id = std::string(head), .name = std::string(name.substr(0, name.rfind(':'))), .arguments_json = {}};
}

std::optional<api::ToolCall> SolarName(std::string_view head) {
  constexpr std::string_view kName = "<|tool_call:name|>";
  const size_t at = head.find(kName);
  if (at == std::string_view::npos || head.find(kSolar.arguments) != std::string_view::npos)
    return std::nullopt;
  return api::ToolCall{.id = std::string(Trim(head.substr(0, at))),
                       .name = std::string(Trim(head.substr(at + kName.size()))),
                       .arguments_json = {}};
}

}  // namespace

Reading ReadDeepSeekCalls(std::string_view text, const Tools&, std::vector<api::ToolCall>& calls) {
  return ReadDelimited(kDeepSeek, DeepSeekName, text, calls);
}

Reading ReadKimiCalls(std::string_view text, const Tools&, std::vector<api::ToolCall>& calls) {
  return ReadDelimited(kKimi, KimiName, text, calls);
}

Reading ReadSolarCalls(std::string_view text, const Tools&, std::vector<api::ToolCall>& calls) {
  return ReadDelimited(kSolar, SolarName, text, calls);
}

}  // namespace quire::runner::output
