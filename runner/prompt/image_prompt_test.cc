// Messages with images in chat templates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runner/prompt/prompt_template.h"
#include "tests/data/test_data.h"

namespace quire::runner {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::string_view kPlaceholder = "<img>";

// Shows images and texts as published templates of models that see do.
constexpr std::string_view kParts =
    "{% for m in messages %}[{{ m.role }}]{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for c in m.content %}{% if c.type == 'image' %}<img>{% else %}{{ c.text }}{% endif %}{% endfor %}"
    "{% endif %};{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";
constexpr std::string_view kStrings =
    "{% for m in messages %}[{{ m.role }}]{{ m.content }};{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}";

std::shared_ptr<const std::string> AnyFile() { return std::make_shared<const std::string>("file"); }

// `{}` in the text is where an image stands.
api::Message Made(std::string role, std::string text) {
  api::Message message{std::move(role), ""};
  for (size_t at = text.find("{}"); at != std::string::npos; at = text.find("{}")) {
    message.content += text.substr(0, at);
    message.images.push_back({message.content.size(), AnyFile()});
    text.erase(0, at + 2);
  }
  message.content += text;
  return message;
}

// What the template wrote is in quotes.
std::string InSegments(const api::Result<std::vector<PromptSegment>>& rendered) {
  if (!rendered) return "error: " + rendered.error().message;
  std::string shown;
  for (const PromptSegment& segment : *rendered)
    shown += segment.from_template ? "«" + segment.text + "»" : segment.text;
  return shown;
}

std::string PromptOfImages(const PromptTemplate& prompt_template, const std::vector<api::Message>& messages,
                           std::string_view placeholder = kPlaceholder,
                           const std::vector<api::Tool>& tools = {}) {
  return InSegments(
      prompt_template.Render(messages, tools, LocalTime(1), {}, api::PromptEnd::kAuto, placeholder));
}

std::shared_ptr<const PromptTemplate> JinjaOf(std::string_view source) {
  auto parsed = PromptTemplate::Parse(source);
  EXPECT_TRUE(parsed) << parsed.error().message;
  return *parsed;
}

TEST(ImagePrompt, ImagesArePartsOfTheContent) {
  const auto parts = JinjaOf(kParts);
  EXPECT_EQ(
      PromptOfImages(*parts, {Made("user", "{}What?"), Made("assistant", "A."), Made("user", "a{}{}b{}")}),
      "«[user]<img>»What?«;[assistant]»A.«;[user]»a«<img><img>»b«<img>;[assistant]»");
  EXPECT_EQ(PromptOfImages(*parts, {Made("user", "{}")}), "«[user]<img>;[assistant]»");
  EXPECT_EQ(PromptOfImages(*parts, {Made("user", "a{}"), Made("assistant", "I {} see")}),
            "«[user]»a«<img>;[assistant]»I «<img>» see")
      << "an answer to go on with";
}

TEST(ImagePrompt, ATemplateOfStringsHasThemInTheText) {
  EXPECT_EQ(PromptOfImages(*JinjaOf(kStrings),
                           {Made("user", "a{}{}b{}"), Made("assistant", "c"), Made("user", "{}")}),
            "«[user]»a«<img><img>»b«<img>;[assistant]»c«;[user]<img>;[assistant]»");
}

// One that takes lists in the user's turns only.
TEST(ImagePrompt, ATemplateThatDropsPartsHasThemInTheText) {
  const std::string source =
      "{% for m in messages %}[{{ m.role }}]{% if m.role == 'tool' %}{{ m.content }}{% elif m.content is "
      "string %}"
      "{{ m.content }}{% else %}{% for c in m.content %}{% if c.type == 'image' %}<img>{% else %}{{ c.text }}"
      "{% endif %}{% endfor %}{% endif %}{% for t in m.tool_calls %}<{{ t.function.name }} "
      "{{ t.function.arguments | tojson }}>{% endfor %};{% endfor %}"
      "{% if tools %}{{ tools | tojson }}{% endif %}{% if add_generation_prompt %}[assistant]{% endif %}";
  api::Message call{"assistant", ""};
  call.tool_calls = {{"call00001", "f", "{}"}};
  api::Message result = Made("tool", "shot: {}");
  result.tool_call_id = "call00001";
  const std::string shown =
      PromptOfImages(*JinjaOf(source), {Made("user", "{}a"), call, result, Made("user", "b")});
  EXPECT_THAT(shown, HasSubstr("[user]<img>»a"));
  EXPECT_THAT(shown, HasSubstr("[tool]»shot: «<img>;"));
}

TEST(ImagePrompt, TextThatSpellsAPlaceholderStaysText) {
  for (const std::string_view source : {kParts, kStrings}) {
    EXPECT_EQ(PromptOfImages(*JinjaOf(source), {Made("user", "<img>{}<img>")}),
              "«[user]»<img>«<img>»<img>«;[assistant]»");
    EXPECT_EQ(PromptOfImages(*JinjaOf(source), {Made("user", "<img>")}), "«[user]»<img>«;[assistant]»");
  }
}

TEST(ImagePrompt, GoTemplatesHaveThemInTheText) {
  for (const char* source : {"{{ range .Messages }}[{{ .Role }}]{{ .Content }};{{ end }}[assistant]",
                             "{{ if .Prompt }}[user]{{ .Prompt }};{{ end }}[assistant]{{ .Response }}"}) {
    auto parsed = PromptTemplate::ParseGo(source);
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_EQ(PromptOfImages(**parsed, {Made("user", "{}{}What <img>{}?")}),
              "«[user]<img><img>»What <img>«<img>»?«;[assistant]»");
  }
}

// What a template cannot show is said in another way (turns.h); images stay where they were said.
TEST(ImagePrompt, ImagesMoveWithTheirTurns) {
  const auto alternating = JinjaOf(
      "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
      "{{ raise_exception('user and assistant in turn') }}{% endif %}[{{ m.role }}]"
      "{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}{% if c.type == 'image' "
      "%}"
      "<img>{% else %}{{ c.text }}{% endif %}{% endfor %}{% endif %};{% endfor %}"
      "{% if add_generation_prompt %}[assistant]{% endif %}");
  api::Message call{"assistant", "look"};
  call.tool_calls = {{"call00001", "f", "{}"}};
  api::Message result = Made("tool", "shot: {}.");
  result.tool_call_id = "call00001";
  const std::string shown = PromptOfImages(
      *alternating,
      {Made("system", "S"), Made("user", "a{}b"), Made("user", "{}"), call, result, Made("user", "c")});
  EXPECT_THAT(shown, HasSubstr("[user]»S\n\na«<img>»b«<img>;[assistant]»look"));
  EXPECT_THAT(shown, HasSubstr("<tool_response>\n»shot: «<img>».«\n</tool_response>»"))
      << "between what marks the result";
}

TEST(ImagePrompt, WhatATemplateCannotShowIsRefused) {
  const auto parts = JinjaOf(kParts);
  EXPECT_EQ(PromptOfImages(*parts, {Made("user", "{}a")}, ""), "error: the model takes text only");
  const auto dropping = JinjaOf("{% for m in messages %}{{ m.content | replace('<img>', '') }}{% endfor %}");
  EXPECT_EQ(PromptOfImages(*dropping, {Made("user", "{}a")}),
            "error: the model's chat template does not show every image of the messages");
  api::Message outside = Made("user", "{}a");
  outside.images[0].at = 2;
  EXPECT_THAT(PromptOfImages(*parts, {outside}), HasSubstr("no image can stand at byte 2"));
  api::Message inside{"user", "\xC3\xA9"};
  inside.images = {{1, AnyFile()}};
  EXPECT_THAT(PromptOfImages(*parts, {inside}), HasSubstr("no image can stand at byte 1"));
  api::Message backwards = Made("user", "a{}b{}");
  std::swap(backwards.images[0], backwards.images[1]);
  EXPECT_THAT(PromptOfImages(*parts, {backwards}), HasSubstr("no image can stand at byte 1"));
}

TEST(ImagePrompt, WithoutATemplateTheTextHasPlaceholders) {
  EXPECT_EQ(InSegments(TextWithPlaceholders(Made("user", "{}a{}{}<img>"), kPlaceholder)),
            "«<img>»a«<img>»«<img>»<img>");
  EXPECT_EQ(InSegments(TextWithPlaceholders(Made("user", "a"), kPlaceholder)), "a");
}

nlohmann::ordered_json ReadJson(const std::filesystem::path& path) {
  return nlohmann::ordered_json::parse(std::ifstream(path, std::ios::binary));
}

// The templates of the checkpoints of models that see, whose goldens have what transformers rendered.
TEST(ImagePrompt, RendersWhatTheProcessorsRender) {
  const std::vector<std::pair<std::string, std::string>> families = {
      {"gemma3_vl", "<start_of_image>"},
      {"lfm2_vl", "<image>"},
      {"qwen3_vl", "<|vision_start|><|image_pad|><|vision_end|>"}};
  for (const auto& [family, placeholder] : families) {
    QUIRE_FIND_OR_SKIP(folder, "vision/" + family);
    std::ifstream file(folder / "chat_template.jinja", std::ios::binary);
    const std::string source{std::istreambuf_iterator<char>(file), {}};
    auto parsed =
        PromptTemplate::Parse(source, {{"bos_token", family == "gemma3_vl" ? "<bos>" : "<|startoftext|>"}});
    ASSERT_TRUE(parsed) << parsed.error().message;
    const nlohmann::ordered_json goldens = ReadJson(folder / "golden.json");
    for (const auto& golden : goldens["cases"]) {
      std::vector<api::Message> messages;
      for (const auto& message : golden["messages"]) {
        std::string text;
        for (const auto& part : message["content"])
          text += part["type"] == "image" ? "{}" : part["text"].get<std::string>();
        messages.push_back(Made(message["role"], text));
      }
      const auto rendered =
          (*parsed)->Render(messages, {}, LocalTime(1), {}, api::PromptEnd::kAuto, placeholder);
      ASSERT_TRUE(rendered) << rendered.error().message;
      std::string text;
      for (const PromptSegment& segment : *rendered) text += segment.text;
      EXPECT_EQ(text, golden["rendered"].get<std::string>()) << family;
    }
  }
}

// Published templates.
TEST(ImagePrompt, PublishedTemplatesShowImages) {
  const std::vector<std::pair<std::string, std::string>> templates = {
      {"Qwen3.5-4B", "<|vision_start|><|image_pad|><|vision_end|>"},
      {"gemma-3-it", "<start_of_image>"},
      {"gemma4-E2B-it", "<|image|>"},
      {"google-gemma-4-31B-it", "<|image|>"},
      {"mistralai-Ministral-3-14B-Reasoning-2512", "[IMG]"},
      {"unsloth-mistral-Devstral-Small-2507", "[IMG]"}};
  for (const auto& [name, placeholder] : templates) {
    QUIRE_FIND_OR_SKIP(path, "chat_templates/" + name + ".json");
    auto parsed =
        PromptTemplate::Parse(ReadJson(path)["template"].get<std::string>(), {{"bos_token", "<s>"}});
    ASSERT_TRUE(parsed) << parsed.error().message;
    api::Message call{"assistant", ""};
    call.tool_calls = {{"call00001", "f", "{}"}};
    api::Message result = Made("tool", "shot: {}.");
    result.tool_call_id = "call00001";
    result.tool_name = "f";
    const std::vector<api::Tool> tools = {
        {.name = "f",
         .definition_json =
             R"({"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{}}}})"}};
    for (const auto& [messages, with_tools] :
         {std::pair{std::vector{Made("user", "{}" + placeholder + "a{}")}, false},
          {std::vector{Made("system", "S"), Made("user", "b{}c"), Made("assistant", "d"),
                       Made("user", "{}e")},
           false},
          {std::vector{Made("user", "f{}"), call, result}, true}}) {
      const std::string shown =
          PromptOfImages(**parsed, messages, placeholder, with_tools ? tools : std::vector<api::Tool>());
      EXPECT_THAT(shown, Not(HasSubstr("error:"))) << name;
    }
  }
}

}  // namespace
}  // namespace quire::runner
