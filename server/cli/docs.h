// Man pages and shell completions, written from the declaration of the command line.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace quire::cli {

// quire(1), as roff.
std::string ManPage(const CLI::App& app);
// quired(1): the options of the command that runs the daemon.
std::string DaemonManPage(const CLI::App& serve);

std::string BashCompletion(const CLI::App& app);
std::string ZshCompletion(const CLI::App& app);
std::string FishCompletion(const CLI::App& app);

}  // namespace quire::cli
