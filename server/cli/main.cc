// quire: the command-line client. Talks to the daemon at OLLAMA_HOST; `quire serve` is the daemon itself.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <clocale>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "server/cli/arguments.h"
#include "server/cli/cache.h"
#include "server/cli/chat.h"
#include "server/cli/client.h"
#include "server/cli/commands.h"
#include "server/cli/create.h"
#include "server/cli/embed.h"
#include "server/cli/fleet.h"
#include "server/cli/hub.h"
#include "server/cli/launch.h"
#include "server/cli/local_model.h"
#include "server/cli/model_check.h"
#include "server/cli/own_daemon.h"
#include "server/cli/repl.h"
#include "server/cli/terminal.h"
#include "server/daemon.h"
#include "server/options.h"
#include "server/self_test.h"

namespace quire::cli {
namespace {

constexpr int kInputWaitMs = 2000;

// The daemon's address as a client reaches it: a wildcard address means this machine.
api::Result<Endpoint> DaemonEndpoint() {
  const char* text = std::getenv("OLLAMA_HOST");
  const char* own_socket = std::getenv("QUIRE_UNIX_SOCKET");  // where the daemon listens too
  if ((text == nullptr || *text == '\0') && own_socket != nullptr && *own_socket == '/')
    return Endpoint{.host = {}, .unix_socket = own_socket};
  const auto address = server::ParseHostAddress(text != nullptr ? text : "");
  if (!address) return std::unexpected(address.error());
  if (!address->unix_socket.empty()) return Endpoint{.host = {}, .unix_socket = address->unix_socket};
  const size_t path_end = address->path.find_last_not_of('/') + 1;  // 0: slashes alone
  const bool any = address->host == "0.0.0.0" || address->host == "::";
  return Endpoint{.host = any ? "127.0.0.1" : address->host,
                  .port = address->port,
                  .https = address->https,
                  .path = path_end > 0 ? "/" + address->path.substr(0, path_end) : std::string()};
}

bool IsSet(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0' && std::string_view(value) != "0" &&
         std::string_view(value) != "false";
}

// Standard input that is no terminal. Beside a prompt it may be left open by a program that never writes: it
// has a few seconds.
std::string ReadInput(bool has_prompt) {
  pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  if (has_prompt && ::poll(&input, 1, kInputWaitMs) == 0) {
    fmt::print(stderr, "nothing came on standard input in {} s; answering without it\n", kInputWaitMs / 1000);
    return {};
  }
  return ReadAll(stdin);
}

int Run(Client& client, const Arguments& arguments) {
  if (!arguments.chat.think.empty()) {
    if (const auto known = CheckThink(arguments.chat.think); !known) return PrintError(known.error());
  }
  const auto local = FindLocalModel(arguments.chat.model);
  if (!local) return PrintError(local.error());
  std::vector<std::string> parts = arguments.words;
  const bool terminal = isatty(STDIN_FILENO) != 0;
  if (!terminal) {
    if (std::string input = ReadInput(!parts.empty()); !input.empty())
      parts.insert(parts.begin(), std::move(input));
  }
  const std::string question = fmt::format("{}", fmt::join(parts, " "));
  ChatOptions options = arguments.chat;
  options.word_wrap = !arguments.no_word_wrap;
  if (!arguments.keep_alive.empty()) options.keep_alive = arguments.keep_alive;
  if (*local) options.model = (*local)->name;
  Chat chat(client, std::move(options));
  const int failed = *local ? StoreLocalModel(client, **local)
                            : PullIfMissing(client, arguments.chat.model, arguments.insecure);
  if (failed != 0) return failed;
  if (question.empty() && (!parts.empty() || !terminal)) {  // quire run MODEL "", or </dev/null
    const auto loaded = chat.Load();
    return loaded ? 0 : PrintError(loaded.error());
  }
  if (question.empty() && terminal) return Repl(chat, !IsSet("OLLAMA_NOHISTORY")).Run();
  const auto answered = chat.Send(question);
  return answered ? 0 : PrintError(answered.error());
}

// Characters are UTF-8 also where no locale is set, as on a bare console.
void SetUpLocale() {
  if (std::setlocale(LC_CTYPE, "") == nullptr || MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
}

// For commands that only look at the store. Where no daemon runs, one answers that ends with the command.
int WithDaemon(const Endpoint& endpoint, const std::function<int(Client&)>& command) {
  if (!MayStartOwnDaemon(endpoint)) {
    Client client(endpoint);
    return command(client);
  }
  auto own = OwnDaemon::Start();
  if (!own) return PrintError(own.error());
  Client client((*own)->endpoint());
  if (const auto ready = client.Get("/api/version"); !ready) {
    return PrintError(
        {api::ErrorCode::kUnavailable, fmt::format("no daemon runs at {}, and none can be started: {}",
                                                   Client(endpoint).Url(), (*own)->StopAndTellWhy())});
  }
  return command(client);
}

int Do(const std::string& command, const Arguments& arguments) {
  if (command == "serve" && arguments.self_test)
    return static_cast<int>(server::RunSelfTest(arguments.daemon));
  if (command == "serve") return server::RunDaemon(arguments.daemon);
  if (command == "key") return ChangeKeys(arguments.key);
  if (command == "search") return Search(arguments);
  const auto endpoint = DaemonEndpoint();
  if (command == "doctor" && !arguments.doctor.models) return Doctor(arguments.doctor, endpoint);
  if (!endpoint) return PrintError(endpoint.error());
  if (command == "doctor") return WithDaemon(*endpoint, CheckModels);
  if (command == "show" && arguments.check) {
    return WithDaemon(*endpoint, [&arguments](Client& client) { return Show(client, arguments); });
  }
  if (command == "fleet") return Fleet(*endpoint, arguments.fleet);
  Client client(*endpoint);
  if (command == "run") return Run(client, arguments);
  if (command == "launch") return Launch(client, arguments.launch);
  if (command == "cache") return Cache(client, arguments.cache);
  if (command == "embed") return Embed(client, arguments);
  if (command == "rerank") return Rerank(client, arguments);
  if (command == "create") return Create(client, arguments.create);
  if (command == "show") return Show(client, arguments);
  if (command == "list") return List(client, arguments);
  if (command == "ps") return Ps(client);
  if (command == "ready") return Ready(client);
  if (command == "stop") return Stop(client, arguments);
  if (command == "cp") return Copy(client, arguments);
  if (command == "rm") return Remove(client, arguments);
  if (command == "push") return Push(client, arguments);
  return PullModel(client, arguments.model, arguments.insecure);
}

// The help of the program, or of one of its commands.
int Help(const CLI::App& app, const std::string& name) {
  if (name.empty()) {
    fmt::print("{}", app.get_formatter()->make_help(&app, app.get_name(), CLI::AppFormatMode::Normal));
    return 0;
  }
  const auto named = app.get_subcommands([&name](const CLI::App* each) { return each->check_name(name); });
  if (named.empty()) {
    return PrintError(
        {api::ErrorCode::kInvalidArgument, fmt::format("unknown command \"{}\"; see quire --help", name)});
  }
  fmt::print("{}", named.front()->help(app.get_name()));
  return 0;
}

// Help and the version are no errors; an error says of which command it is.
int ReportUsage(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return app.exit(error);
  const auto commands = app.get_subcommands();
  const std::string command = commands.empty() ? "quire" : "quire " + commands.front()->get_name();
  std::string message = error.what();
  while (message.ends_with('\n')) message.pop_back();
  return PrintError(
      {api::ErrorCode::kInvalidArgument, fmt::format("{}: {}; see {} --help", command, message, command)});
}

int Main(int argc, char** argv) {
  SetUpLocale();
  CLI::App app;
  Arguments arguments;
  Declare(app, arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return ReportUsage(app, error);
  }
  if (!app.get_subcommands().empty()) {
    const std::string command = app.get_subcommands().front()->get_name();
    return command == "help" ? Help(app, arguments.help_topic) : Do(command, arguments);
  }
  if (const auto words_left = app.remaining(); !words_left.empty()) {
    return PrintError({api::ErrorCode::kInvalidArgument,
                       fmt::format("unknown command \"{}\"; see quire --help", words_left.front())});
  }
  fmt::print("{}", app.help());
  return 0;
}

}  // namespace
}  // namespace quire::cli

int main(int argc, char** argv) {
  try {
    return quire::cli::FlushOutput(quire::cli::Main(argc, argv));
  } catch (const std::system_error& error) {  // of a full disk, where output is too long for its buffer
    return quire::cli::PrintError({quire::api::ErrorCode::kUnavailable, error.what()});
  }
}
