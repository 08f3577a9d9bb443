// What an agent or a chat program needs to work with this server: its settings, as variables, files and
// arguments.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/base/error.h"

namespace quire::cli {

inline constexpr auto kLaunchClients =
    std::to_array<std::string_view>({"claude", "codex", "opencode", "qwen", "cline", "continue", "copilot",
                                     "grok", "pi", "aider", "open-webui"});

struct LaunchTarget {
  std::string url = {};    // of the server: "http://127.0.0.1:11434"
  std::string key = {};    // empty = the server needs none
  std::string model = {};  // as the client is to name it
  int64_t num_ctx = 0;     // tokens; 0 = not known
  bool sees_images = false;
};

struct LaunchFile {
  std::filesystem::path path;
  std::string content;
};

struct LaunchPlan {
  std::vector<std::pair<std::string, std::string>> variables = {};
  std::vector<LaunchFile> files = {};     // of ours only: no file of the client is touched
  std::vector<std::string> command = {};  // program and arguments
  std::string install = {};               // the command that installs the program
  bool is_agent = true;                   // works with tools, in a long context
};

// `folder`: for our files. kInvalidArgument for a client that is not in kLaunchClients.
api::Result<LaunchPlan> PlanLaunch(std::string_view client, const LaunchTarget& target,
                                   const std::filesystem::path& folder);

// The plan as a person reads it; the key is masked.
std::string LaunchText(const LaunchPlan& plan, const LaunchTarget& target);

}  // namespace quire::cli
