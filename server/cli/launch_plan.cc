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

// The tokens of an answer that leaves the prompt room. 0 = not known.
int64_t OutputOf(const LaunchTarget& target) { return target.num_ctx / 4; }

// A string in TOML, and in YAML.
std::string QuotedText(const std::string& text) { return Json(text).dump(); }

LaunchPlan PlanClaude(const LaunchTarget& target, const std::filesystem::path&) {
  LaunchPlan plan{.command = {"claude"}, .install = "npm install -g @anthropic-ai/claude-code"};
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
  if (target.num_ctx > 0) {
    plan.variables.emplace_back("CLAUDE_CODE_MAX_CONTEXT_TOKENS", std::to_string(target.num_ctx));
    plan.variables.emplace_back("CLAUDE_CODE_MAX_OUTPUT_TOKENS", std::to_string(OutputOf(target)));
  }
  return plan;
}

LaunchPlan PlanCodex(const LaunchTarget& target, const std::filesystem::path&) {
  LaunchPlan plan{.command = {"codex"}, .install = "npm install -g @openai/codex"};
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
  if (target.num_ctx > 0) model["limit"] = {{"context", target.num_ctx}, {"output", OutputOf(target)}};
  if (target.sees_images) {
    model["attachment"] = true;
    model["modalities"] = {{"input", {"text", "image"}}, {"output", {"text"}}};
  }
  const Json provider = {
      {"npm", "@ai-sdk/openai-compatible"},
      {"name", "Quire"},
      {"options", {{"baseURL", target.url + "/v1"}, {"apiKey", KeyOf(target)}, {"timeout", kPatienceMs}}},
      {"models", {{target.model, model}}}};
  const std::string name = "quire/" + target.model;
  const Json settings = {{"provider", {{"quire", provider}}}, {"model", name}, {"small_model", name}};
  LaunchPlan plan{.command = {"opencode"}, .install = "npm install -g opencode-ai"};
  plan.files.push_back({folder / "opencode.json", settings.dump(2) + "\n"});
  plan.variables.emplace_back("OPENCODE_CONFIG", plan.files.front().path);
  return plan;
}

LaunchPlan PlanQwen(const LaunchTarget& target, const std::filesystem::path&) {
  LaunchPlan plan{.command = {"qwen", "--auth-type", "openai"},
                  .install = "npm install -g @qwen-code/qwen-code"};
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
                  .install = "npm install -g cline"};
  plan.files.push_back({data / "settings/providers.json", file.dump(2) + "\n"});
  return plan;
}

LaunchPlan PlanContinue(const LaunchTarget& target, const std::filesystem::path& folder) {
  std::string text = fmt::format(
      "name: Quire\nversion: 1.0.0\nschema: v1\nmodels:\n  - name: {0}\n    provider: openai\n    model: "
      "{0}\n"
      "    apiBase: {1}\n    apiKey: {2}\n    roles: [chat, edit, apply]\n    capabilities: [tool_use{3}]\n",
      QuotedText(target.model), QuotedText(target.url + "/v1"), QuotedText(KeyOf(target)),
      target.sees_images ? ", image_input" : "");
  if (target.num_ctx > 0) {
    text += fmt::format("    defaultCompletionOptions:\n      contextLength: {}\n", target.num_ctx);
  }
  LaunchPlan plan{.install = "npm install -g @continuedev/cli"};
  plan.files.push_back({folder / "continue.yaml", std::move(text)});
  plan.command = {"cn", "--config", plan.files.front().path};
  return plan;
}

LaunchPlan PlanCopilot(const LaunchTarget& target, const std::filesystem::path&) {
  LaunchPlan plan{.command = {"copilot"}, .install = "npm install -g @github/copilot"};
  plan.variables = {{"COPILOT_PROVIDER_BASE_URL", target.url + "/v1"},
                    {"COPILOT_PROVIDER_TYPE", "openai"},
                    {"COPILOT_PROVIDER_API_KEY", KeyOf(target)},
                    {"COPILOT_MODEL", target.model},
                    {"COPILOT_OFFLINE", "true"}};  // without an account
  if (target.num_ctx > 0) {
    plan.variables.emplace_back("COPILOT_PROVIDER_MAX_PROMPT_TOKENS",
                                std::to_string(target.num_ctx - OutputOf(target)));
    plan.variables.emplace_back("COPILOT_PROVIDER_MAX_OUTPUT_TOKENS", std::to_string(OutputOf(target)));
  }
  return plan;
}

LaunchPlan PlanGrok(const LaunchTarget& target, const std::filesystem::path&) {
  LaunchPlan plan{.command = {"grok"}, .install = "npm install -g @vibe-kit/grok-cli"};
  plan.variables = {
      {"GROK_BASE_URL", target.url + "/v1"}, {"GROK_API_KEY", KeyOf(target)}, {"GROK_MODEL", target.model}};
  if (target.num_ctx > 0) plan.variables.emplace_back("GROK_MAX_TOKENS", std::to_string(OutputOf(target)));
  return plan;
}

// An extension that has a provider with one model.
LaunchPlan PlanPi(const LaunchTarget& target, const std::filesystem::path& folder) {
  Json model = {{"id", target.model},
                {"name", target.model},
                {"reasoning", false},
                {"input", target.sees_images ? Json{"text", "image"} : Json::array({"text"})},
                {"cost", {{"input", 0}, {"output", 0}, {"cacheRead", 0}, {"cacheWrite", 0}}}};
  if (target.num_ctx > 0) {
    model["contextWindow"] = target.num_ctx;
    model["maxTokens"] = OutputOf(target);
  }
  Json provider = {{"name", "Quire"},
                   {"baseUrl", target.url + "/v1"},
                   {"apiKey", KeyOf(target)},
                   {"api", "openai-completions"}};
  provider["models"] = Json::array({std::move(model)});
  LaunchPlan plan{.install = "npm install -g @mariozechner/pi-coding-agent"};
  plan.files.push_back(
      {folder / "pi.ts",
       fmt::format("export default function (pi) {{\n  pi.registerProvider(\"quire\", {});\n}}\n",
                   provider.dump(2))});
  plan.command = {"pi",      "--extension", plan.files.front().path, "--provider", "quire",
                  "--model", target.model};
  return plan;
}

LaunchPlan PlanAider(const LaunchTarget& target, const std::filesystem::path& folder) {
  const std::string name = "openai/" + target.model;
  LaunchPlan plan{.command = {"aider", "--model", name, "--timeout", std::to_string(kPatienceMs / 1000),
                              "--no-show-model-warnings"},
                  .install = "pip install aider-chat",
                  .is_agent = false};  // edits are text
  plan.variables = {{"OPENAI_API_BASE", target.url + "/v1"}, {"OPENAI_API_KEY", KeyOf(target)}};
  if (target.num_ctx <= 0) return plan;
  const Json known = {{name,
                       {{"max_input_tokens", target.num_ctx},
                        {"max_output_tokens", OutputOf(target)},
                        {"litellm_provider", "openai"},
                        {"mode", "chat"}}}};
  plan.files.push_back({folder / "aider.json", known.dump(2) + "\n"});
  plan.command.insert(plan.command.end(), {"--model-metadata-file", plan.files.front().path});
  return plan;
}

LaunchPlan PlanOpenWebui(const LaunchTarget& target, const std::filesystem::path&) {
  LaunchPlan plan{.command = {"open-webui", "serve"}, .install = "pip install open-webui", .is_agent = false};
  plan.variables = {{"OPENAI_API_BASE_URL", target.url + "/v1"},
                    {"OPENAI_API_KEY", KeyOf(target)},
                    {"ENABLE_OLLAMA_API", "false"},
                    {"DEFAULT_MODELS", target.model},
                    {"ENABLE_PERSISTENT_CONFIG", "false"},  // else those of its first start
                    {"AIOHTTP_CLIENT_TIMEOUT", std::to_string(kPatienceMs / 1000)}};
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
  constexpr std::array kPlans = {PlanClaude,  PlanCodex, PlanOpencode, PlanQwen,  PlanCline,    PlanContinue,
                                 PlanCopilot, PlanGrok,  PlanPi,       PlanAider, PlanOpenWebui};
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
