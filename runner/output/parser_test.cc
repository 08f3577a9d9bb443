// Whole answers of each family: what of them is text, thinking and calls.
#include <gtest/gtest.h>

#include <set>

#include "runner/output/testing/parse_whole.h"
#include "runner/output/tool_call_syntax.h"

namespace quire::runner::output {
namespace {

using testing::Answer;
using testing::FormatOf;
using testing::Parse;

using Calls = std::vector<std::string>;

const Format kLfm2 = FormatOf("tools", {"<|tool_call_start|>", "<think>", "</think>"});
const Format kQwen = FormatOf("tools <tool_call> <think>");
const Format kLlama = FormatOf("tools <|python_tag|>");
const Format kMistral = FormatOf("tools [TOOL_CALLS] [THINK]");
const Format kGemma = FormatOf("tools <|tool_call> <|channel>thought");
const Format kHarmony = FormatOf("tools <|channel|>");

TEST(Parser, PlainTextComesOutAsItIs) {
  for (const Format& format : {FormatOf(""), kLfm2, kQwen, kLlama, kMistral, kGemma, kHarmony}) {
    SCOPED_TRACE(format.family);
    for (const std::string text : {"", "Hello.", " \n two  spaces \n", "a < b [ c { d } <|", "x\n\n",
                                   "größer 😀", "```json\n{}\n```"}) {
      const Answer answer = Parse(format, text);
      EXPECT_EQ(answer.text, text);
      EXPECT_TRUE(answer.calls.empty() && answer.thinking.empty());
    }
  }
}

TEST(Parser, Lfm2) {
  const Answer answer = Parse(kLfm2,
                              "Let me see.\n<|tool_call_start|>[get_weather(city=\"Zürich\"), "
                              "now()]<|tool_call_end|>\nOne moment.");
  EXPECT_EQ(answer.text, "Let me see.One moment.");
  EXPECT_EQ(answer.calls, (Calls{R"(get_weather{"city":"Zürich"})", "now{}"}));
  EXPECT_EQ(answer.order, "tcct");
  EXPECT_EQ(Parse(kLfm2, "<|tool_call_start|>[now()]").calls, Calls{"now{}"}) << "the end may be missing";
  EXPECT_EQ(Parse(kLfm2, R"(<|tool_call_start|>[f(s="<|tool_call_end|>")]<|tool_call_end|>)").calls,
            Calls{R"(f{"s":"<|tool_call_end|>"})"})
      << "what looks like the end stands in a string";
  EXPECT_EQ(Parse(kLfm2, "<think>2+2 is 4</think>4").thinking, "2+2 is 4");
}

TEST(Parser, QwenInItsForms) {
  const std::string hermes = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  const std::string xml =
      "<tool_call>\n<function=get_weather>\n<parameter=city>\n12\n</parameter>\n</function>\n</tool_call>";
  const Answer answer = Parse(kQwen, "<think>\nhm\n\n</think>\n\nText.\n\n" + hermes + "\n" + xml + "\n");
  EXPECT_EQ(answer.thinking, "hm");
  EXPECT_EQ(answer.text, "Text.");
  EXPECT_EQ(answer.calls, (Calls{"now{}", R"(get_weather{"city":"12"})"}));
  EXPECT_EQ(answer.order, "Ttcc");
  EXPECT_EQ(Parse(kQwen, "<tool_call>{\"name\": \"now\"}\n<tool_call>{\"name\": \"now\"}</tool_call>").calls,
            (Calls{"now{}", "now{}"}))
      << "the end between two may be missing";
}

TEST(Parser, ThinkingThatThePromptBegan) {
  const Answer answer = Parse(kQwen, "\nhm </think>\n\nText", /*thinking_open=*/true);
  EXPECT_EQ(answer.thinking, "hm");
  EXPECT_EQ(answer.text, "Text");
  EXPECT_EQ(Parse(kQwen, "no end", true).thinking, "no end");
  EXPECT_EQ(Parse(kQwen, "a </think> b").text, "a  b") << "an end without a begin";
  EXPECT_EQ(Parse(kQwen, "<think>\n\n</think>\n\nText").thinking, "");
}

// Granite 3 may put its answer between tags of its own, behind thinking only.
TEST(Parser, GraniteAnswersBetweenTags) {
  const Format granite = FormatOf("tools <|tool_call|> <think></think> <response></response>");
  EXPECT_EQ(granite.family, "granite3");
  const Answer answer =
      Parse(granite, "<think>hm</think>\n<response>\nUse <response>x</response> here.\n</response>\n");
  EXPECT_EQ(answer.thinking, "hm");
  EXPECT_EQ(answer.text, "Use <response>x</response> here.");
  EXPECT_EQ(Parse(granite, "<think>hm</think> <response>4").text, "4") << "the end may be missing";
  EXPECT_EQ(Parse(granite, "<think>hm</think> 4 </response>").text, "4 </response>");
  EXPECT_EQ(Parse(granite, "<response>4</response>").text, "<response>4</response>")
      << "without thinking it is text";
  EXPECT_EQ(Parse(granite, "<think>hm</think><resp").text, "<resp");
  const Answer call =
      Parse(granite, "<think>hm</think><response>Let me.</response><|tool_call|>[{\"name\": \"now\"}]");
  EXPECT_EQ(call.text, "Let me.");
  EXPECT_EQ(call.calls, Calls{"now{}"});
}

TEST(Parser, Llama) {
  EXPECT_EQ(Parse(kLlama, R"({"name": "get_weather", "parameters": {"city": "Oslo"}})").calls,
            Calls{R"(get_weather{"city":"Oslo"})"});
  EXPECT_EQ(
      Parse(kLlama, R"(<|python_tag|>{"name": "now", "parameters": {}}; {"name": "now", "parameters": {}})")
          .calls,
      (Calls{"now{}", "now{}"}));
  EXPECT_EQ(Parse(kLlama, R"({"answer": 42, "name": "x"} done)").text, R"({"answer": 42, "name": "x"} done)");
  EXPECT_EQ(Parse(kLlama, R"(Use {"name": "now"})").text, R"(Use {"name": "now"})") << "not at the begin";
  EXPECT_EQ(Parse(kLlama, "<|python_tag|>print(1)").text, "print(1)");
  EXPECT_EQ(Parse(kLlama, "{\"name\": \"now\"").text, "{\"name\": \"now\"");
}

TEST(Parser, Mistral) {
  EXPECT_EQ(Parse(kMistral, R"([TOOL_CALLS][{"name": "now", "arguments": {}, "id": "abcDEF123"}])").ids,
            Calls{"abcDEF123"});
  const Answer two =
      Parse(kMistral, R"([THINK]hm[/THINK]Hi [TOOL_CALLS]now[ARGS]{}[TOOL_CALLS]add[ARGS]{"a": 1})");
  EXPECT_EQ(two.calls, (Calls{"now{}", R"(add{"a":1})"}));
  EXPECT_EQ(two.text, "Hi");
  EXPECT_EQ(two.thinking, "hm");
  for (const auto& id : two.ids) EXPECT_EQ(id.size(), 9U) << id;
  EXPECT_EQ(Parse(kMistral, "[TOOL_CALLS]now[TOOL_CALLS]now[ARGS]{}").calls, Calls{"now{}"});
  EXPECT_EQ(Parse(kMistral, "[TOOL_CALLS]now[ARGS]{\"a\": ").text, "now{\"a\": ");
}

TEST(Parser, Gemma) {
  const Answer answer =
      Parse(kGemma,
            "<|channel>thought\nhm\n<channel|><|tool_call>call:get_weather{city:<|\"|>Zü<|\"|>}"
            "<tool_call|><|tool_call>call:now{}<tool_call|>");
  EXPECT_EQ(answer.thinking, "hm");
  EXPECT_EQ(answer.calls, (Calls{R"(get_weather{"city":"Zü"})", "now{}"}));
  EXPECT_EQ(Parse(kGemma, "<|tool_call>get_weather(<|\"|>x<|\"|>)<tool_call|>").text, "get_weather(\"x\")");
}

TEST(Parser, Harmony) {
  const Answer answer =
      Parse(kHarmony,
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary"
            "<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.now "
            "<|constrain|>json<|message|>{}<|call|>");
  EXPECT_EQ(answer.thinking, "hm");
  EXPECT_EQ(answer.text, "I look.");
  EXPECT_EQ(answer.calls, Calls{"now{}"});
  EXPECT_EQ(answer.order, "Ttc");
  EXPECT_EQ(Parse(kHarmony, " to=functions.add<|channel|>commentary json<|message|>{\"a\": 1}").calls,
            Calls{R"(add{"a":1})"})
      << "the end was a stop token";
  EXPECT_EQ(Parse(kHarmony, "<|channel|>final<|message|>Hi <b>").text, "Hi <b>");
  EXPECT_EQ(Parse(kHarmony, "<|channel|>commentary to=functions.f<|message|>{\"a\"<|call|>").text, "f{\"a\"");
  EXPECT_EQ(Parse(kHarmony, "<|channel|>ana").text, "ana") << "cut inside the header";
}

TEST(Parser, MalformedCallsComeBackAsText) {
  EXPECT_EQ(Parse(kLfm2, "A <|tool_call_start|>[f(a=oops)]<|tool_call_end|> B").text, "A [f(a=oops)] B");
  EXPECT_EQ(Parse(kQwen, "A\n<tool_call>\n{\"name\": 1}\n</tool_call>\nB").text, "A\n\n{\"name\": 1}\n\nB");
  EXPECT_EQ(Parse(kQwen, "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": \"cut").text,
            "{\"name\": \"now\", \"arguments\": {\"a\": \"cut");
  // An open string swallows the end; what follows is not lost.
  const Answer open =
      Parse(kQwen, "<tool_call>{\"name\": \"f</tool_call>B<tool_call>{\"name\": \"now\"}</tool_call>");
  EXPECT_EQ(open.text, "{\"name\": \"fB");
  EXPECT_EQ(open.calls, Calls{"now{}"});
}

TEST(Parser, WithoutToolsMarkupOfCallsIsText) {
  const auto parser = MakeParser({.format = kQwen});
  const std::string text = "<tool_call>{\"name\": \"now\"}</tool_call>";
  EXPECT_EQ(testing::ParseChunks(*parser, kQwen, {"<think>hm</think>" + text}).text, text);
}

TEST(Parser, EveryCallHasAnIdOfItsOwn) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "<tool_call>{\"name\": \"now\"}</tool_call>";
  const Answer answer = Parse(kQwen, text);
  EXPECT_EQ(std::set<std::string>(answer.ids.begin(), answer.ids.end()).size(), 100U);
  EXPECT_TRUE(answer.ids[0].starts_with("call_")) << answer.ids[0];
}

TEST(Parser, TextAndThinkingComeOutAtOnce) {
  const auto parser = MakeParser(
      {.format = kQwen, .thinking_open = true, .expects_calls = true, .tools = testing::SomeTools()});
  const auto fed = [&](const std::string& text) {
    Answer answer;
    OutputChunks chunks;
    testing::Feed(*parser, kQwen, text, chunks);
    testing::Add(answer, chunks);
    return answer;
  };
  EXPECT_EQ(fed("hm").thinking, "hm");
  EXPECT_TRUE(parser->thinking());
  EXPECT_EQ(fed(" so").thinking, " so");
  EXPECT_EQ(fed("</think>").thinking, "");
  EXPECT_FALSE(parser->thinking());
  EXPECT_EQ(fed("Hi").text, "Hi");
  EXPECT_EQ(fed(" <").text, " <");
  EXPECT_EQ(fed("<tool_call>{\"name\": \"now\"}").calls, Calls{});
  EXPECT_EQ(fed("</tool_call>").calls, Calls{"now{}"});
}

struct MarkerForm {
  Format format;
  std::string think, end, call;
};

std::vector<MarkerForm> MarkerForms() {
  const std::string now = R"({"name": "now", "arguments": {}})";
  return {{kQwen, "<think>", "</think>", "<tool_call>\n" + now + "\n</tool_call>"},
          {kLfm2, "<think>", "</think>", "<|tool_call_start|>[now()]<|tool_call_end|>"},
          {kMistral, "[THINK]", "[/THINK]", "[TOOL_CALLS]now[ARGS]{}"},
          {kGemma, "<|channel>thought\n", "<channel|>", "<|tool_call>call:now{}<tool_call|>"},
          {testing::SpelledFormatOf("tools <tool_call> <think>"), "<think>", "</think>",
           "<tool_call>\n" + now + "\n</tool_call>"}};
}

TEST(Parser, TextThenACallThenThinkingThenText) {
  for (const MarkerForm& form : MarkerForms()) {
    SCOPED_TRACE(form.format.family);
    const Answer call = Parse(form.format, "Let me look.\n" + form.call);
    EXPECT_EQ(call.text, "Let me look.");
    EXPECT_EQ(call.calls, Calls{"now{}"});
    EXPECT_EQ(call.order, "tc");
    const Answer more =
        Parse(form.format, form.call + "\n" + form.think + "It is late." + form.end + "\n\nNoon.");
    EXPECT_EQ(more.order, "cTt");
    EXPECT_EQ(more.thinking, "It is late.");
    EXPECT_EQ(more.text, "Noon.");
    EXPECT_EQ(Parse(form.format, form.call + form.call).calls, (Calls{"now{}", "now{}"}));
    EXPECT_EQ(Parse(form.format, form.think + "hm" + form.end + form.call).order, "Tc");
  }
}

// No answer is edited: what a sentence mentions stays in it.
TEST(Parser, MarkersInASentenceAreText) {
  for (const MarkerForm& form : MarkerForms()) {
    const bool spelled = form.format.tokens.empty();
    for (const std::string& text : {"The tag " + form.think + " opens thinking, " + form.end + " ends it.",
                                    "Write `" + form.call + "`.\nThen " + form.call + " again.",
                                    "A list:\n- " + form.end + "\n- " + form.think}) {
      SCOPED_TRACE(std::string(form.format.family) + (spelled ? " spelled: " : ": ") + text);
      const Answer answer = testing::ParseSpelled(form.format, text);
      EXPECT_EQ(answer.text, text);
      EXPECT_EQ(answer.order, "t");
    }
    // What the vocabulary has tokens for does not begin a line either.
    const std::string line = form.think + "x\n" + form.call;
    const Answer answer = testing::ParseSpelled(form.format, line);
    EXPECT_EQ(answer.text, spelled ? "" : line);
  }
}

TEST(Parser, AConstrainedDocumentComesOutAsItIs) {
  for (const MarkerForm& form : MarkerForms()) {
    SCOPED_TRACE(form.format.family);
    const ParserSetup setup = {
        .format = form.format, .expects_calls = true, .document = true, .tools = testing::SomeTools()};
    const auto parse = [&](const std::string& text) { return Parse(setup, text); };
    for (const std::string& text :
         {"{\"a\":\n" + form.call + form.think + "x" + form.end + "}\n ", std::string(" \n[1]\n"),
          std::string(R"({"name": "now", "arguments": {}})")}) {
      const Answer document = parse(text);
      EXPECT_EQ(document.text, text);
      EXPECT_EQ(document.order, "t");
      const Answer thought = parse(form.think + "hm" + form.end + "\n\n{" + text);
      EXPECT_EQ(thought.text, "{" + text);
      EXPECT_EQ(thought.thinking, "hm");
    }
    EXPECT_EQ(parse(form.call).calls, Calls{"now{}"});
    EXPECT_EQ(parse(form.think + "hm" + form.end + form.call).calls, Calls{"now{}"});
  }
  const ParserSetup harmony = {.format = kHarmony, .document = true};
  EXPECT_EQ(Parse(harmony, "<|channel|>final<|message|>{\"a\": \"<|end|>\"}").text, "{\"a\": \"<|end|>\"}");
}

TEST(Parser, HarmonyMarkersAreTokens) {
  const std::string text =
      "The tag <|end|> ends a message, <|start|>assistant<|channel|>final<|message|> begins one.";
  const auto parser = MakeParser({.format = kHarmony, .expects_calls = true, .tools = testing::SomeTools()});
  OutputChunks chunks;
  testing::Feed(*parser, kHarmony, "<|channel|>final<|message|>", chunks);
  testing::Feed(*parser, kHarmony, text, chunks, /*own_tokens=*/false);
  parser->Finish(chunks);
  Answer answer;
  testing::Add(answer, chunks);
  EXPECT_EQ(answer.text, text);
  EXPECT_EQ(Parse(testing::SpelledFormatOf("tools <|channel|>"), "<|channel|>final<|message|>Hi<|end|>").text,
            "Hi");
}

TEST(Parser, SaysWhereTheNextTokenBelongs) {
  const auto parser = MakeParser({.format = kQwen, .expects_calls = true, .tools = testing::SomeTools()});
  OutputChunks chunks;
  const auto feed = [&](const std::string& text) { testing::Feed(*parser, kQwen, text, chunks); };
  EXPECT_FALSE(parser->thinking() || parser->calling());
  feed("<think>");
  EXPECT_TRUE(parser->thinking());
  feed("</think>Hi");
  EXPECT_FALSE(parser->thinking() || parser->calling());
  feed("<tool_call>");
  EXPECT_TRUE(parser->calling());
  feed("{\"name\": \"now\"}</tool_call>");
  EXPECT_FALSE(parser->calling());
  EXPECT_TRUE(MakeParser({.format = kLlama, .expects_calls = true, .forced = true})->calling());
}

// Two calls, or one where an answer has one, as a grammar would write them.
std::string Render(const ToolCallTemplate& call_template) {
  const auto call = [&](const char* name, const char* arguments) {
    return std::string(call_template.head)
        .append(name)
        .append(call_template.middle)
        .append(arguments)
        .append(call_template.tail);
  };
  std::string text = std::string(call_template.open) + call("add", R"({"a": 1, "note": "x\/\n\u00e9\""})");
  if (!call_template.between.empty()) text += std::string(call_template.between) + call("now", "{}");
  return text += call_template.close;
}

TEST(Parser, CallsAreReadAsTheyAreSpelled) {
  for (const Format& format :
       {kLfm2, kQwen, kLlama, kMistral, kGemma, kHarmony, FormatOf("tools [TOOL_CALLS] [ARGS]"),
        FormatOf("tools <|/tool_call|>"), FormatOf("tools <function="), FormatOf("tools <TOOLCALL>")}) {
    SCOPED_TRACE(format.family);
    const AnswerMarkup markup = MarkupOf(format);
    ASSERT_NE(markup.calls, nullptr);
    const std::string text = Render(*markup.calls);
    const Answer answer = Parse(format, text);
    Calls expected = {R"(add{"a":1,"note":"x/\né\""})"};
    if (!markup.calls->between.empty()) expected.emplace_back("now{}");
    EXPECT_EQ(answer.calls, expected) << text;
    EXPECT_EQ(answer.text, "") << text;
    if (markup.thinking_begin.empty()) continue;
    const std::string thought = std::string(markup.thinking_begin) + "hm" + std::string(markup.thinking_end) +
                                std::string(markup.after_thinking);
    const Answer thoughtful = Parse(format, thought + text);
    EXPECT_EQ(thoughtful.thinking, "hm");
    EXPECT_EQ(thoughtful.calls, expected);
    const std::string plain = std::string(markup.text_begin) + "[1]";
    EXPECT_EQ(Parse(format, thought + plain).text, "[1]");
  }
}

}  // namespace
}  // namespace quire::runner::output
