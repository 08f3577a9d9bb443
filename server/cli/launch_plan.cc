#include "server/cli/launch_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

namespace quire::cli {
namespace {

using Json = nlohmann::ordered_json;

// A prompt of an agent may take a CPU longer than clients wait for a server with a GPU.
constexpr int64_t kPatienceMs = 3'600'000;

// Clients refuse to start without a key, also where the server needs none.
std::string KeyOf(const LaunchTarget& target) { return target.key.empty() ? "none" : target.key; }

// A string in TOML, and in YAML.
std::string QuotedText(const std::string& text) { return Json(text).dump(); }

LaunchPlan PlanClaude(const LaunchTarget& target, const std::filesystem::path&) {
  LaunchPlan plan{.command = {"claude"}, .package = "@anthropic-ai/claude-code"};
  plan.variables = {
      {"ANTHROPIC_BASE_URL", target.url},
      {"ANTHROPIC_AUTH_TOKEN", KeyOf(target)},
      {"ANTHROPIC_API_KEY", ""},
      {"API_TIMEOUT_MS", std::to_string(kPatienceMs)},
      {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"},
      // A header in the prompt that differs in every request, and keeps its prefix from being reused.
      {"CLAUDE_CODE_ATTRIBUTION_HEADER", "0"}};
  for (const char* variable :
       {"ANTHROPIC_MODEL", "ANTHROPIC_DEFAULT_OPUS_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL",
        "ANTHROPIC_DEFAULT_HAIKU_MODEL", "CLAUDE_CODE_SUBAGENT_MODEL"}) {
    plan.variables.emplace_back(variable, target.model);
  }
  return plan;
}

LaunchPlan PlanCodex(const LaunchTarget& target, const std::filesystem::path&) {
  LaunchPlan plan{.command = {"codex"}, .package = "@openai/codex"};
  const std::string provider = "model_providers.quire.";
  std::vector<std::string> settings = {
      "model=" + QuotedText(target.model), "model_provider=\"quire\"",
      provider + "name=\"Quire\"",         provider + "base_url=" + QuotedText(target.url + "/v1"),
      provider + "wire_api=\"responses\"", provider + fmt::format("stream_idle_timeout_ms={}", kPatienceMs)};
  if (target.num_ctx > 0) settings.push_back(fmt::format("model_context_window={}", target.num_ctx));
  if (!target.key.empty()) {
    settings.push_back(provider + "env_key=\"QUIRE_API_KEY\"");
    plan.variables.emplace_back("QUIRE_API_KEY", target.key);
  }
  for (std::string& setting : settings) {
    plan.command.emplace_back("-c");
    plan.command.push_back(std::move(setting));
  }
  return plan;
}

LaunchPlan PlanOpencode(const LaunchTarget& target, const std::filesystem::path& folder) {
  Json model = {{"name", target.model}};
  if (target.num_ctx > 0) model["limit"] = {{"context", target.num_ctx}, {"output", target.num_ctx / 4}};
  const Json provider = {
      {"npm", "@ai-sdk/openai-compatible"},
      {"name", "Quire"},
      {"options", {{"baseURL", target.url + "/v1"}, {"apiKey", KeyOf(target)}, {"timeout", kPatienceMs}}},
      {"models", {{target.model, model}}}};
  const std::string name = "quire/" + target.model;
  const Json settings = {{"provider", {{"quire", provider}}}, {"model", name}, {"small_model", name}};
  LaunchPlan plan{.command = {"opencode"}, .package = "opencode-ai"};
  plan.files.push_back({folder / "opencode.json", settings.dump(2) + "\n"});
  plan.variables.emplace_back("OPENCODE_CONFIG", plan.files.front().path);
  return plan;
}

LaunchPlan PlanQwen(const LaunchTarget& target, const std::filesystem::path&) {
  LaunchPlan plan{.command = {"qwen", "--auth-type", "openai"}, .package = "@qwen-code/qwen-code"};
  plan.variables = {{"OPENAI_BASE_URL", target.url + "/v1"},
                    {"OPENAI_API_KEY", KeyOf(target)},
                    {"OPENAI_MODEL", target.model}};
  return plan;
}

LaunchPlan PlanCline(const LaunchTarget& target, const std::filesystem::path& folder) {
  const Json settings = {{"provider", "openai-compatible"},
                         {"apiKey", KeyOf(target)},
                         {"model", target.model},
                         {"baseUrl", target.url + "/v1"}};
  const Json providers = {
      {"openai-compatible",
       {{"settings", settings}, {"updatedAt", "2026-01-01T00:00:00.000Z"}, {"tokenSource", "manual"}}}};
  const Json file = {{"version", 1},
                     {"lastUsedProvider", "openai-compatible"},
                     {"modes", Json::object()},
                     {"providers", providers}};
  const std::filesystem::path data = folder / "cline";
  LaunchPlan plan{.command = {"cline", "--data-dir", data, "--provider", "openai-compatible"},
                  .package = "cline"};
  plan.files.push_back({data / "settings/providers.json", file.dump(2) + "\n"});
  return plan;
}

LaunchPlan PlanContinue(const LaunchTarget& target, const std::filesystem::path& folder) {
  std::string text = fmt::format(
      "name: Quire\nversion: 1.0.0\nschema: v1\nmodels:\n  - name: {0}\n    provider: openai\n    model: "
      "{0}\n"
      "    apiBase: {1}\n    apiKey: {2}\n    roles: [chat, edit, apply]\n    capabilities: [tool_use]\n",
      QuotedText(target.model), QuotedText(target.url + "/v1"), QuotedText(KeyOf(target)));
  if (target.num_ctx > 0) {
    text += fmt::format("    defaultCompletionOptions:\n      contextLength: {}\n", target.num_ctx);
  }
  LaunchPlan plan{.package = "@continuedev/cli"};
  plan.files.push_back({folder / "continue.yaml", std::move(text)});
  plan.command = {"cn", "--config", plan.files.front().path};
  return plan;
}

// For a line of a shell.
std::string ShellWord(const std::string& word) {
  constexpr std::string_view kUnquoted =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=@%+,";
  if (!word.empty() && word.find_first_not_of(kUnquoted) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace

api::Result<LaunchPlan> PlanLaunch(std::string_view client, const LaunchTarget& target,
                                   const std::filesystem::path& folder) {
  constexpr std::array kPlans = {PlanClaude, PlanCodex, PlanOpencode, PlanQwen, PlanCline, PlanContinue};
  static_assert(kPlans.size() == kLaunchClients.size());
  for (size_t i = 0; i < kPlans.size(); ++i) {
    if (kLaunchClients[i] == client) return kPlans[i](target, folder);
  }
  return api::Fail(api::ErrorCode::kInvalidArgument, fmt::format("unknown client \"{}\"; known are {}",
                                                                 client, fmt::join(kLaunchClients, ", ")));
}

std::string LaunchText(const LaunchPlan& plan, const LaunchTarget& target) {
  std::string text;
  for (const LaunchFile& file : plan.files)
    text += fmt::format("# {}\n{}\n", file.path.string(), file.content);
  for (const auto& [name, value] : plan.variables)
    text += fmt::format("export {}={}\n", name, ShellWord(value));
  std::vector<std::string> words;
  words.reserve(plan.command.size());
  for (const std::string& word : plan.command) words.push_back(ShellWord(word));
  text += fmt::format("{}\n", fmt::join(words, " "));
  if (target.key.empty()) return text;
  for (size_t at = 0; (at = text.find(target.key, at)) != std::string::npos;) {
    text.replace(at, target.key.size(), "(your key)");
  }
  return text;
}

}  // namespace quire::cli
