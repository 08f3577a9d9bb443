#include "api/ollama/modelfile_parse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <regex>
#include <string>
#include <vector>

namespace quire::api::modelfile {
namespace {

using ::testing::HasSubstr;

std::string ErrorOf(std::string_view text) {
  const auto parsed = Parse(text);
  return parsed ? "no error" : parsed.error().message;
}

TEST(Modelfile, ReadsEveryInstruction) {
  const auto parsed = Parse(R"(# what it is made of
FROM ./model.gguf
from another
Parameter TEMPERATURE 0.5
PARAMETER stop "<|im_end|>"
  parameter stop """a
b"""

TEMPLATE """{{ .System }}
# no comment
{{ .Prompt }}"""
SYSTEM You are   kind.
ADAPTER ~/lora.gguf
LICENSE "MIT"
MESSAGE user hello there
message Assistant """hi
there"""
DRAFT ./draft.gguf
REQUIRES 0.14.0
RENDERER x
PARSER y)");
  ASSERT_TRUE(parsed) << parsed.error().message;
  const std::vector<Command> expected = {{"from", "", "./model.gguf"},
                                         {"from", "", "another"},
                                         {"parameter", "temperature", "0.5"},
                                         {"parameter", "stop", "<|im_end|>"},
                                         {"parameter", "stop", "a\nb"},
                                         {"template", "", "{{ .System }}\n# no comment\n{{ .Prompt }}"},
                                         {"system", "", "You are   kind."},
                                         {"adapter", "", "~/lora.gguf"},
                                         {"license", "", "MIT"},
                                         {"message", "user", "hello there"},
                                         {"message", "assistant", "hi\nthere"},
                                         {"draft", "", "./draft.gguf"},
                                         {"requires", "", "0.14.0"},
                                         {"renderer", "", "x"},
                                         {"parser", "", "y"}};
  EXPECT_EQ(*parsed, expected);
  EXPECT_EQ(parsed->at(0).line, 2);
  EXPECT_EQ(parsed->at(4).line, 6);
  EXPECT_EQ(parsed->back().line, 21);
}

TEST(Modelfile, QuotesCloseAtTheEndOfALine) {
  const auto value = [](std::string_view text) {
    const auto parsed = Parse("FROM x\nSYSTEM " + std::string(text));
    return parsed ? parsed->at(1).value : parsed.error().message;
  };
  EXPECT_EQ(value("\"a \"b\" c\""), "a \"b\" c");
  EXPECT_EQ(value("\"a\nb\"  \r\n# more"), "a\nb");
  EXPECT_EQ(value("\"\"\" a \"\"\" b \"\"\"\""), " a \"\"\" b \"");
  EXPECT_EQ(value("say \"so\" "), "say \"so\"");
  EXPECT_EQ(value("\"open"), "(line 2): missing closing \"");
  EXPECT_EQ(value("\"\"\"open\n\n"), "(line 2): missing closing \"\"\"");
}

// As a text with a docstring of Python has them.
TEST(Modelfile, QuotesAtTheEndOfALineOfATextDoNotEndIt) {
  const std::string text = "Write:\ndef f():\n  \"\"\"Adds.\"\"\"\n  return 1\n\"\"\"\n\nDone.";
  const std::vector<Command> commands = {
      {"from", "", "x"}, {"system", "", text}, {"message", "user", text}, {"parameter", "stop", "a"}};
  const auto parsed = Parse(Write(commands));
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(*parsed, commands);
  EXPECT_EQ(ErrorOf("FROM x\nSYSTEM \"\"\"a\"\"\"\nFORM y\n"),
            ErrorOf("FROM x\nSYSTEM a\nFORM y\n"));  // not "missing closing"
}

TEST(Modelfile, ReadsLineEndsAndEncodings) {
  EXPECT_EQ(Parse("FROM x\r\nSYSTEM y\r\n")->at(1).value, "y");
  EXPECT_EQ(Parse("\xEF\xBB\xBF"
                  "FROM \u00e9")
                ->at(0)
                .value,
            "\u00e9");
  const std::string little(
      "\xFF\xFE"
      "F\0R\0O\0M\0 \0\xe9\0\x3d\xd8\x00\xde\x00\xd8",
      20);
  EXPECT_EQ(Parse(little)->at(0).value, "\u00e9\U0001F600\uFFFD");
  const std::string big(
      "\xFE\xFF"
      "\0F\0R\0O\0M\0 \0x",
      14);
  EXPECT_EQ(Parse(big)->at(0).value, "x");
}

TEST(Modelfile, SaysOnWhichLineWhatIsWrong) {
  EXPECT_THAT(ErrorOf("FROM x\n\nFORM y\n"),
              HasSubstr("(line 3): command must be one of \"from\", \"license\""));
  EXPECT_EQ(ErrorOf("FROM x\nSYSTEM"), "(line 2): system has no value");
  EXPECT_EQ(ErrorOf("FROM x\nSYSTEM \"\"\"\"\"\""), "(line 2): system has no value");
  EXPECT_EQ(ErrorOf("FROM x\nPARAMETER"), "(line 2): parameter requires a name and a value");
  EXPECT_EQ(ErrorOf("FROM x\nPARAMETER top_k\n"), "(line 2): parameter has no value");
  EXPECT_EQ(ErrorOf("FROM x\nMESSAGE tool y"),
            "(line 2): message role must be one of \"system\", \"user\", \"assistant\"");
  EXPECT_EQ(ErrorOf("# nothing\n"), "no FROM line");
  EXPECT_EQ(ErrorOf(""), "no FROM line");
}

TEST(Modelfile, WhatIsWrittenIsReadBack) {
  std::mt19937 random(7);
  const std::vector<std::string> pieces = {"a", " ",        "\n",     "\"", "\"\"\"x",
                                           "#", "{{ .X }}", "\u00e9", "\t", "FROM"};
  const std::regex unwritable("\"\"\"[ \t]*\n[ \t\n]*(#|FROM[ \t\n])");  // no quotes can hold it
  for (int round = 0; round < 2000; ++round) {
    std::vector<Command> commands = {{"from", "", "model"}};
    for (const char* name : {"system", "template", "license"}) {
      std::string value;
      for (size_t i = 0, n = 1 + random() % 6; i < n; ++i) value += pieces[random() % pieces.size()];
      if (std::regex_search(value, unwritable)) {
        EXPECT_THAT(Write(std::vector<Command>{{name, "", value}}), HasSubstr("# \"\"\" in the next value"));
        value = "x";
      }
      commands.push_back({name, "", value});
    }
    commands.push_back({"parameter", "stop", commands[1].value});
    commands.push_back({"message", "user", commands[2].value});
    const std::string text = Write(commands);
    const auto parsed = Parse(text);
    ASSERT_TRUE(parsed) << text << parsed.error().message;
    EXPECT_EQ(*parsed, commands) << text;
  }
}

}  // namespace
}  // namespace quire::api::modelfile
