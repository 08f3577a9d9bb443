// quired: serves language models over HTTP.

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/base/exceptions.h"
#include "server/daemon.h"
#include "server/nearest_name.h"
#include "server/self_test.h"

namespace {

// --help leaves out what is rarely used.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    all_ = mode == CLI::AppFormatMode::All;
    return CLI::Formatter::make_help(app, std::move(name), mode);
  }
  std::string make_group(std::string group, bool positional,
                         std::vector<const CLI::Option*> options) const override {
    if (group == quire::server::kRareOptions && !all_) return {};
    return CLI::Formatter::make_group(std::move(group), positional, std::move(options));
  }

 private:
  mutable bool all_ = false;
};

// What --help and --help-all show has a name that was probably meant.
void SuggestOption(const CLI::App& app) {
  std::vector<std::string> listed;
  for (const CLI::Option* option :
       app.get_options([](const CLI::Option* o) { return !o->get_group().empty(); }))
    for (const std::string& name : option->get_lnames()) listed.push_back("--" + name);
  const std::vector<std::string_view> names(listed.begin(), listed.end());
  for (const std::string& argument : app.remaining()) {
    if (!argument.starts_with("--")) continue;
    const std::string name = argument.substr(0, argument.find('='));
    std::cerr << "no option " << name << "; the nearest is " << quire::server::NearestName(name, names)
              << '\n';
  }
}

}  // namespace

int main(int argc, char** argv) {
  quire::api::InstallTerminateHandler("quired");
  CLI::App app("Quire: serves language models on CPUs over HTTP", "quired");
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_help_flag("-h,--help", "Show the options that are used often");
  app.set_help_all_flag("--help-all", "Show all options");
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
    const int status = app.exit(error);
    if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) SuggestOption(app);
    return status == 0 ? 0 : 1;
  }
  if (self_test) return static_cast<int>(quire::server::RunSelfTest(options));
  return quire::server::RunDaemon(options);
}
