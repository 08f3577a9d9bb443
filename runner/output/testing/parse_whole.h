// Shared by the tests of this folder: answers parsed from given chunks, in a form that is easy to read.
#pragma once

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "api/json/testing/tools_of.h"
#include "runner/output/format.h"

namespace quire::runner::output::testing {

inline const std::vector<api::Tool>& SomeTools() {
  static const std::vector<api::Tool> tools = api::testing::ToolsOf(R"([
  {"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":{
    "city":{"type":"string"},"days":{"type":"integer"},"unit":{"enum":["celsius","fahrenheit"]}}}}},
  {"type":"function","function":{"name":"add","parameters":{"type":"object","properties":{
    "a":{"type":"number"},"b":{"type":["number","null"]},"opts":{"type":"object"},"tags":{"type":"array"},
    "note":{"type":["string","null"]},"exact":{"type":"boolean"},"any":{}}}}},
  {"type":"function","function":{"name":"now"}}])");
  return tools;
}

// A model whose template says this and whose vocabulary has these tokens.
inline Format FormatOf(std::string_view chat_template, std::vector<std::string> tokens = {}) {
  return Detect(chat_template, [&](std::string_view text) {
    for (const auto& token : tokens) {
      if (token == text) return true;
    }
    return false;
  });
}

// The client's complete reply.
struct Answer {
  std::string text;
  std::string thinking;
  std::vector<std::string> calls;      // name + arguments
  std::vector<std::string> arguments;  // of the same calls
  std::vector<std::string> ids;
  std::string order;  // t, T (thinking) and c, runs of one kind as one letter

  bool operator==(const Answer& other) const {
    return text == other.text && thinking == other.thinking && calls == other.calls && order == other.order;
  }
};

inline void Add(Answer& answer, const OutputChunks& chunks) {
  for (const OutputChunk& chunk : chunks) {
    char kind = 'c';
    if (chunk.kind == OutputChunk::Kind::kCall) {
      answer.calls.push_back(chunk.call.name + chunk.call.arguments_json);
      answer.arguments.push_back(chunk.call.arguments_json);
      answer.ids.push_back(chunk.call.id);
    } else {
      kind = chunk.kind == OutputChunk::Kind::kText ? 't' : 'T';
      (kind == 't' ? answer.text : answer.thinking) += chunk.text;
    }
    if (kind == 'c' || answer.order.empty() || answer.order.back() != kind) answer.order += kind;
  }
}

inline Answer ParseChunks(Parser& parser, const std::vector<std::string>& texts) {
  Answer answer;
  OutputChunks chunks;
  for (const auto& text : texts) parser.Feed(text, chunks);
  parser.Finish(chunks);
  Add(answer, chunks);
  return answer;
}

inline Answer Parse(const Format& format, const std::string& text, bool thinking_open = false) {
  const auto parser = MakeParser(
      {.format = format, .thinking_open = thinking_open, .expects_calls = true, .tools = SomeTools()});
  return ParseChunks(*parser, {text});
}

}  // namespace quire::runner::output::testing
