#include "server/cli/launch_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

namespace quire::cli {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

const LaunchTarget kTarget{
    .url = "http://127.0.0.1:11434", .key = "", .model = "coder:7b", .num_ctx = 32'768};

LaunchPlan Planned(std::string_view client, const LaunchTarget& target = kTarget) {
  auto plan = PlanLaunch(client, target, "/home/u/.config/quire/launch");
  EXPECT_TRUE(plan) << client;
  return plan ? *std::move(plan) : LaunchPlan();
}

TEST(LaunchPlan, EveryClientGetsAddressModelAndKey) {
  LaunchTarget target = kTarget;
  target.key = "quire-0123456789";
  for (const std::string_view client : kLaunchClients) {
    const LaunchPlan plan = Planned(client, target);
    EXPECT_FALSE(plan.command.empty() || plan.install.empty()) << client;
    const std::string text = LaunchText(plan, target);
    EXPECT_THAT(text, HasSubstr(target.url)) << client;
    EXPECT_THAT(text, HasSubstr(target.model)) << client;
    EXPECT_THAT(text, HasSubstr("(your key)")) << client;
    EXPECT_THAT(text, Not(HasSubstr(target.key))) << client;
    for (const LaunchFile& file : plan.files) {
      EXPECT_TRUE(file.path.string().starts_with("/home/u/.config/quire/launch/")) << "no file of the client";
    }
  }
}

TEST(LaunchPlan, ClaudeHasOneModelForAllItsRoles) {
  const LaunchPlan plan = Planned("claude");
  EXPECT_THAT(plan.variables, Contains(Pair("ANTHROPIC_BASE_URL", kTarget.url)));
  EXPECT_THAT(plan.variables, Contains(Pair("ANTHROPIC_MODEL", kTarget.model)));
  EXPECT_THAT(plan.variables, Contains(Pair("ANTHROPIC_DEFAULT_HAIKU_MODEL", kTarget.model)));
  EXPECT_THAT(plan.variables, Contains(Pair("CLAUDE_CODE_MAX_CONTEXT_TOKENS", "32768")));
  EXPECT_THAT(plan.variables, Contains(Pair("CLAUDE_CODE_MAX_OUTPUT_TOKENS", "8192")));
  EXPECT_TRUE(plan.files.empty());
}

TEST(LaunchPlan, BoundsThatAreNotKnownAreNotSaid) {
  LaunchTarget target = kTarget;
  target.num_ctx = 0;
  for (const std::string_view client : kLaunchClients) {
    const std::string text = LaunchText(Planned(client, target), target);
    for (const char* bound : {"MAX_", "context", "max_", "maxTokens", "\"limit\""}) {
      EXPECT_THAT(text, Not(HasSubstr(bound))) << client;
    }
  }
  EXPECT_THAT(Planned("copilot").variables, Contains(Pair("COPILOT_PROVIDER_MAX_PROMPT_TOKENS", "24576")));
  EXPECT_THAT(Planned("grok").variables, Contains(Pair("GROK_MAX_TOKENS", "8192")));
}

TEST(LaunchPlan, AiderKnowsTheModelByItsProvider) {
  const LaunchPlan plan = Planned("aider");
  EXPECT_THAT(plan.command, Contains("openai/coder:7b"));
  const auto known = nlohmann::json::parse(plan.files.at(0).content);
  EXPECT_EQ(known["openai/coder:7b"]["max_input_tokens"], 32'768);
  EXPECT_FALSE(plan.is_agent);
}

TEST(LaunchPlan, CodexReadsTheKeyFromAVariableOnlyIfThereIsOne) {
  EXPECT_TRUE(Planned("codex").variables.empty());
  EXPECT_THAT(Planned("codex").command, Contains(R"(model="coder:7b")"));
  EXPECT_THAT(Planned("codex").command, Contains("model_context_window=32768"));
  LaunchTarget target = kTarget;
  target.key = "secret";
  EXPECT_THAT(Planned("codex", target).command, Contains(R"(model_providers.quire.env_key="QUIRE_API_KEY")"));
  EXPECT_THAT(Planned("codex", target).command, Not(Contains(HasSubstr("secret"))));
  EXPECT_THAT(Planned("codex", target).variables, Contains(Pair("QUIRE_API_KEY", "secret")));
}

TEST(LaunchPlan, JsonFilesAreJson) {
  const auto opencode = nlohmann::json::parse(Planned("opencode").files.at(0).content);
  EXPECT_EQ(opencode["model"], "quire/coder:7b");
  EXPECT_EQ(opencode["provider"]["quire"]["models"]["coder:7b"]["limit"]["context"], 32'768);
  const auto cline = nlohmann::json::parse(Planned("cline").files.at(0).content);
  EXPECT_EQ(cline["providers"]["openai-compatible"]["settings"]["baseUrl"], "http://127.0.0.1:11434/v1");
}

TEST(LaunchPlan, AgentsKnowWhetherTheModelSeesImages) {
  LaunchTarget target = kTarget;
  for (const bool sees : {false, true}) {
    target.sees_images = sees;
    const auto opencode = nlohmann::json::parse(Planned("opencode", target).files.at(0).content);
    const auto& model = opencode["provider"]["quire"]["models"]["coder:7b"];
    EXPECT_EQ(model.value("attachment", false), sees);
    EXPECT_EQ(model.contains("modalities"), sees);
    EXPECT_THAT(Planned("continue", target).files.at(0).content,
                HasSubstr(sees ? "[tool_use, image_input]" : "[tool_use]"));
    const std::string pi = Planned("pi", target).files.at(0).content;
    EXPECT_EQ(pi.find("\"image\"") != std::string::npos, sees) << pi;
  }
}

TEST(LaunchPlan, OtherClientsAreRefusedByName) {
  const auto plan = PlanLaunch("emacs", kTarget, "/x");
  ASSERT_FALSE(plan);
  EXPECT_THAT(plan.error().message, HasSubstr("unknown client \"emacs\"; known are claude, codex"));
}

TEST(LaunchPlan, TextIsForAShell) {
  LaunchPlan plan;
  plan.variables = {{"A", "it's"}, {"B", ""}, {"C", "plain"}};
  plan.command = {"run", "a b"};
  EXPECT_EQ(LaunchText(plan, kTarget), "export A='it'\\''s'\nexport B=''\nexport C=plain\nrun 'a b'\n");
}

}  // namespace
}  // namespace quire::cli
