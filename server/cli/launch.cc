#include "server/cli/launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "api/base/file_descriptor.h"
#include "server/cli/chat.h"
#include "server/cli/launch_plan.h"
#include "server/cli/show.h"
#include "server/cli/terminal.h"

namespace quire::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int64_t kRoomyContext = 32'768;  // tokens; the first prompts of agents have 10,000 to 30,000

// ~/.config/quire/launch
api::Result<fs::path> Folder() {
  const char* config = std::getenv("XDG_CONFIG_HOME");
  const char* home = std::getenv("HOME");
  const bool own = config != nullptr && *config == '/';
  if (!own && (home == nullptr || *home == '\0')) {
    return api::Fail(api::ErrorCode::kInvalidArgument, "HOME is not set: no place for the client's settings");
  }
  return (own ? fs::path(config) : fs::path(home) / ".config") / "quire/launch";
}

std::vector<Json> ModelsIn(const api::Result<std::string>& body) {
  const Json list = body ? Json::parse(*body, nullptr, false) : Json();
  if (!list.is_object() || !list.contains("models") || !list["models"].is_array()) return {};
  return {list["models"].begin(), list["models"].end()};
}

std::string NameIn(const Json& model) { return model.is_object() ? model.value("name", "") : ""; }

api::Result<std::string> ChooseModel(Client& client, const std::string& wanted) {
  if (!wanted.empty()) return wanted;
  const auto tags = client.Get("/api/tags");
  if (!tags) return std::unexpected(tags.error());
  const std::vector<Json> models = ModelsIn(tags);
  if (models.size() == 1) return NameIn(models.front());
  if (models.empty()) {
    return api::Fail(api::ErrorCode::kNotFound, "the server has no model; get one with quire pull");
  }
  std::string names;
  for (const Json& model : models) names += (names.empty() ? "" : ", ") + NameIn(model);
  return api::Fail(api::ErrorCode::kInvalidArgument, fmt::format("choose a model with --model: {}", names));
}

// What the server says of the model, which it need not load for that.
api::Result<Json> Describe(Client& client, const std::string& model) {
  const auto shown = client.Post("/api/show", Dump(Json{{"model", model}}));
  if (!shown) return std::unexpected(shown.error());
  Json described = Json::parse(*shown, nullptr, false);
  return described.is_object() ? std::move(described) : Json::object();
}

// What an agent will miss, said before it starts.
void WarnOfLimits(const Json& model, const LaunchOptions& options, const LaunchTarget& target) {
  if (!HasCapability(model, "tools")) {
    fmt::print(stderr, "Warning: {} does not support tools; {} can only chat with it.\n", target.model,
               options.client);
  }
  if (target.num_ctx <= 0 || target.num_ctx >= kRoomyContext) return;
  const Json info = model.value("model_info", Json::object());
  const std::string architecture = info.value("general.architecture", "");
  const bool trained = info.value(architecture + ".context_length", int64_t{0}) <= target.num_ctx;
  fmt::print(stderr, "Warning: the context is {} tokens, too few for most agents. {}\n", target.num_ctx,
             trained ? "Choose a model with more."
                     : fmt::format("Start the daemon with OLLAMA_CONTEXT_LENGTH={}, or give the model "
                                   "PARAMETER num_ctx.",
                                   kRoomyContext));
}

std::string ContentOf(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// For its owner alone: it may hold a key.
api::Result<void> WriteSettings(const LaunchFile& file) {
  std::error_code error;
  fs::create_directories(file.path.parent_path(), error);
  const api::FileDescriptor fd(
      ::open(file.path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, S_IRUSR | S_IWUSR));
  const auto size = static_cast<ssize_t>(file.content.size());
  if (fd.valid() && ::write(fd.get(), file.content.data(), file.content.size()) == size) return {};
  return api::Fail(api::ErrorCode::kUnavailable, fmt::format("{}: cannot be written: {}", file.path.string(),
                                                             std::generic_category().message(errno)));
}

// Files that are as they should be are left alone.
api::Result<void> WriteFiles(const LaunchPlan& plan) {
  for (const LaunchFile& file : plan.files) {
    if (ContentOf(file.path) == file.content) continue;
    if (auto written = WriteSettings(file); !written) return written;
  }
  return {};
}

bool Confirmed(const LaunchPlan& plan) {
  const bool news = std::ranges::any_of(
      plan.files, [](const LaunchFile& file) { return ContentOf(file.path) != file.content; });
  if (!news || ::isatty(STDIN_FILENO) == 0 || ::isatty(STDOUT_FILENO) == 0) return true;
  fmt::print("Write this and start {}? [Y/n] ", plan.command.front());
  std::fflush(stdout);
  const int answer = std::getchar();
  return answer == '\n' || answer == 'y' || answer == 'Y';
}

int Become(const LaunchPlan& plan) {
  for (const auto& [name, value] : plan.variables) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> arguments;
  arguments.reserve(plan.command.size() + 1);
  for (const std::string& word : plan.command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  std::fflush(stdout);
  ::execvp(arguments.front(), arguments.data());
  const int why = errno;
  if (why == ENOENT) {
    return PrintError({api::ErrorCode::kNotFound, fmt::format("{} is not installed; install it with: {}",
                                                              plan.command.front(), plan.install)});
  }
  return PrintError(
      {api::ErrorCode::kUnavailable,
       fmt::format("{} cannot be started: {}", plan.command.front(), std::generic_category().message(why))});
}

}  // namespace

int Launch(Client& client, const LaunchOptions& options) {
  if (std::ranges::find(kLaunchClients, options.client) == kLaunchClients.end()) {
    return PrintError(PlanLaunch(options.client, {}, {}).error());
  }
  const auto folder = Folder();
  if (!folder) return PrintError(folder.error());
  auto model = ChooseModel(client, options.model);
  if (!model) return PrintError(model.error());
  LaunchTarget target{.url = client.Url(), .key = std::string(ApiKey()), .model = *std::move(model)};
  if (!options.print_only) {
    // So that the first prompt of the agent does not wait for it. Once it is loaded, its context is exact.
    ChatOptions chat;
    chat.model = target.model;
    if (const auto loaded = Chat(client, std::move(chat)).Load(); !loaded) return PrintError(loaded.error());
  }
  const auto described = Describe(client, target.model);
  if (!described) return PrintError(described.error());
  target.num_ctx = described->value("context_length", int64_t{0});
  target.sees_images = HasCapability(*described, "vision");
  auto plan = PlanLaunch(options.client, target, *folder);
  if (!plan) return PrintError(plan.error());
  if (plan->is_agent) WarnOfLimits(*described, options, target);
  plan->command.insert(plan->command.end(), options.arguments.begin(), options.arguments.end());
  fmt::print("{}", LaunchText(*plan, target));
  if (options.print_only) return 0;
  if (!Confirmed(*plan)) return 1;
  if (const auto written = WriteFiles(*plan); !written) return PrintError(written.error());
  return Become(*plan);
}

}  // namespace quire::cli
