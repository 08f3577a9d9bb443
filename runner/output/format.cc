#include "runner/output/format.h"

#include <algorithm>
#include <array>

#include "runner/output/answer_markup.h"
#include "runner/output/harmony_parser.h"
#include "runner/output/tagged_parser.h"
#include "runner/output/tool_call_syntax.h"
#include "runner/output/write_calls.h"

namespace quire::runner::output {
namespace {

constexpr std::array<Replacement, 1> kGemmaInner = {{{"<|\"|>", "\""}}};
constexpr std::array<Replacement, 1> kFunctionGemmaInner = {{{"<escape>", "\""}}};
constexpr std::array<Replacement, 3> kDeepSeekInner = {
    {{"<｜tool▁call▁begin｜>", ""}, {"<｜tool▁sep｜>", " "}, {"<｜tool▁call▁end｜>", ""}}};
constexpr std::array<Replacement, 1> kDsmlInner = {{{"｜DSML｜", ""}}};
constexpr std::array<Replacement, 3> kKimiInner = {
    {{"<|tool_call_begin|>", ""}, {"<|tool_call_argument_begin|>", " "}, {"<|tool_call_end|>", ""}}};
constexpr std::array<Replacement, 4> kSolarInner = {{{"<|tool_call:begin|>", ""},
                                                     {"<|tool_call:name|>", " "},
                                                     {"<|tool_call:args|>", " "},
                                                     {"<|tool_call:end|>", ""}}};
constexpr std::array<Replacement, 2> kMistralInner = {{{"[ARGS]", ""}, {"[CALL_ID]", " "}}};

// Calls as JSON: {"name", "arguments"}, with what stands around them.
constexpr ToolCallTemplate JsonCalls(std::string_view open, std::string_view between,
                                     std::string_view close) {
  return {open, R"({"name": ")", R"(", "arguments": )", "}", between, close, true};
}

// The same of models that write calls as Python, where that is possible.
constexpr ToolCallTemplate PythonCalls(std::string_view open, std::string_view between,
                                       std::string_view close) {
  ToolCallTemplate call_template = JsonCalls(open, between, close);
  call_template.python = true;
  return call_template;
}

// JSON calls of models that prefer arguments between tags.
constexpr ToolCallTemplate TaggedCalls(std::string_view open, std::string_view between,
                                       std::string_view close, const TaggedArguments* tagged) {
  ToolCallTemplate call_template = JsonCalls(open, between, close);
  call_template.tagged = tagged;
  return call_template;
}

constexpr TaggedArguments kFunctionArguments = {"<function=",       ">\n",        "<parameter=", ">\n",
                                                "\n</parameter>\n", "</function>"};
constexpr TaggedArguments kKeyArguments = {"", "\n", "<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n",
                                           ""};
constexpr TaggedArguments kInvokeArguments = {"<invoke name=\"", "\">\n",    "<parameter name=\"", "\">",
                                              "</parameter>\n",  "</invoke>"};

constexpr TaggedArguments kDsmlArguments = {"<｜DSML｜invoke name=\"",    "\">\n",
                                            "<｜DSML｜parameter name=\"", "\" string=\"false\">",
                                            "</｜DSML｜parameter>\n",     "</｜DSML｜invoke>",
                                            "\" string=\"true\">"};

// A family is known by a text that stands in its chat template, with another one where it has one, or, where
// no template tells, by a token of its vocabulary. The first line that fits counts.
struct Family {
  std::string_view name;
  std::string_view mark;
  ToolCallSyntax calls;
  std::string_view with = {};
};
constexpr std::array kFamilies = std::to_array<Family>({
    {"gemma4",
     "<|tool_call>",
     {"<|tool_call>",
      CallEnd::kMarker,
      "<tool_call|>",
      ReadGemmaCalls,
      false,
      false,
      kGemmaInner,
      {"<|tool_call>", "call:", "", "", "<tool_call|><|tool_call>", "<tool_call|>"}}},
    {"mistral",
     "[ARGS]",
     {"[TOOL_CALLS]",
      CallEnd::kNamedValue,
      "",
      ReadMistralCalls,
      false,
      true,
      kMistralInner,
      {"[TOOL_CALLS]", "", "[ARGS]", "", "[TOOL_CALLS]", ""}}},
    {"mistral",
     "[TOOL_CALLS]",
     {"[TOOL_CALLS]", CallEnd::kNamedValue, "", ReadMistralCalls, false, true, kMistralInner,
      JsonCalls("[TOOL_CALLS][", ", ", "]")}},
    {"phi4",
     "<|/tool_call|>",
     {"<|tool_call|>",
      CallEnd::kMarker,
      "<|/tool_call|>",
      ReadJsonCalls,
      false,
      false,
      {},
      JsonCalls("<|tool_call|>[", ", ", "]<|/tool_call|>")}},
    {"granite3",
     "<|tool_call|>",
     {"<|tool_call|>",
      CallEnd::kNamedValue,
      "",
      ReadJsonCalls,
      false,
      false,
      {},
      JsonCalls("<|tool_call|>[", ", ", "]")}},
    {"glm",
     "<arg_key>",
     {"<tool_call>",
      CallEnd::kMarker,
      "</tool_call>",
      ReadTaggedCalls,
      false,
      false,
      {},
      TaggedCalls("<tool_call>", "</tool_call>\n<tool_call>", "</tool_call>", &kKeyArguments)}},
    {"qwen3-coder",
     "<function=",
     {"<tool_call>",
      CallEnd::kMarker,
      "</tool_call>",
      ReadTaggedCalls,
      false,
      false,
      {},
      TaggedCalls("<tool_call>\n", "\n</tool_call>\n<tool_call>\n", "\n</tool_call>", &kFunctionArguments)},
     "<tool_call>"},
    {"seed-oss",
     "<seed:tool_call>",
     {"<seed:tool_call>",
      CallEnd::kMarker,
      "</seed:tool_call>",
      ReadTaggedCalls,
      false,
      false,
      {},
      TaggedCalls("<seed:tool_call>\n", "\n</seed:tool_call>\n<seed:tool_call>\n", "\n</seed:tool_call>",
                  &kFunctionArguments)}},
    {"minimax",
     "<minimax:tool_call>",
     {"<minimax:tool_call>",
      CallEnd::kMarker,
      "</minimax:tool_call>",
      ReadInvokeCalls,
      false,
      false,
      {},
      TaggedCalls("<minimax:tool_call>\n", "\n", "\n</minimax:tool_call>", &kInvokeArguments)}},
    {"deepseek3.2",
     "｜DSML｜",
     {"<｜DSML｜function_calls>", CallEnd::kMarker, "</｜DSML｜function_calls>", ReadDsmlCalls, false, false,
      kDsmlInner,
      TaggedCalls("<｜DSML｜function_calls>\n", "\n", "\n</｜DSML｜function_calls>", &kDsmlArguments)}},
    {"deepseek3",
     "<｜tool▁sep｜>",
     {"<｜tool▁calls▁begin｜>",
      CallEnd::kMarker,
      "<｜tool▁calls▁end｜>",
      ReadDeepSeekCalls,
      false,
      false,
      kDeepSeekInner,
      {"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>", "function<｜tool▁sep｜>", "\n```json\n",
       "\n```<｜tool▁call▁end｜>", "\n<｜tool▁call▁begin｜>", "<｜tool▁calls▁end｜>"}},
     "```json"},
    {"deepseek3.1",
     "<｜tool▁sep｜>",
     {"<｜tool▁calls▁begin｜>",
      CallEnd::kMarker,
      "<｜tool▁calls▁end｜>",
      ReadDeepSeekCalls,
      false,
      false,
      kDeepSeekInner,
      {"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>", "", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>",
       "<｜tool▁call▁begin｜>", "<｜tool▁calls▁end｜>"}}},
    {"kimi-k2",
     "<|tool_call_begin|>",
     {"<|tool_calls_section_begin|>",
      CallEnd::kMarker,
      "<|tool_calls_section_end|>",
      ReadKimiCalls,
      false,
      false,
      kKimiInner,
      {"<|tool_calls_section_begin|><|tool_call_begin|>", "functions.", ":\x1f<|tool_call_argument_begin|>",
       "<|tool_call_end|>", "<|tool_call_begin|>", "<|tool_calls_section_end|>"}}},
    {"solar",
     "<|tool_call:begin|>",
     {"<|tool_calls|>",
      CallEnd::kMarker,
      "<|calls|>",
      ReadSolarCalls,
      false,
      false,
      kSolarInner,
      {"<|tool_calls|>", "<|tool_call:begin|>call\x1f<|tool_call:name|>", "<|tool_call:args|>",
       "<|tool_call:end|>", "\n", "<|calls|>"}}},
    {"command-r7b",
     "<|START_ACTION|>",
     {"<|START_ACTION|>",
      CallEnd::kMarker,
      "<|END_ACTION|>",
      ReadJsonCalls,
      false,
      false,
      {},
      {"<|START_ACTION|>[\n    ", "{\"tool_call_id\": \"\x1f\", \"tool_name\": \"", R"(", "parameters": )",
       "}", ",\n    ", "\n]<|END_ACTION|>", true}}},
    {"apertus",
     "<|tools_prefix|>",
     {"<|tools_prefix|>",
      CallEnd::kMarker,
      "<|tools_suffix|>",
      ReadKeyedCalls,
      false,
      false,
      {},
      {"<|tools_prefix|>[", R"({")", R"(": )", "}", ", ", "]<|tools_suffix|>", true}}},
    {"gigachat",
     "<|function_call|>",
     {"<|function_call|>",
      CallEnd::kValue,
      "",
      ReadJsonCalls,
      false,
      false,
      {},
      JsonCalls("<|function_call|>", "", "")}},
    {"qwen",
     "<tool_call>",
     {"<tool_call>",
      CallEnd::kMarker,
      "</tool_call>",
      ReadTaggedCalls,
      false,
      false,
      {},
      JsonCalls("<tool_call>\n", "\n</tool_call>\n<tool_call>\n", "\n</tool_call>")}},
    {"functionary",
     "<function=",
     {"<function=",
      CallEnd::kMarker,
      "</function>",
      ReadFunctionCall,
      false,
      false,
      {},
      {"<function=", "", ">", "", "</function><function=", "</function>"}}},
    {"nemotron",
     "<TOOLCALL>",
     {"<TOOLCALL>",
      CallEnd::kMarker,
      "</TOOLCALL>",
      ReadJsonCalls,
      false,
      false,
      {},
      JsonCalls("<TOOLCALL>[", ", ", "]</TOOLCALL>")}},
    {"llama3",
     "<|python_tag|>",
     {"<|python_tag|>",
      CallEnd::kValue,
      "",
      ReadJsonCalls,
      true,
      false,
      {},
      {"", R"({"name": ")", R"(", "parameters": )", "}", "", "", true}}},
    {"lfm2",
     "<|tool_call_start|>",
     {"<|tool_call_start|>",
      CallEnd::kMarker,
      "<|tool_call_end|>",
      ReadPythonicCalls,
      false,
      false,
      {},
      PythonCalls("<|tool_call_start|>[", ", ", "]<|tool_call_end|>")}},
    {"olmo3",
     "<function_calls>",
     {"<function_calls>",
      CallEnd::kMarker,
      "</function_calls>",
      ReadPythonicCalls,
      false,
      false,
      {},
      PythonCalls("<function_calls>", "\n", "</function_calls>")}},
    {"functiongemma",
     "<start_function_call>",
     {"<start_function_call>",
      CallEnd::kMarker,
      "<end_function_call>",
      ReadFunctionGemmaCalls,
      false,
      false,
      kFunctionGemmaInner,
      {"<start_function_call>", "call:", "", "", "<end_function_call><start_function_call>",
       "<end_function_call>"}}},
});

constexpr std::array<ThinkingForm, 6> kThinking = {{
    {"<|channel>thought", "<channel|>"},
    {"[THINK]", "[/THINK]"},
    {"<|START_THINKING|>", "<|END_THINKING|>"},
    {"<seed:think>", "</seed:think>"},
    {"<think>", "</think>", "<response>", "</response>"},  // Granite 3
    {"<think>", "</think>"},
}};

// The text of Cohere's models: Command R7B, and later ones.
struct TextMarkers {
  std::string_view begin, end;
};
constexpr std::array<TextMarkers, 2> kTextMarkers = {
    {{"<|START_RESPONSE|>", "<|END_RESPONSE|>"}, {"<|START_TEXT|>", "<|END_TEXT|>"}}};

// Harmony's channels are its own; Gemma's marker differs by one character.
constexpr std::string_view kHarmonyMark = "<|channel|>";

// What kHarmonyCalls begins with.
constexpr std::string_view kHarmonyCallMarker = "<|channel|>commentary to=";
constexpr ToolCallTemplate kHarmonyCalls = {
    "", "<|channel|>commentary to=functions.", " <|constrain|>json<|message|>", "", "", ""};

void FindTokens(Format& format, const std::function<bool(std::string_view)>& has_token) {
  std::vector<std::string_view> markers = {format.text_begin, format.text_end};
  if (format.calls != nullptr) markers.insert(markers.end(), {format.calls->begin, format.calls->end});
  if (format.thinking != nullptr)
    markers.insert(markers.end(), {format.thinking->begin, format.thinking->end});
  if (format.harmony) markers.assign(kHarmonyMarkers.begin(), kHarmonyMarkers.end());
  for (const std::string_view marker : markers) {
    const std::string_view token = TokenOf(marker);
    if (!token.empty() && !format.HasTokenOf(marker) && has_token(token)) format.tokens.push_back(token);
  }
}

}  // namespace

std::string_view TokenOf(std::string_view marker) {
  const size_t end = marker.find_first_of(">]");
  return end == std::string_view::npos ? marker : marker.substr(0, end + 1);
}

bool IsMarkerToken(std::string_view token) {
  if (!token.starts_with('<') && !token.starts_with('[')) return false;
  const auto is = [token](std::string_view marker) { return TokenOf(marker) == token; };
  return std::ranges::any_of(kHarmonyMarkers, is) ||
         std::ranges::any_of(kTextMarkers,
                             [&](const auto& text) { return is(text.begin) || is(text.end); }) ||
         std::ranges::any_of(kThinking, [&](const auto& form) { return is(form.begin) || is(form.end); }) ||
         std::ranges::any_of(
             kFamilies, [&](const auto& family) { return is(family.calls.begin) || is(family.calls.end); });
}

bool Format::HasTokenOf(std::string_view marker) const {
  return std::ranges::find(tokens, TokenOf(marker)) != tokens.end();
}

Format Detect(std::string_view chat_template, const std::function<bool(std::string_view)>& has_token) {
  const auto in_template = [&](std::string_view text) {
    return chat_template.find(text) != std::string_view::npos;
  };
  Format format;
  format.family = "plain";
  format.takes_tools = in_template("tools");
  format.has_efforts = in_template("reasoning_effort") || in_template(kHarmonyMark);
  if (in_template(kHarmonyMark)) {
    format.family = "harmony";
    format.harmony = format.can_think = true;
    FindTokens(format, has_token);
    return format;
  }
  for (const TextMarkers& text : kTextMarkers) {
    if (!format.text_begin.empty() || !in_template(text.begin)) continue;
    format.text_begin = text.begin;
    format.text_end = text.end;
  }
  for (const bool by_token : {false, true}) {
    for (const Family& family : kFamilies) {
      const bool fits = by_token ? family.with.empty() && has_token(family.mark)
                                 : in_template(family.mark) && in_template(family.with);
      if (format.calls != nullptr || !fits) continue;
      format.family = family.name;
      format.calls = &family.calls;
    }
    for (const ThinkingForm& thinking : kThinking) {
      const bool known =
          by_token ? thinking.answer_begin.empty() && has_token(thinking.begin) && has_token(thinking.end)
                   : in_template(thinking.begin) && in_template(thinking.answer_begin);
      if (format.thinking != nullptr || !known) continue;
      format.thinking = &thinking;
      format.can_think = !by_token;
    }
  }
  FindTokens(format, has_token);
  return format;
}

const ToolCallSyntax& GenericCalls() { return std::ranges::find(kFamilies, "qwen", &Family::name)->calls; }

std::unique_ptr<Parser> MakeParser(const ParserSetup& setup) {
  if (setup.format.harmony) return std::make_unique<HarmonyParser>(setup);
  return std::make_unique<TaggedParser>(setup);
}

AnswerMarkup MarkupOf(const Format& format) {
  AnswerMarkup markup;
  markup.text_begin = format.text_begin;
  if (format.harmony) {
    markup.calls = &kHarmonyCalls;
    markup.call_marker = kHarmonyCallMarker;
    markup.text_begin = "<|channel|>final<|message|>";
    markup.thinking_begin = "<|channel|>analysis<|message|>";
    markup.thinking_end = "<|end|>";
    markup.after_thinking = "<|start|>assistant";
    return markup;
  }
  if (format.calls != nullptr) {
    markup.calls = &format.calls->call_template;
    markup.call_marker = format.calls->begin;
    if (!format.calls->unmarked) markup.calls_begin = format.calls->begin;
  }
  if (format.thinking != nullptr) {
    markup.thinking_begin = format.thinking->begin;
    markup.thinking_end = format.thinking->end;
    markup.answer_begin = format.thinking->answer_begin;
  }
  return markup;
}

}  // namespace quire::runner::output
