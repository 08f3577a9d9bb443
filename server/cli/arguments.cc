#include "server/cli/arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <utility>

#include "server/cli/launch_plan.h"

namespace quire::cli {
namespace {

void DeclareRun(CLI::App& app, Arguments& arguments) {
  auto* run = app.add_subcommand("run", "Chat with a model or send it one prompt");
  run->add_option("MODEL", arguments.chat.model, "Model name, a GGUF file, or a directory of safetensors")
      ->required();
  run->add_option("PROMPT", arguments.words, "Prompt; standard input comes before it");
  run->add_option("--format", arguments.chat.format, "Output format: json or a JSON Schema");
  run->add_option("--keepalive", arguments.keep_alive,
                  "How long the model stays loaded (5m, -1 = never expires)");
  run->add_flag("--verbose", arguments.chat.verbose, "Print token counts and rates after each response");
  run->add_flag("--insecure", arguments.insecure, "Pull over HTTP if the registry does not support HTTPS");
  run->add_flag("--nowordwrap", arguments.no_word_wrap, "Disable word wrap");
  run->add_flag("--think{true}", arguments.chat.think,
                "Enable thinking; --think=VALUE: true, false, low, medium, high");
  run->add_flag("--hidethinking", arguments.chat.hide_thinking, "Hide the thinking");
}

void DeclareEmbed(CLI::App& app, Arguments& arguments) {
  auto* embed = app.add_subcommand("embed", "Print the embeddings of texts as JSON lines");
  embed->add_option("MODEL", arguments.model, "Model name")->required();
  embed->add_option("TEXT", arguments.words, "Texts; none or - reads the lines of standard input");
  embed->add_option("--dimensions", arguments.dimensions, "Leading elements of each embedding (default: all)")
      ->check(CLI::NonNegativeNumber);
  embed->add_option(
      "--input-type", arguments.input_type,
      "Prefix before each text, by its name in the model's files: query, document, clustering ...");
  auto* rerank = app.add_subcommand("rerank", "Sort documents by their relevance to a query");
  rerank->add_option("MODEL", arguments.model, "Model name")->required();
  rerank->add_option("QUERY", arguments.query, "Query")->required();
  rerank->add_option("DOC", arguments.words, "Documents; none or - reads the lines of standard input");
  rerank->add_option("--top", arguments.top, "Best documents to print (default: all)")
      ->check(CLI::NonNegativeNumber);
  rerank->add_option("--instruction", arguments.instruction,
                     "What makes a document relevant, for models that ask for it (Qwen3-Reranker)");
  rerank->add_flag("--json", arguments.json, "Print JSON lines");
}

void DeclareShow(CLI::App& app, Arguments& arguments) {
  auto* show = app.add_subcommand("show", "Show model information");
  show->add_option("MODEL", arguments.model, "Model name")->required();
  const std::array<CLI::Option*, 5> only = {
      show->add_flag("--license", arguments.show_license, "Show the license"),
      show->add_flag("--modelfile", arguments.show_modelfile, "Show the Modelfile"),
      show->add_flag("--parameters", arguments.show_parameters, "Show the parameters"),
      show->add_flag("--system", arguments.show_system, "Show the system message"),
      show->add_flag("--template", arguments.show_template, "Show the prompt template")};
  for (CLI::Option* one : only) {
    for (CLI::Option* other : only) {
      if (one != other) one->excludes(other);
    }
  }
  show->add_flag("-v,--verbose", arguments.verbose, "Show all metadata and tensors");
  show->add_flag("--check", arguments.check, "Check whether the model would load, from its headers")
      ->excludes("--verbose");
}

void DeclareStore(CLI::App& app, Arguments& arguments) {
  auto* create = app.add_subcommand("create", "Create a model from a Modelfile");
  create->add_option("MODEL", arguments.create.model, "Name of the new model")->required();
  create->add_option("-f,--file", arguments.create.modelfile,
                     "Path of the Modelfile; - reads standard input (default: Modelfile)");
  create->add_option("-q,--quantize", arguments.create.quantize,
                     "Quantize the weights to this type (f16, bf16, q8_0, q6_K, q4_K_M, q4_K_S, q4_0)");
  create->add_option("--draft-quantize,--quantize-draft", arguments.create.draft_quantize,
                     "Quantize the draft model's weights to this type");
  DeclareShow(app, arguments);
  auto* list = app.add_subcommand("list", "List local models")->alias("ls");
  list->add_option("PREFIX", arguments.prefix, "Only names that start with this prefix");
  app.add_subcommand("ps", "List loaded models");
  app.add_subcommand("ready", "Check whether the daemon accepts requests, for health checks");
  auto* stop = app.add_subcommand("stop", "Unload a model");
  stop->add_option("MODEL", arguments.model, "Model name")->required();
  auto* cp = app.add_subcommand("cp", "Copy a model to a new name");
  cp->add_option("SOURCE", arguments.source, "Model name")->required();
  cp->add_option("DESTINATION", arguments.destination, "New name")->required();
  auto* rm = app.add_subcommand("rm", "Delete models");
  rm->add_option("MODEL", arguments.models, "Model names")->required();
  for (const auto& [name, what] :
       {std::pair{"pull", "Pull a model from a registry"}, std::pair{"push", "Push a model to a registry"}}) {
    auto* transfer = app.add_subcommand(name, what);
    transfer->add_option("MODEL", arguments.model, "Model name, including the registry host")->required();
    transfer->add_flag("--insecure", arguments.insecure, "Use HTTP if the registry does not support HTTPS");
  }
}

void DeclareSearch(CLI::App& app, Arguments& arguments) {
  auto* search = app.add_subcommand("search", "Find models on Hugging Face, or on the mirror HF_ENDPOINT");
  search->add_option("WORD", arguments.query, "Part of a model's name")->required();
}

void DeclareLaunch(CLI::App& app, LaunchOptions& launch) {
  auto* command = app.add_subcommand(
      "launch",
      fmt::format("Start a coding agent with a model of this server: {}", fmt::join(kLaunchClients, ", ")));
  command->add_option("CLIENT", launch.client, "The agent or chat program")->required();
  command->add_option("ARGUMENTS", launch.arguments, "Arguments of the agent, after --");
  command->add_option("--model", launch.model, "Model name (default: the only model)");
  command->add_flag("--print", launch.print_only, "Only print the agent's settings; write and start nothing");
}

void DeclareCache(CLI::App& app, CacheOptions& cache) {
  auto* command = app.add_subcommand(
      "cache", "List, show, export, import or remove computed prompt prefixes on the daemon's disk");
  command->add_option("ACTION", cache.action, "list, show, export, import or prune")
      ->required()
      ->check(CLI::IsMember({"list", "show", "export", "import", "prune"}));
  command->add_option("ARGUMENT", cache.arguments, "Ids of prefixes; files to import");
  command->add_option("--output", cache.output, "File to export to");
  command->add_option("--key", cache.key,
                      "API key that imported prefixes become those of; empty: clients without a key "
                      "(default: a key of the same name as where they were exported)");
  command->add_option("--model", cache.model, "List or prune only prefixes of this model");
  command->add_option("--unused", cache.unused,
                      "Prune only prefixes that were not used for so long (36h, 30m)");
  command->add_flag("--all", cache.all, "Prune all prefixes");
}

void DeclareFleet(CLI::App& app, FleetOptions& fleet) {
  auto* command = app.add_subcommand("fleet", "Show the nodes of a fleet");
  command->add_option("ACTION", fleet.action, "status")->required()->check(CLI::IsMember({"status"}));
  command->add_option("NODE", fleet.nodes,
                      "NAME=[https://]HOST[:PORT] (default: those of QUIRE_FLEET, else this daemon)");
  command->add_option("--ca", fleet.ca_file,
                      "Certificates that sign the nodes' (PEM; default: QUIRE_FLEET_CA, else the system's)");
  command->add_flag("--json", fleet.json, "Print the nodes' reports as JSON lines");
}

void DeclareUpkeep(CLI::App& app, Arguments& arguments) {
  auto* key = app.add_subcommand(
      "key", "Create an API key: print its secret and its line for the daemon's key file; or remove one");
  key->add_option("NAME", arguments.key.name, "Name of the key")->required();
  key->add_flag("--admin", arguments.key.admin,
                "Also allow creating, copying, deleting, pulling and pushing models");
  key->add_option("--weight", arguments.key.limits.weight,
                  "Scheduling weight relative to other keys (default: 1)");
  key->add_option("--parallel", arguments.key.limits.parallel,
                  "Maximum concurrent requests (default: unlimited)");
  key->add_option("--per-minute", arguments.key.limits.per_minute,
                  "Maximum requests per minute (default: unlimited)");
  auto* doctor = app.add_subcommand("doctor", "Diagnose problems");
  doctor->add_option("--user", arguments.doctor.user,
                     "User whose permissions to check (default: the service user)");
  doctor->add_flag("--models", arguments.doctor.models,
                   "Check whether each model of the store would load, from its headers");
  auto* append = key->add_option("--append", arguments.key.file, "Append the line to this key file");
  append->type_name("FILE");
  key->add_option("--remove", arguments.key.remove_from, "Remove the key from this key file")
      ->type_name("FILE")
      ->excludes(append);
}

}  // namespace

void Declare(CLI::App& app, Arguments& arguments) {
  app.name("quire");
  app.description("Quire: language models on CPUs");
  app.set_version_flag("-v,--version", "quire version " QUIRE_VERSION);
  app.require_subcommand(0, 1);
  auto* serve = app.add_subcommand("serve", "Run the daemon (same as quired)");
  arguments.daemon.AddTo(*serve);
  serve->add_flag(
      "--selftest", arguments.self_test,
      "Check this installation on this machine, then exit: kernels, sandbox, an answer of the bundled model");
  DeclareRun(app, arguments);
  DeclareEmbed(app, arguments);
  DeclareStore(app, arguments);
  DeclareSearch(app, arguments);
  DeclareLaunch(app, arguments.launch);
  DeclareCache(app, arguments.cache);
  DeclareFleet(app, arguments.fleet);
  DeclareUpkeep(app, arguments);
  auto* help = app.add_subcommand("help", "Show the help of a command");
  help->add_option("COMMAND", arguments.help_topic, "Name of the command (default: the program)");
  app.allow_extras();  // after the commands, which would inherit it: the program reports unknown
                       // commands
}

bool NamesModel(const CLI::Option& option) {
  const std::string& name = option.get_single_name();
  return name == "MODEL" || name == "SOURCE" || name == "PREFIX";
}

}  // namespace quire::cli
