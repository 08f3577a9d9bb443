// quired: serves language models over HTTP.

#include <CLI/CLI.hpp>

#include "server/daemon.h"
#include "server/self_test.h"

int main(int argc, char** argv) {
  CLI::App app("Quire: serves language models on CPUs over HTTP", "quired");
  app.set_version_flag("-v,--version", "quired version " QUIRE_VERSION);
  quire::server::OptionTable options;
  options.AddTo(app);
  bool self_test = false;
  app.add_flag(
      "--selftest", self_test,
      "Check this installation on this machine, then exit: kernels, sandbox, an answer of the bundled model");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 1;
  }
  if (self_test) return static_cast<int>(quire::server::RunSelfTest(options));
  return quire::server::RunDaemon(options);
}
