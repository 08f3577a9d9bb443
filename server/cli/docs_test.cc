#include "server/cli/docs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <cstdio>
#include <string>
#include <vector>

#include "server/cli/arguments.h"

namespace quire::cli {
namespace {

using ::testing::HasSubstr;

class DocsTest : public ::testing::Test {
 protected:
  DocsTest() { Declare(app_, arguments_); }
  std::vector<const CLI::App*> Commands() const {
    const CLI::App& app = app_;
    return app.get_subcommands([](const CLI::App*) { return true; });
  }
  Arguments arguments_;
  CLI::App app_;
};

// The exit status of a shell that reads the script without running it; 127 where there is no such shell.
int Reads(const std::string& shell, const std::string& script) {
  std::FILE* pipe =
      ::popen(("command -v " + shell + " >/dev/null || exit 127; exec " + shell + " -n").c_str(), "w");
  ::signal(SIGPIPE, SIG_IGN);  // of a shell that is not there
  std::fwrite(script.data(), 1, script.size(), pipe);
  return WEXITSTATUS(::pclose(pipe));
}

TEST_F(DocsTest, EveryCommandAndOptionIsEverywhere) {
  const std::string man = ManPage(app_), daemon = DaemonManPage(*app_.get_subcommand("serve"));
  const std::string bash = BashCompletion(app_), zsh = ZshCompletion(app_), fish = FishCompletion(app_);
  ASSERT_GE(Commands().size(), 11U);
  for (const CLI::App* command : Commands()) {
    const std::string name = command->get_name();
    EXPECT_FALSE(command->get_description().empty()) << name;
    EXPECT_THAT(man, HasSubstr("\\fBquire " + name + "\\fR"));
    EXPECT_THAT(bash, HasSubstr("      " + name));
    EXPECT_THAT(zsh, HasSubstr("'" + name + ":"));
    EXPECT_THAT(fish, HasSubstr("-a " + name + " "));
    for (const CLI::Option* option : command->get_options()) {
      if (option->get_group().empty()) continue;  // without effect any more
      EXPECT_FALSE(option->get_description().empty()) << name << " " << option->get_name();
      for (const std::string& spelling : option->get_lnames()) {
        EXPECT_THAT(bash, HasSubstr("--" + spelling));
        EXPECT_THAT(zsh, HasSubstr("'--" + spelling + "["));
        EXPECT_THAT(fish, HasSubstr("-l " + spelling));
        std::string roff = "--" + spelling;
        for (size_t at = 0; (at = roff.find('-', at)) != std::string::npos; at += 2) roff.insert(at, "\\");
        EXPECT_THAT(name == "serve" ? daemon : man, HasSubstr(roff));
      }
    }
  }
}

TEST_F(DocsTest, ShellsReadTheirCompletions) {
  EXPECT_EQ(Reads("bash", BashCompletion(app_)), 0);
  EXPECT_THAT(Reads("zsh", ZshCompletion(app_)), ::testing::AnyOf(0, 127));
  EXPECT_THAT(Reads("fish", FishCompletion(app_)), ::testing::AnyOf(0, 127));
}

}  // namespace
}  // namespace quire::cli
