// `quire launch`: starts a coding agent that works with this server.
#pragma once

#include <string>
#include <vector>

#include "server/cli/client.h"

namespace quire::cli {

struct LaunchOptions {
  std::string client = {};
  std::string model = {};  // empty: the only one that there is
  std::vector<std::string> arguments = {};
  bool print_only = false;
};

// Shows the settings, writes the files that they need and becomes the client; returns only on an error, or
// with print_only.
int Launch(Client& client, const LaunchOptions& options);

}  // namespace quire::cli
