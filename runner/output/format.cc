#include "runner/output/format.h"

#include <array>
#include <utility>

#include "runner/output/call_form.h"
#include "runner/output/harmony_parser.h"
#include "runner/output/spelling.h"
#include "runner/output/tagged_parser.h"

namespace quire::runner::output {
namespace {

constexpr std::array<Replacement, 1> kGemmaInner = {{{"<|\"|>", "\""}}};
constexpr std::array<Replacement, 2> kMistralInner = {{{"[ARGS]", ""}, {"[CALL_ID]", " "}}};

// Calls as JSON: {"name", "arguments"}, with what stands around them.
constexpr CallSpelling JsonCalls(std::string_view open, std::string_view between, std::string_view close) {
  return {open, R"({"name": ")", R"(", "arguments": )", "}", between, close, true};
}

// The same of models that write calls as Python, where that is possible.
constexpr CallSpelling PythonCalls(std::string_view open, std::string_view between, std::string_view close) {
  CallSpelling spelling = JsonCalls(open, between, close);
  spelling.python = true;
  return spelling;
}

// A family is known by a text that stands in its chat template or, where no template tells, by a token of its
// vocabulary. The first line that fits counts.
struct Family {
  std::string_view name;
  std::string_view mark;
  CallForm calls;
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

constexpr CallSpelling kHarmonyCalls = {
    "", "<|channel|>commentary to=functions.", " <|constrain|>json<|message|>", "", "", ""};

}  // namespace

Format Detect(std::string_view chat_template, const std::function<bool(std::string_view)>& has_token) {
  const auto in_template = [&](std::string_view text) {
    return chat_template.find(text) != std::string_view::npos;
  };
  Format format;
  format.family = "plain";
  format.takes_tools = in_template("tools");
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
  if (format.harmony) return std::make_unique<HarmonyParser>(setup.continues, setup.tools);
  return std::make_unique<TaggedParser>(setup.tools ? format.calls : nullptr, format.thinking,
                                        setup.thinking_open, Tools(setup.tools_json));
}

AnswerSpelling SpellingOf(const Format& format) {
  AnswerSpelling spelling;
  if (format.harmony) {
    spelling.calls = &kHarmonyCalls;
    spelling.text_begin = "<|channel|>final<|message|>";
    spelling.thinking_begin = "<|channel|>analysis<|message|>";
    spelling.thinking_end = "<|end|>";
    spelling.after_thinking = "<|start|>assistant";
    return spelling;
  }
  if (format.calls != nullptr) {
    spelling.calls = &format.calls->spelling;
    if (!format.calls->bare) spelling.calls_begin = format.calls->begin;
  }
  if (format.thinking != nullptr) {
    spelling.thinking_begin = format.thinking->begin;
    spelling.thinking_end = format.thinking->end;
  }
  return spelling;
}

}  // namespace quire::runner::output
