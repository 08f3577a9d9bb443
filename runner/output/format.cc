#include "runner/output/format.h"

#include <array>
#include <utility>

#include "runner/output/call_form.h"
#include "runner/output/harmony_parser.h"
#include "runner/output/tagged_parser.h"

namespace quire::runner::output {
namespace {

constexpr std::array<Replacement, 1> kGemmaInner = {{{"<|\"|>", "\""}}};
constexpr std::array<Replacement, 2> kMistralInner = {{{"[ARGS]", ""}, {"[CALL_ID]", " "}}};

// A family is known by a text that stands in its chat template or, where no template tells, by a token of its
// vocabulary. The first line that fits counts.
struct Family {
  std::string_view name;
  std::string_view mark;
  CallForm calls;
};
constexpr std::array<Family, 8> kFamilies = {{
    {"gemma4",
     "<|tool_call>",
     {"<|tool_call>", CallEnd::kMarker, "<tool_call|>", ReadGemmaCalls, false, false, kGemmaInner}},
    {"mistral",
     "[TOOL_CALLS]",
     {"[TOOL_CALLS]", CallEnd::kNamedValue, "", ReadMistralCalls, false, true, kMistralInner}},
    {"phi4", "<|/tool_call|>", {"<|tool_call|>", CallEnd::kMarker, "<|/tool_call|>", ReadJsonCalls}},
    {"qwen", "<tool_call>", {"<tool_call>", CallEnd::kMarker, "</tool_call>", ReadTaggedCalls}},
    {"functionary", "<function=", {"<function=", CallEnd::kMarker, "</function>", ReadFunctionCall}},
    {"nemotron", "<TOOLCALL>", {"<TOOLCALL>", CallEnd::kMarker, "</TOOLCALL>", ReadJsonCalls}},
    {"llama3", "<|python_tag|>", {"<|python_tag|>", CallEnd::kValue, "", ReadJsonCalls, true}},
    {"lfm2",
     "<|tool_call_start|>",
     {"<|tool_call_start|>", CallEnd::kMarker, "<|tool_call_end|>", ReadPythonicCalls}},
}};

constexpr std::array<ThinkingForm, 4> kThinking = {{
    {"<|channel>thought", "<channel|>"},
    {"[THINK]", "[/THINK]"},
    {"<|START_THINKING|>", "<|END_THINKING|>"},
    {"<think>", "</think>"},
}};

// Harmony's channels are its own; Gemma's marker differs by one character.
constexpr std::string_view kHarmonyMark = "<|channel|>";

constexpr CallForm kForcedCall = {"", CallEnd::kValue, "", ReadJsonCalls, true};

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

std::unique_ptr<Parser> MakeForcedCallParser(const ParserSetup& setup) {
  return std::make_unique<TaggedParser>(&kForcedCall, setup.format.thinking, setup.thinking_open,
                                        Tools(setup.tools_json));
}

}  // namespace quire::runner::output
