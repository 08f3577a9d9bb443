// libFuzzer: a byte that says which format, one that says how the text is cut, and the text of an answer. The
// output does not depend on the cuts; arguments of calls are JSON objects; what is valid UTF-8 stays valid.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/utf8.h"
#include "api/json/read.h"
#include "runner/output/testing/parse_whole.h"

namespace {

using namespace quire::runner::output;

void Require(bool condition) {
  if (!condition) std::abort();
}

// One format of each family, by what Detect() knows it by.
const std::vector<Format>& Formats() {
  static const std::vector<Format> formats = [] {
    std::vector<Format> all;
    all.push_back(testing::FormatOf("tools", {"<|tool_call_start|>", "<think>", "</think>"}));
    for (const std::string_view chat_template :
         {"tools <tool_call> <think>", "tools <|python_tag|>", "tools [TOOL_CALLS] [THINK]",
          "tools <|tool_call> <|channel>thought", "tools <|channel|>", "tools <function=", "tools <TOOLCALL>",
          "tools <|tool_call|> <|/tool_call|>", "<|START_THINKING|>", "tools", "plain",
          "tools <tool_call> <arg_key>", "tools <minimax:tool_call>", "tools <｜tool▁sep｜>",
          "tools <|tool_call_begin|>", "tools <|tool_call:begin|>",
          "tools <|START_ACTION|> <|START_RESPONSE|>", "tools <|tools_prefix|>", "tools <|tool_call|>"}) {
      all.push_back(testing::FormatOf(chat_template));
    }
    for (const std::string_view chat_template :
         {"tools <tool_call> <think>", "tools <|channel|>", "tools <TOOLCALL>",
          "tools <|tool_call|> <response> <think>"}) {
      all.push_back(testing::SpelledFormatOf(chat_template));
    }
    return all;
  }();
  return formats;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const std::vector<Format>& formats = Formats();
  const Format& format = formats[(data[0] & 0x3F) % formats.size()];
  const bool own_tokens = (data[1] & 0x80) != 0;
  const auto parse = [&](const std::vector<std::string>& texts) {
    const auto parser = MakeParser({.format = format,
                                    .thinking_open = (data[0] & 0x40) != 0,
                                    .continues = false,
                                    .expects_calls = (data[0] & 0x80) == 0,
                                    .forced = (data[0] & 0x80) == 0 && (data[1] & 0x40) != 0,
                                    .document = (data[1] & 0x20) != 0,
                                    .tools = testing::SomeTools()});
    return testing::ParseChunks(*parser, format, texts, own_tokens);
  };
  const testing::Answer whole = parse({text});
  const bool valid = quire::api::IsValidUtf8(text);
  Require(!valid || (quire::api::IsValidUtf8(whole.text) && quire::api::IsValidUtf8(whole.thinking)));
  for (const std::string& json : whole.arguments) {  // a name may have braces, too
    const auto arguments = quire::api::ReadJson(json);
    Require(arguments && arguments->is_object());
  }
  for (const std::string& id : whole.ids) Require(!id.empty());
  const size_t step = 1 + data[1] % 16;
  std::vector<std::string> cut;
  for (size_t at = 0, end = 0; at < text.size(); at = end) {
    while (end < text.size() && end < at + step) {
      const size_t token = own_tokens ? testing::TokenSize(format, std::string_view(text).substr(end)) : 0;
      end += std::max<size_t>(token, 1);
    }
    cut.push_back(text.substr(at, end - at));
  }
  Require(parse(cut) == whole);
  return 0;
}
