// quire cache: what the daemon keeps of computed prompt prefixes on its disk.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "server/cli/client.h"

namespace quire::cli {

struct CacheOptions {
  std::string action = {};  // list, show, export, import, prune
  std::vector<std::string> arguments = {};
  std::string output = {};
  std::optional<std::string> key = {};
  std::string model = {};
  std::string unused = {};
  bool all = false;
};

// The exit code; errors go to stderr.
int Cache(Client& client, const CacheOptions& options);

// GET /quire/prefixes as a table; `model`: only its prefixes, unless empty.
api::Result<std::string> PrefixTable(std::string_view body, std::string_view model);
// GET /quire/prefixes/{id} as lines.
api::Result<std::string> PrefixText(std::string_view body);
// The body of DELETE /quire/prefixes. Errors name the option.
api::Result<std::string> PruneBody(const CacheOptions& options);

}  // namespace quire::cli
