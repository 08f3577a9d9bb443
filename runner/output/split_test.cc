// The output does not depend on how an answer's text is split: every cut in two, single bytes, and random
// cuts, for answers written by hand and for random mixtures of text and markup.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "runner/output/testing/parse_whole.h"

namespace quire::runner::output {
namespace {

using testing::Answer;
using testing::FormatOf;

constexpr int kRandomCuts = 40;
constexpr int kRandomAnswers = 400;

struct Dialect {
  Format format;
  std::vector<std::string> answers;
  std::vector<std::string> markup;   // what random answers are made of, beside words
  std::vector<std::string> markers;  // that never come out
};

std::vector<Dialect> Dialects() {
  const std::string weather = R"({"name": "get_weather", "arguments": {"city": "Zürich \"}{\" 😀"}})";
  const std::string deepseek =
      "<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"Zü\"}<｜tool▁call▁end｜>";
  return {
      {FormatOf("tools <｜tool▁sep｜> <think>"),
       {"<think>hm</think>Ok.<｜tool▁calls▁begin｜>" + deepseek + "\n" + deepseek + "<｜tool▁calls▁end｜>",
        "<｜tool▁calls▁begin｜>" + deepseek},
       {"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", deepseek, "<｜tool▁sep｜>", "{", "<think>",
        "</think>"},
       {"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<think>", "</think>"}},
      {FormatOf("tools <|START_ACTION|> <|START_THINKING|> <|START_RESPONSE|>"),
       {"<|START_THINKING|>hm<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": "
        "\"now\", \"parameters\": {}}\n]<|END_ACTION|>",
        "<|START_RESPONSE|>Grüezi!<|END_RESPONSE|>"},
       {"<|START_ACTION|>", "<|END_ACTION|>", "[" + weather + "]", "<|START_RESPONSE|>", "<|END_RESPONSE|>"},
       {"<|START_ACTION|>", "<|END_ACTION|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>"}},
      {FormatOf("tools <minimax:tool_call>"),
       {"Ok\n<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Zü</parameter>\n"
        "</invoke>\n<invoke name=\"now\">\n</invoke>\n</minimax:tool_call>"},
       {"<minimax:tool_call>", "</minimax:tool_call>", "<invoke name=\"now\">", "</invoke>", "<parameter"},
       {"<minimax:tool_call>"}},
      {FormatOf("tools <|tool_call|> <think> <response>"),
       {"<think>hm</think>\n\n<response>\nOk </response> then\n</response>\n",
        "<think>hm</think><response>x</response><|tool_call|>[" + weather + "]"},
       {"<think>", "</think>", "<response>", "</response>", " ", "<|tool_call|>", "[" + weather + "]"},
       {"<|tool_call|>", "<think>"}},
      {FormatOf("tools ｜DSML｜"),
       {"Ok\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter "
        "name=\"city\" "
        "string=\"true\">Zü</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>"},
       {"<｜DSML｜function_calls>", "</｜DSML｜function_calls>", "<｜DSML｜invoke name=\"now\">",
        "</｜DSML｜invoke>"},
       {"<｜DSML｜function_calls>"}},
      {FormatOf("tools <|tool_call|>"),
       {"<|tool_call|>[" + weather + "] tail", "<|tool_call|>" + weather},
       {"<|tool_call|>", "[" + weather + "]", "[", "{"},
       {"<|tool_call|>"}},
      {FormatOf("tools", {"<|tool_call_start|>", "<think>", "</think>"}),
       {"Ok.\n<|tool_call_start|>[get_weather(city=\"Zü\\\"rich\"), now()]<|tool_call_end|> done",
        "<think> hm </think> 4"},
       {"<|tool_call_start|>", "[now()]", "[f(a='\"é\"')]", "<|tool_call_end|>", "<think>", "</think>",
        "[f(a=\"", "\")"},
       {"<|tool_call_start|>", "<|tool_call_end|>", "<think>", "</think>"}},
      {FormatOf("tools <tool_call> <think>"),
       {"<think>\nhm\n</think>\n\nText\n<tool_call>\n" + weather +
            "\n</tool_call>\n<tool_call>\n<function=now>\n"
            "</function>\n</tool_call>\n",
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"</tool_call>\"}}</tool_call>tail"},
       {"<tool_call>", "</tool_call>", weather, "<function=now></function>", "<think>", "</think>",
        "{\"name\": \"", "\"}"},
       {"<tool_call>", "<think>", "</think>"}},
      {FormatOf("tools <|python_tag|>"),
       {"<|python_tag|>" + weather, weather + "; " + weather, "{\"a\": [1, 2]} text"},
       {"<|python_tag|>", weather, ";", "{", "}", "[1]", "\""},
       {"<|python_tag|>"}},
      {FormatOf("tools [TOOL_CALLS] [THINK]"),
       {"[THINK]hm[/THINK]Hi [TOOL_CALLS]now[ARGS]{}[TOOL_CALLS]add[ARGS]{\"a\": 1}",
        "[TOOL_CALLS] [" + weather + "] tail"},
       {"[TOOL_CALLS]", "now", "[ARGS]", "{}", "[" + weather + "]", "[THINK]", "[/THINK]", "{\"a"},
       {"[TOOL_CALLS]", "[THINK]", "[/THINK]"}},
      {FormatOf("tools <|tool_call> <|channel>thought"),
       {"<|channel>thought\nhm\n<channel|>Hi\n<|tool_call>call:get_weather{city:<|\"|>Zü}<|\"|>}<tool_call|>",
        "<|tool_call>call:f{s:<|\"|><tool_call|><|\"|>}<tool_call|>"},
       {"<|channel>thought", "<channel|>", "<|tool_call>", "<tool_call|>", "call:now{}",
        "call:f{a:<|\"|>é<|\"|>}", "call:f{"},
       {"<|channel>thought", "<channel|>", "<|tool_call>"}},
      {FormatOf("tools <|channel|>"),
       {"<|channel|>analysis<|message|>hm <|end|><|start|>assistant<|channel|>commentary to=functions.now "
        "<|constrain|>json<|message|>{}<|call|>",
        "<|channel|>final<|message|>Hi < there"},
       {"<|channel|>analysis", "<|channel|>final", "<|message|>", "<|end|>", "<|start|>assistant",
        " to=functions.now", "<|call|>", "{}", "{\"a\""},
       {"<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|call|>"}},
      {FormatOf("tools <function_calls>"),
       {"Ok\n<function_calls>get_weather(city=\"Zü\")\nnow()</function_calls>",
        "<function_calls>" + weather + "</function_calls>"},
       {"<function_calls>", "</function_calls>", "now()", "\n", weather},
       {"<function_calls>"}},
      {FormatOf("tools <start_function_call>"),
       {"Ok<start_function_call>call:get_weather{city:<escape>Zü}<escape>,n:1}<end_function_call>"
        "<start_function_call>call:now{}<end_function_call>"},
       {"<start_function_call>", "<end_function_call>", "call:now{}", "<escape>"},
       {"<start_function_call>"}},
      {FormatOf("tools <|START_ACTION|> <|START_THINKING|> <|START_TEXT|>"),
       {"<|START_THINKING|>hm<|END_THINKING|><|START_TEXT|>Grüezi!<|END_TEXT|>"},
       {"<|START_ACTION|>", "<|END_ACTION|>", "<|START_TEXT|>", "<|END_TEXT|>"},
       {"<|START_ACTION|>", "<|END_ACTION|>", "<|START_TEXT|>", "<|END_TEXT|>"}},
  };
}

Answer ParseCut(const Format& format, bool thinking_open, const std::vector<std::string>& texts) {
  const auto parser = MakeParser({.format = format,
                                  .thinking_open = thinking_open,
                                  .expects_calls = true,
                                  .tools = testing::SomeTools()});
  return testing::ParseChunks(*parser, format, texts);
}

// No token is cut.
std::vector<std::string> CutAt(const Format& format, const std::string& text, std::vector<size_t> at) {
  std::vector<std::string> chunks;
  size_t begin = 0;
  std::vector<bool> inside(text.size() + 1);
  for (size_t i = 0; i < text.size();) {
    const size_t size = testing::TokenSize(format, std::string_view(text).substr(i));
    for (size_t k = 1; k < size; ++k) inside[i + k] = true;
    i += std::max<size_t>(size, 1);
  }
  for (const size_t end : at) {
    if (inside[end]) continue;
    chunks.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  chunks.push_back(text.substr(begin));
  return chunks;
}

std::vector<std::string> RandomCut(const Format& format, const std::string& text, std::mt19937& random) {
  const double density = std::uniform_real_distribution<>(0.02, 0.9)(random);
  std::vector<size_t> at;
  for (size_t i = 1; i < text.size(); ++i) {
    if (std::bernoulli_distribution(density)(random)) at.push_back(i);
  }
  return CutAt(format, text, at);
}

void CheckWhole(const Dialect& dialect, const Answer& answer) {
  for (const auto& marker : dialect.markers) {
    EXPECT_EQ(answer.text.find(marker), std::string::npos) << marker << " in " << answer.text;
  }
  for (const auto& call : answer.calls) {
    EXPECT_TRUE(nlohmann::json::accept(call.substr(call.find('{')))) << call;
  }
}

void CheckCuts(const Dialect& dialect, const std::string& text, std::mt19937& random, bool every_cut) {
  for (const bool open : {false, true}) {
    SCOPED_TRACE(::testing::Message() << dialect.format.family << (open ? " thinking: " : ": ") << text);
    const Answer whole = ParseCut(dialect.format, open, {text});
    CheckWhole(dialect, whole);
    const auto check = [&](const std::vector<std::string>& chunks) {
      const Answer cut = ParseCut(dialect.format, open, chunks);
      EXPECT_EQ(cut.text, whole.text);
      EXPECT_EQ(cut.thinking, whole.thinking);
      EXPECT_EQ(cut.calls, whole.calls);
      EXPECT_EQ(cut.order, whole.order);
      return !::testing::Test::HasFailure();
    };
    std::vector<size_t> bytes;
    for (size_t i = 1; i < text.size(); ++i) bytes.push_back(i);
    if (!check(CutAt(dialect.format, text, bytes))) return;
    for (size_t i = 1; every_cut && i < text.size(); ++i) {
      if (!check(CutAt(dialect.format, text, {i}))) return;
    }
    for (int i = 0; i < (every_cut ? kRandomCuts : 4); ++i) {
      if (!check(RandomCut(dialect.format, text, random))) return;
    }
  }
}

TEST(Split, AnswersDoNotDependOnTheirCuts) {
  std::mt19937 random(7);
  for (const Dialect& dialect : Dialects()) {
    for (const auto& text : dialect.answers) CheckCuts(dialect, text, random, /*every_cut=*/true);
  }
}

// What is no name of a call is given up at a length, at which the next call's marker may begin, be or end.
TEST(Split, NeitherDoesAMarkerAtTheEndOfWhatIsNoName) {
  const Dialect mistral{FormatOf("tools [TOOL_CALLS] [THINK]"), {}, {}, {}};
  std::mt19937 random(13);
  for (size_t length = 490; length < 530 && !HasFailure(); ++length) {
    const std::string begun = "[TOOL_CALLS]" + std::string(length - 1, 'x');
    for (const char* rest : {"x[TOOL_CALLS]now[ARGS]{}", " [TOOL_CALLS]now[ARGS]{}", "x[TOOL_CALLS]now",
                             "x[TOOL_CAL", "x{}[TOOL_CALLS]"}) {
      CheckCuts(mistral, begun + rest, random, /*every_cut=*/false);
    }
  }
}

TEST(Split, NeitherDoesABeginWithoutAHeader) {
  const Dialect harmony{FormatOf("tools <|channel|>"), {}, {}, {"<|start|>"}};
  std::mt19937 random(17);
  const std::string words(1100, 'x');
  for (const std::string& text :
       {"<|start|>" + words, " <|start|><|start|>" + words, "Ok.<|end|><|start|>" + words + "<|end|>"}) {
    CheckCuts(harmony, text, random, /*every_cut=*/false);
    EXPECT_THAT(ParseCut(harmony.format, false, {text}).text, ::testing::HasSubstr(words));
  }
}

TEST(Split, NeitherDoMixturesOfTextAndMarkup) {
  const std::vector<std::string> words = {"Hello", " ", "\n", "é",  "😀",  "a < b",    "[",
                                          "{",     "<", "}",  "\"", "</", " the end."};
  std::mt19937 random(11);
  for (const Dialect& dialect : Dialects()) {
    for (int i = 0; i < kRandomAnswers && !HasFailure(); ++i) {
      std::string text;
      for (int parts = std::uniform_int_distribution<>(1, 14)(random); parts > 0; --parts) {
        const auto& from = std::bernoulli_distribution(0.6)(random) ? dialect.markup : words;
        text += from[std::uniform_int_distribution<size_t>(0, from.size() - 1)(random)];
      }
      CheckCuts(dialect, text, random, /*every_cut=*/false);
    }
  }
}

}  // namespace
}  // namespace quire::runner::output
