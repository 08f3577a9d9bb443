#include "server/cli/arguments.h"

#include <array>
#include <utility>

namespace quire::cli {
namespace {

void DeclareRun(CLI::App& app, Arguments& arguments) {
  auto* run = app.add_subcommand("run", "Chat with a model, or ask it one question");
  run->add_option("MODEL", arguments.chat.model, "Model name")->required();
  run->add_option("PROMPT", arguments.words, "Question; standard input is added to it");
  run->add_option("--format", arguments.chat.format, "Form of the answer: json, or a JSON Schema");
  run->add_option("--keepalive", arguments.keep_alive, "How long the model stays loaded (5m, -1 = for ever)");
  run->add_flag("--verbose", arguments.chat.verbose, "Print counts and rates after each answer");
  run->add_flag("--nowordwrap", arguments.no_word_wrap, "Do not break lines between words");
  run->add_flag("--think{true}", arguments.chat.think,
                "Let the model think first; --think=VALUE: true, false, low, medium, high");
  run->add_flag("--hidethinking", arguments.chat.hide_thinking, "Do not show what the model thinks");
}

void DeclareShow(CLI::App& app, Arguments& arguments) {
  auto* show = app.add_subcommand("show", "Show what a model is");
  show->add_option("MODEL", arguments.model, "Model name")->required();
  const std::array<CLI::Option*, 5> only = {
      show->add_flag("--license", arguments.show_license, "Show its licence"),
      show->add_flag("--modelfile", arguments.show_modelfile, "Show the Modelfile that would make it"),
      show->add_flag("--parameters", arguments.show_parameters, "Show its parameters"),
      show->add_flag("--system", arguments.show_system, "Show its system message"),
      show->add_flag("--template", arguments.show_template, "Show its prompt template")};
  for (CLI::Option* one : only) {
    for (CLI::Option* other : only) {
      if (one != other) one->excludes(other);
    }
  }
  show->add_flag("-v,--verbose", arguments.verbose, "Show all metadata and tensors");
}

void DeclareStore(CLI::App& app, Arguments& arguments) {
  auto* create = app.add_subcommand("create", "Make a model from a Modelfile");
  create->add_option("MODEL", arguments.create.model, "Name of the new model")->required();
  create->add_option("-f,--file", arguments.create.modelfile,
                     "The Modelfile; - is standard input (default: Modelfile)");
  create->add_option("-q,--quantize", arguments.create.quantize,
                     "Type of its weights (f16, bf16, q8_0, q6_K, q4_K_M, q4_K_S, q4_0)");
  create->add_option("--draft-quantize,--quantize-draft", arguments.create.draft_quantize,
                     "Type of its draft model's weights");
  DeclareShow(app, arguments);
  auto* list = app.add_subcommand("list", "List the models in the store")->alias("ls");
  list->add_option("PREFIX", arguments.prefix, "Only names that start like this");
  app.add_subcommand("ps", "List the models that are loaded");
  auto* stop = app.add_subcommand("stop", "Unload a model");
  stop->add_option("MODEL", arguments.model, "Model name")->required();
  auto* cp = app.add_subcommand("cp", "Give a model another name");
  cp->add_option("SOURCE", arguments.source, "Model name")->required();
  cp->add_option("DESTINATION", arguments.destination, "New name")->required();
  auto* rm = app.add_subcommand("rm", "Delete models");
  rm->add_option("MODEL", arguments.models, "Model names")->required();
  for (const auto& [name, what] : {std::pair{"pull", "Fetch a model from a registry"},
                                   std::pair{"push", "Send a model to a registry"}}) {
    auto* transfer = app.add_subcommand(name, what);
    transfer->add_option("MODEL", arguments.model, "Model name, with its registry's host")->required();
    transfer->add_flag("--insecure", arguments.insecure, "Use HTTP where the registry has no HTTPS");
  }
}

void DeclareUpkeep(CLI::App& app, Arguments& arguments) {
  auto* key =
      app.add_subcommand("key", "Make an API key: print its secret, and its line for the daemon's key file");
  key->add_option("NAME", arguments.key.name, "Who will use it")->required();
  key->add_flag("--admin", arguments.key.admin, "It may also create, copy, delete, pull and push models");
  key->add_option("--weight", arguments.key.limits.weight,
                  "Its share of the machine beside other keys (default: 1)");
  key->add_option("--parallel", arguments.key.limits.parallel,
                  "Requests that it may have at once (default: any)");
  key->add_option("--per-minute", arguments.key.limits.per_minute, "Requests a minute (default: any)");
  auto* doctor = app.add_subcommand("doctor", "Look for what keeps the daemon from working");
  doctor->add_option("--user", arguments.doctor.user,
                     "Whose rights to look at (default: the service's user)");
  key->add_option("--append", arguments.key.file, "Add the line to this key file")->type_name("FILE");
}

}  // namespace

void Declare(CLI::App& app, Arguments& arguments) {
  app.name("quire");
  app.description("Quire: language models on CPUs");
  app.set_version_flag("-v,--version", "quire version " QUIRE_VERSION);
  app.require_subcommand(0, 1);
  auto* serve = app.add_subcommand("serve", "Run the daemon (the same as quired)");
  arguments.daemon.AddTo(*serve);
  DeclareRun(app, arguments);
  DeclareStore(app, arguments);
  DeclareUpkeep(app, arguments);
  app.allow_extras();  // after the commands, which would inherit it: an unknown command is told of by the
                       // program
}

bool NamesModel(const CLI::Option& option) {
  const std::string& name = option.get_single_name();
  return name == "MODEL" || name == "SOURCE" || name == "PREFIX";
}

}  // namespace quire::cli
