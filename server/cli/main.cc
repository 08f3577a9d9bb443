// quire: the command-line client. Talks to the daemon at OLLAMA_HOST; `quire serve` is the daemon itself.

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <clocale>
#include <cstdlib>

#include "server/cli/chat.h"
#include "server/cli/client.h"
#include "server/cli/lists.h"
#include "server/daemon.h"
#include "server/options.h"

namespace quire::cli {
namespace {

int Complain(const api::Error& error) {
  fmt::print(stderr, "Error: {}\n", error.message);
  return 1;
}

// The daemon's address as a client reaches it: a wildcard address means this machine.
api::Result<Endpoint> DaemonEndpoint() {
  const char* text = std::getenv("OLLAMA_HOST");
  const auto address = server::ParseHostAddress(text != nullptr ? text : "");
  if (!address) return std::unexpected(address.error());
  const bool any = address->host == "0.0.0.0" || address->host == "::";
  return Endpoint{any ? "127.0.0.1" : address->host, address->port};
}

Seconds Now() { return std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now()); }

int List(Client& client, const std::string& prefix) {
  const auto body = client.Get("/api/tags");
  if (!body) return Complain(body.error());
  const auto table = ListTable(*body, prefix, Now());
  if (!table) return Complain(table.error());
  fmt::print("{}", *table);
  return 0;
}

int Ps(Client& client) {
  const auto body = client.Get("/api/ps");
  if (!body) return Complain(body.error());
  const auto table = PsTable(*body, Now());
  if (!table) return Complain(table.error());
  fmt::print("{}", *table);
  return 0;
}

int Run(Client& client, const ChatOptions& options, const std::vector<std::string>& words) {
  std::string question = fmt::format("{}", fmt::join(words, " "));
  const bool terminal = isatty(STDIN_FILENO) != 0;
  if (!terminal) {
    const std::string input = ReadAll(stdin);
    if (!input.empty()) question += (question.empty() ? "" : "\n\n") + input;
  }
  Chat chat(client, options);
  if (question.empty() && terminal) return chat.Converse();
  if (question.empty())
    return Complain({api::ErrorCode::kInvalidArgument, "nothing to ask: no prompt and no input"});
  const auto answered = chat.Ask(question);
  return answered ? 0 : Complain(answered.error());
}

// Characters are UTF-8 also where no locale is set, as on a bare console.
void SetUpLocale() {
  if (std::setlocale(LC_CTYPE, "") == nullptr || MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
}

int Main(int argc, char** argv) {
  SetUpLocale();
  CLI::App app("Quire: language models on CPUs", "quire");
  app.set_version_flag("-v,--version", "quire version " QUIRE_VERSION);
  app.require_subcommand(0, 1);

  auto* serve = app.add_subcommand("serve", "Run the daemon (the same as quired)");
  server::OptionTable daemon_options;
  daemon_options.AddTo(*serve);

  ChatOptions chat;
  std::string keep_alive;
  std::vector<std::string> words;
  auto* run = app.add_subcommand("run", "Chat with a model, or ask it one question");
  run->add_option("MODEL", chat.model, "Model name")->required();
  run->add_option("PROMPT", words, "Question; standard input is added to it");
  run->add_flag("--verbose", chat.verbose, "Print counts and rates after each answer");
  run->add_option("--keepalive", keep_alive, "How long the model stays loaded (5m, -1 = for ever)");

  std::string prefix;
  auto* list = app.add_subcommand("list", "List the models in the store")->alias("ls");
  list->add_option("PREFIX", prefix, "Only names that start like this");
  auto* ps = app.add_subcommand("ps", "List the models that are loaded");
  app.allow_extras();  // after the commands, which would inherit it: only an unknown command is told of below

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 1;
  }
  if (app.get_subcommands().empty()) {
    if (const auto words_left = app.remaining(); !words_left.empty()) {
      return Complain({api::ErrorCode::kInvalidArgument,
                       fmt::format("unknown command \"{}\"; quire --help lists them", words_left.front())});
    }
    fmt::print("{}", app.help());
    return 0;
  }
  if (serve->parsed()) return server::RunDaemon(daemon_options);

  const auto endpoint = DaemonEndpoint();
  if (!endpoint) return Complain(endpoint.error());
  Client client(*endpoint);
  if (!keep_alive.empty()) chat.keep_alive = keep_alive;
  if (run->parsed()) return Run(client, chat, words);
  if (list->parsed()) return List(client, prefix);
  return ps->parsed() ? Ps(client) : 1;
}

}  // namespace
}  // namespace quire::cli

int main(int argc, char** argv) { return quire::cli::Main(argc, argv); }
