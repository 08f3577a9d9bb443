// quired: serves language models over HTTP.

#include <CLI/CLI.hpp>

#include "server/daemon.h"

int main(int argc, char** argv) {
  CLI::App app("Quire: serves language models on CPUs over HTTP", "quired");
  app.set_version_flag("-v,--version", "quired version " QUIRE_VERSION);
  quire::server::OptionTable options;
  options.AddTo(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 1;
  }
  return quire::server::RunDaemon(options);
}
