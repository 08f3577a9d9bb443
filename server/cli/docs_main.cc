// quire-docs FOLDER: writes man pages and completions as they lie below /usr/share.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "server/cli/arguments.h"
#include "server/cli/docs.h"

namespace quire::cli {
namespace {

bool Write(const std::filesystem::path& path, const std::string& text) {
  std::error_code ignored;
  std::filesystem::create_directories(path.parent_path(), ignored);
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) fmt::print(stderr, "quire-docs: {}: cannot be written\n", path.string());
  return file.good();
}

int Main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: quire-docs FOLDER\n");
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  CLI::App app;
  Arguments arguments;
  Declare(app, arguments);
  const bool written = Write(folder / "man/man1/quire.1", ManPage(app)) &&
                       Write(folder / "man/man1/quired.1", DaemonManPage(*app.get_subcommand("serve"))) &&
                       Write(folder / "bash-completion/completions/quire", BashCompletion(app)) &&
                       Write(folder / "zsh/vendor-completions/_quire", ZshCompletion(app)) &&
                       Write(folder / "fish/vendor_completions.d/quire.fish", FishCompletion(app));
  return written ? 0 : 1;
}

}  // namespace
}  // namespace quire::cli

int main(int argc, char** argv) { return quire::cli::Main(argc, argv); }
