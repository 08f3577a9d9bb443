// Shared by the tests of this folder: answers parsed from given chunks, in a form that is easy to read.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "api/json/testing/tools_of.h"
#include "runner/output/format.h"
#include "runner/output/harmony_parser.h"
#include "runner/output/tool_call_syntax.h"

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

// A model whose template says this, whose family is known by these tokens, and whose markers are tokens.
inline Format FormatOf(std::string_view chat_template, std::vector<std::string> tokens = {}) {
  Format format = Detect(
      chat_template, [&](std::string_view text) { return std::ranges::find(tokens, text) != tokens.end(); });
  std::vector<std::string_view> markers = {format.text_begin, format.text_end};
  if (format.calls != nullptr) markers.insert(markers.end(), {format.calls->begin, format.calls->end});
  if (format.thinking != nullptr)
    markers.insert(markers.end(), {format.thinking->begin, format.thinking->end});
  if (format.harmony) markers.assign(kHarmonyMarkers.begin(), kHarmonyMarkers.end());
  for (const std::string_view marker : markers) {
    if (!marker.empty() && !format.HasTokenOf(marker)) format.tokens.push_back(TokenOf(marker));
  }
  return format;
}

// The same of a model that spells its markers with ordinary tokens.
inline Format SpelledFormatOf(std::string_view chat_template) {
  return Detect(chat_template, [](std::string_view) { return false; });
}

// How long the token is that begins here; 0: there is none.
inline size_t TokenSize(const Format& format, std::string_view text) {
  size_t size = 0;
  if (!text.starts_with('<') && !text.starts_with('[')) return size;  // no token begins with anything else
  for (const std::string_view token : format.tokens) {
    if (text.starts_with(token)) size = std::max(size, token.size());
  }
  return size;
}

// Feeds a text as its tokens come. Without `own_tokens` all of it is spelled with ordinary ones.
inline void Feed(Parser& parser, const Format& format, std::string_view text, OutputChunks& chunks,
                 bool own_tokens = true) {
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t size = own_tokens ? TokenSize(format, text.substr(at)) : 0;
    const std::string_view token = text.substr(at, size);
    at += std::max<size_t>(size, 1);
    if (size == 0 || !parser.IsMarker(token)) continue;
    parser.Feed(text.substr(begin, at - size - begin), chunks);
    parser.FeedToken(token, chunks);
    begin = at;
  }
  parser.Feed(text.substr(begin), chunks);
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

// Each of `texts` holds whole tokens.
inline Answer ParseChunks(Parser& parser, const Format& format, const std::vector<std::string>& texts,
                          bool own_tokens = true) {
  Answer answer;
  OutputChunks chunks;
  for (const auto& text : texts) Feed(parser, format, text, chunks, own_tokens);
  parser.Finish(chunks);
  Add(answer, chunks);
  return answer;
}

inline Answer Parse(const ParserSetup& setup, const std::string& text) {
  return ParseChunks(*MakeParser(setup), setup.format, {text});
}

inline Answer Parse(const Format& format, const std::string& text, bool thinking_open = false) {
  return Parse(
      {.format = format, .thinking_open = thinking_open, .expects_calls = true, .tools = SomeTools()}, text);
}

// What of the text `Parse` sees as markers is spelled with ordinary tokens.
inline Answer ParseSpelled(const Format& format, const std::string& text) {
  const auto parser = MakeParser({.format = format, .expects_calls = true, .tools = SomeTools()});
  return ParseChunks(*parser, format, {text}, /*own_tokens=*/false);
}

}  // namespace quire::runner::output::testing
