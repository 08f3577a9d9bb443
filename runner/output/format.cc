#include "runner/output/format.h"

#include <array>

#include "runner/output/answer_markup.h"
#include "runner/output/harmony_parser.h"
#include "runner/output/tagged_parser.h"
#include "runner/output/tool_call_syntax.h"

namespace quire::runner::output {
namespace {

constexpr std::array<Replacement, 1> kGemmaInner = {{{"<|\"|>", "\""}}};
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

// A family is known by a text that stands in its chat template or, where no template tells, by a token of its
// vocabulary. The first line that fits counts.
struct Family {
  std::string_view name;
  std::string_view mark;
  ToolCallSyntax calls;
};
constexpr std::array<Family, 9> kFamilies = {{
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
}};

constexpr std::array<ThinkingForm, 4> kThinking = {{
    {"<|channel>thought", "<channel|>"},
    {"[THINK]", "[/THINK]"},
    {"<|START_THINKING|>", "<|END_THINKING|>"},
    {"<think>", "</think>"},
}};

// Harmony's channels are its own; Gemma's marker differs by one character.
constexpr std::string_view kHarmonyMark = "<|channel|>";

// What kHarmonyCalls begins with.
constexpr std::string_view kHarmonyCallMarker = "<|channel|>commentary to=";
constexpr ToolCallTemplate kHarmonyCalls = {
    "", "<|channel|>commentary to=functions.", " <|constrain|>json<|message|>", "", "", ""};

}  // namespace

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
    return format;
  }
  for (const bool by_token : {false, true}) {
    for (const Family& family : kFamilies) {
      if (format.calls != nullptr || !(by_token ? has_token(family.mark) : in_template(family.mark)))
        continue;
      format.family = family.name;
      format.calls = &family.calls;
    }
    for (const ThinkingForm& thinking : kThinking) {
      const bool known =
          by_token ? has_token(thinking.begin) && has_token(thinking.end) : in_template(thinking.begin);
      if (format.thinking != nullptr || !known) continue;
      format.thinking = &thinking;
      format.can_think = !by_token;
    }
  }
  return format;
}

std::unique_ptr<Parser> MakeParser(const ParserSetup& setup) {
  const Format& format = setup.format;
  if (format.harmony) return std::make_unique<HarmonyParser>(setup.continues, setup.expects_calls);
  return std::make_unique<TaggedParser>(setup.expects_calls ? format.calls : nullptr, format.thinking,
                                        setup.thinking_open, Tools(setup.tools));
}

AnswerMarkup MarkupOf(const Format& format) {
  AnswerMarkup markup;
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
  }
  return markup;
}

}  // namespace quire::runner::output
