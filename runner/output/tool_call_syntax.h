// Tool call syntaxes of models, and their parsers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "api/base/request.h"
#include "runner/output/answer_markup.h"
#include "runner/output/tools.h"

namespace quire::runner::output {

enum class Reading : uint8_t {
  kCalls,       // at least one, and nothing else
  kIncomplete,  // more text could make it whole
  kMalformed,   // no further text could
};

// Reads the text of calls, without the markers around it. Appends to `calls` only with kCalls. Ids are those
// that the text brings, mostly none; arguments are JSON objects.
using ReadCalls = Reading (*)(std::string_view text, const Tools& tools, std::vector<api::ToolCall>& calls);

// {"name", "arguments"} or {"name", "parameters"}, "tool_name" for "name" too, one, several, or an array of
// them.
Reading ReadJsonCalls(std::string_view text, const Tools& tools, std::vector<api::ToolCall>& calls);
// The content of <tool_call>: JSON as above, <function=f><parameter=k>v</parameter></function>, or
// f<arg_key>k</arg_key><arg_value>v</arg_value>.
Reading ReadTaggedCalls(std::string_view text, const Tools& tools, std::vector<api::ToolCall>& calls);
// f>{"k": v}: what follows "<function=".
Reading ReadFunctionCall(std::string_view text, const Tools& tools, std::vector<api::ToolCall>& calls);
// [f(k="v", n=1), g()] as in Python, or without brackets a line each; or JSON as above.
Reading ReadPythonicCalls(std::string_view text, const Tools& tools, std::vector<api::ToolCall>& calls);
// call:f{k:<|"|>v<|"|>,n:1} or call:f{"k":"v"}
Reading ReadGemmaCalls(std::string_view text, const Tools& tools, std::vector<api::ToolCall>& calls);
// The same with <escape> around texts: FunctionGemma.
Reading ReadFunctionGemmaCalls(std::string_view text, const Tools& tools, std::vector<api::ToolCall>& calls);
// [{"name", "arguments", "id"}], or f[ARGS]{"k": v}, or f[CALL_ID]id[ARGS]{"k": v}
Reading ReadMistralCalls(std::string_view text, const Tools& tools, std::vector<api::ToolCall>& calls);
// [{"f": {"k": v}}]: Apertus.
Reading ReadKeyedCalls(std::string_view text, const Tools& tools, std::vector<api::ToolCall>& calls);
// The parts of a call between special tokens. DeepSeek V3.1: f, arguments; V3 and R1: "function", f and the
// arguments in a Markdown fence. Kimi K2: functions.f:0, which is the id too, arguments. Solar: id, f,
// arguments.
Reading ReadDeepSeekCalls(std::string_view text, const Tools& tools, std::vector<api::ToolCall>& calls);
Reading ReadKimiCalls(std::string_view text, const Tools& tools, std::vector<api::ToolCall>& calls);
Reading ReadSolarCalls(std::string_view text, const Tools& tools, std::vector<api::ToolCall>& calls);
// <invoke name="f"><parameter name="k">v</parameter></invoke>, one or several; or JSON as above.
Reading ReadInvokeCalls(std::string_view text, const Tools& tools, std::vector<api::ToolCall>& calls);
// The same of DeepSeek V3.2, whose parameters say with string="true" that they are texts; every tag begins
// with ｜DSML｜.
Reading ReadDsmlCalls(std::string_view text, const Tools& tools, std::vector<api::ToolCall>& calls);

// Where a call's text ends.
enum class CallEnd : uint8_t {
  kMarker,     // at ToolCallSyntax::end
  kValue,      // with its JSON object
  kNamedValue  // with its JSON array or object, before which a name may stand
};

struct Replacement {
  std::string_view from;
  std::string_view to;
};

struct ToolCallSyntax {
  std::string_view begin;
  CallEnd ends = CallEnd::kMarker;
  std::string_view end;  // with kMarker
  ReadCalls read = nullptr;
  bool unmarked = false;                    // the model writes its calls without the marker
  bool short_id = false;                    // the template takes ids of nine letters and digits only
  std::span<const Replacement> inner = {};  // markers within a call, as text shows them
  ToolCallTemplate call_template = {};      // for constrained calls
};

inline constexpr size_t kJsonDepthMax = 500;  // of values in calls

// Finds the end of one JSON value in streamed text.
class ValueEnd {
 public:
  enum class State : uint8_t { kOpen, kEnded, kBroken };
  // Goes on where the last call stopped; `text` is the same text, or longer. REQUIRES: it begins with { or [.
  State Advance(std::string_view text);
  size_t size() const { return at_; }  // of the value, once it ended
  bool ended() const { return at_ > 0 && open_.empty(); }

 private:
  size_t at_ = 0;
  std::vector<char> open_;
  bool in_string_ = false;
  bool escaped_ = false;
};

}  // namespace quire::runner::output
