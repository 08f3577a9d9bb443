// quire-docs FOLDER: writes man pages and completions as they lie below /usr/share.
// quire-docs --api ROOT: renews docs/openapi.json and the table of docs/api.md in a tree of sources.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "server/cli/api_docs.h"
#include "server/cli/arguments.h"
#include "server/cli/docs.h"
#include "server/daemon.h"

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

std::string Read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

int RenewApiDocs(const std::filesystem::path& root) {
  const std::vector<server::Route> routes = server::DaemonRoutes();
  const auto page = WithRouteTable(Read(root / "docs/api.md"), routes);
  if (!page) {
    fmt::print(stderr, "quire-docs: docs/api.md has no place for the table\n");
    return 1;
  }
  const std::string document = OpenApiOf(routes, Read(root / "server/routes/schemas.json"));
  return Write(root / "docs/openapi.json", document) && Write(root / "docs/api.md", *page) ? 0 : 1;
}

int Main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--api") return RenewApiDocs(argv[2]);
  if (argc != 2) {
    fmt::print(stderr, "usage: quire-docs FOLDER | --api ROOT\n");
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
