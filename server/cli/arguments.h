// The command line of `quire`: every command and option is declared here once. The program, its man page and
// the completions of the shells are made of this declaration.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "server/cli/cache.h"
#include "server/cli/chat.h"
#include "server/cli/create.h"
#include "server/cli/doctor.h"
#include "server/cli/fleet.h"
#include "server/cli/key.h"
#include "server/cli/launch.h"
#include "server/options.h"

namespace quire::cli {

// The parsed command line. Outlives the App that Declare() filled.
struct Arguments {
  server::OptionTable daemon;
  bool self_test = false;  // instead of serving
  ChatOptions chat;
  std::string keep_alive;
  std::vector<std::string> words;
  bool no_word_wrap = false;
  CreateOptions create;
  std::string model;
  std::vector<std::string> models;
  std::string source, destination;
  std::string prefix;
  bool insecure = false;
  KeyOptions key;
  DoctorOptions doctor;
  LaunchOptions launch;
  CacheOptions cache;
  FleetOptions fleet;
  std::string help_topic;
  bool verbose = false;
  bool check = false;
  std::string query;  // of rerank and search
  std::string input_type, instruction;
  int32_t dimensions = 0, top = 0;
  bool json = false;
  bool show_license = false, show_modelfile = false, show_parameters = false, show_system = false,
       show_template = false;
};

void Declare(CLI::App& app, Arguments& arguments);

// Positionals that name a model of the store; completions offer those.
bool NamesModel(const CLI::Option& option);

}  // namespace quire::cli
