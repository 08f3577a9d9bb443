#include "server/cli/repl.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "server/cli/image_paths.h"
#include "server/cli/show.h"

namespace quire::cli {
namespace {

constexpr std::string_view kQuotes = "\"\"\"";  // around a multi-line message
constexpr std::string_view kHint = "Send a message (/? for help)";
constexpr std::array<std::string_view, 9> kCommands = {"/bye",  "/exit", "/clear", "/set", "/show",
                                                       "/load", "/save", "/?",     "/help"};
constexpr std::string_view kHelp =
    "Available commands:\n"
    "  /set            change a session setting; /set alone lists them\n"
    "  /show           show model information: info, license, modelfile, parameters, system, template\n"
    "  /load MODEL     switch to another model\n"
    "  /save NAME      save the session as a model\n"
    "  /clear          clear the conversation\n"
    "  /bye            exit (or Ctrl-D)\n"
    "  /? or /help     show this help\n"
    "\"\"\" begins and ends a multi-line message; a pasted text is one message. Ctrl-C stops a response.\n"
    "The path of a PNG, JPEG or WebP file (./a.png) adds the image, if the model sees images.\n";
constexpr std::string_view kSetHelp =
    "Available settings:\n"
    "  /set system TEXT              system message of this session, in \"\"\" if multi-line\n"
    "  /set parameter NAME VALUE     an option, such as temperature, num_ctx, seed or stop\n"
    "  /set history | nohistory      enable or disable history\n"
    "  /set wordwrap | nowordwrap    enable or disable word wrap\n"
    "  /set format json | noformat   enable or disable JSON output\n"
    "  /set verbose | quiet          show or hide statistics after each response\n"
    "  /set think [LEVEL] | nothink  enable or disable thinking; LEVEL: low, medium, high, max\n";
constexpr std::string_view kShowHelp =
    "Available information:\n"
    "  /show info          model information\n"
    "  /show license       license\n"
    "  /show modelfile     Modelfile\n"
    "  /show parameters    parameters, including those of this session\n"
    "  /show system        system message of the model or this session\n"
    "  /show template      prompt template\n";

// Removes the next word from `text` and returns it.
std::string_view ConsumeWord(std::string_view& text) {
  const size_t begin = std::min(text.find_first_not_of(' '), text.size());
  const size_t end = std::min(text.find(' ', begin), text.size());
  const std::string_view word = text.substr(begin, end - begin);
  text.remove_prefix(std::min(text.find_first_not_of(' ', end), text.size()));
  return word;
}

std::filesystem::path HistoryFile() {
  const char* home = std::getenv("HOME");
  return home != nullptr && *home != '\0' ? std::filesystem::path(home) / ".quire_history" : "";
}

// Ctrl-C ends a line or an answer, never the conversation: between the two it waits until the next of them
// asks for it.
class ScopedInterruptBlock {
 public:
  ScopedInterruptBlock() {
    sigset_t interrupt;
    ::sigemptyset(&interrupt);
    ::sigaddset(&interrupt, SIGINT);
    ::pthread_sigmask(SIG_BLOCK, &interrupt, &before_);
  }
  ~ScopedInterruptBlock() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  ScopedInterruptBlock(const ScopedInterruptBlock&) = delete;
  ScopedInterruptBlock& operator=(const ScopedInterruptBlock&) = delete;

 private:
  sigset_t before_{};
};

// Whether it begins with a slash and is to be carried out. A text of several lines that begins with a path is
// not, nor is an image that was dropped on the terminal.
bool IsCommand(std::string_view message) {
  if (!message.starts_with('/') || BeginsWithImage(message)) return false;
  const std::string_view word = message.substr(0, message.find_first_of(" \t\n"));
  return message.find('\n') == std::string_view::npos ||
         std::ranges::find(kCommands, word) != kCommands.end();
}

void ReportError(const api::Error& error) { fmt::print(stderr, "Error: {}\n\n", error.message); }

}  // namespace

// A message: a line, or several between """. With `open` it has begun with `text`. Nothing at the end of
// input.
std::optional<std::string> Repl::ReadMessage(LineEditor& editor, std::string text, bool open) {
  using Kind = LineEditor::Input::Kind;
  const bool began_open = open;
  for (;;) {
    const LineEditor::Input input = open ? editor.Read("... ") : editor.Read(">>> ", kHint);
    if (input.kind != Kind::kLine) std::fputs("\n", stdout);
    if (input.kind == Kind::kEnd) return std::nullopt;
    if (input.kind == Kind::kInterrupted) {
      if (began_open) return std::string();
      if (!open && input.text.empty()) fmt::print("Use Ctrl-D or /bye to exit.\n");
      text.clear();
      open = false;
      continue;
    }
    std::string_view line = input.text;
    if (!open) {
      if (!line.starts_with(kQuotes)) return input.text;
      line.remove_prefix(kQuotes.size());
    } else {
      text += '\n';
    }
    text += line;
    if (line.ends_with(kQuotes)) return text.substr(0, text.size() - kQuotes.size());
    open = true;
  }
}

void Repl::SetSystem(LineEditor& editor, std::string_view text) {
  std::string given(text);
  if (text.starts_with(kQuotes)) {
    given.erase(0, kQuotes.size());
    if (given.ends_with(kQuotes)) {
      given.resize(given.size() - kQuotes.size());
    } else {
      const auto whole = ReadMessage(editor, std::move(given), true);
      if (!whole || whole->empty()) return;
      given = *whole;
    }
  } else if (given.size() > 1 && given.front() == '"' && given.back() == '"') {
    given = given.substr(1, given.size() - 2);
  }
  chat_.SetSystem(std::move(given));
  fmt::print("Set system message.\n");
}

// Those that are on or off.
bool Repl::SetSwitch(LineEditor& editor, std::string_view what) {
  ChatOptions& options = chat_.options();
  if (what == "verbose" || what == "quiet") {
    options.verbose = what == "verbose";
    fmt::print("Set {} mode.\n", what);
  } else if (what == "wordwrap" || what == "nowordwrap") {
    options.word_wrap = what == "wordwrap";
    fmt::print("Set {} mode.\n", what);
  } else if (what == "history" || what == "nohistory") {
    editor.SetHistoryEnabled(what == "history");
    fmt::print("Set {} mode.\n", what);
  } else if (what == "noformat") {
    options.format.clear();
    fmt::print("Disabled format.\n");
  } else if (what == "nothink") {
    options.think = "false";
    fmt::print("Set 'nothink' mode.\n");
  } else {
    return false;
  }
  return true;
}

void Repl::Set(LineEditor& editor, std::string_view arguments) {
  const std::string_view what = ConsumeWord(arguments);
  if (SetSwitch(editor, what)) return;
  if (what == "system" && !arguments.empty()) {
    SetSystem(editor, arguments);
  } else if (what == "parameter") {
    const std::string name(ConsumeWord(arguments));
    if (name.empty() || arguments.empty()) {
      fmt::print("Usage: /set parameter NAME VALUE\n");
      return;
    }
    if (const auto set = chat_.SetParameter(name, arguments); !set) return ReportError(set.error());
    fmt::print("Set parameter {} to {}.\n", name, arguments);
  } else if (what == "format" && !arguments.empty()) {
    if (const auto set = chat_.SetFormat(std::string(arguments)); !set) return ReportError(set.error());
    fmt::print("Set format to {}.\n", arguments);
  } else if (what == "think") {
    const std::string level(arguments.empty() ? "true" : arguments);
    if (const auto set = chat_.SetThink(level); !set) return ReportError(set.error());
    fmt::print("Set 'think' mode{}.\n", arguments.empty() ? "" : fmt::format(" to {}", level));
  } else {
    fmt::print("{}", kSetHelp);
  }
}

void Repl::Show(std::string_view what) {
  const bool known = what == "info" || what == "license" || what == "modelfile" || what == "parameters" ||
                     what == "system" || what == "template";
  if (!known) {
    fmt::print("{}", kShowHelp);
    return;
  }
  const auto shown = chat_.Show();
  const auto text = !shown           ? api::Result<std::string>(std::unexpected(shown.error()))
                    : what == "info" ? ShowText(*shown, false)
                                     : ShowMember(*shown, std::string(what));
  if (!text) return ReportError(text.error());
  if (what == "parameters") {
    const std::string mine = chat_.Parameters();
    if (!mine.empty()) fmt::print("Set in this session:\n{}\n", mine);
  }
  const bool own_system = what == "system" && !chat_.system().empty();
  const std::string& out = own_system ? chat_.system() + "\n" : *text;
  fmt::print("{}\n", out == "\n" ? fmt::format("No {} for this model.\n", what) : out);
}

Repl::Next Repl::Command(LineEditor& editor, std::string_view line) {
  const std::string_view command = ConsumeWord(line);
  const std::string argument(line);
  if (command == "/bye" || command == "/exit") return Next::kEnd;
  if (command == "/clear") {
    chat_.Clear();
    fmt::print("Cleared session context.\n");
  } else if (command == "/set") {
    Set(editor, line);
  } else if (command == "/show") {
    Show(line);
  } else if (command == "/load" || command == "/save") {
    const bool load = command == "/load";
    if (argument.empty()) {
      fmt::print("Usage: {} NAME\n", command);
    } else if (const auto done = load ? chat_.Switch(argument) : chat_.Save(argument); !done) {
      ReportError(done.error());
    } else {
      fmt::print("{} '{}'.\n", load ? "Loaded model" : "Created new model", argument);
    }
  } else if (command == "/?" || command == "/help") {
    const std::string_view topic = ConsumeWord(line);
    fmt::print("{}", topic == "/set" || topic == "set"     ? kSetHelp
                     : topic == "/show" || topic == "show" ? kShowHelp
                                                           : kHelp);
  } else {
    fmt::print("Unknown command '{}'. Type /? for help.\n", command);
  }
  return Next::kGoOn;
}

int Repl::Run() {
  if (const auto loaded = chat_.Load(); !loaded) {
    fmt::print(stderr, "Error: {}\n", loaded.error().message);
    return 1;
  }
  const ScopedInterruptBlock blocked;
  LineEditor editor(HistoryFile());
  editor.SetHistoryEnabled(history_enabled_);
  while (auto message = ReadMessage(editor, {}, false)) {
    const size_t begin = message->find_first_not_of(" \t\n");
    if (begin == std::string::npos) continue;
    const std::string_view text = std::string_view(*message).substr(begin);
    if (IsCommand(text)) {
      if (Command(editor, text) == Next::kEnd) break;
      continue;
    }
    if (auto answered = chat_.Send(*message);
        !answered && answered.error().code != api::ErrorCode::kCancelled) {
      ReportError(answered.error());
    }
  }
  return 0;
}

}  // namespace quire::cli
