#include "server/cli/chat.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "server/cli/line_editor.h"

namespace quire::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kQuotes = "\"\"\"";  // around a message of several lines
constexpr std::string_view kHelp =
    "Available commands:\n"
    "  /set system TEXT            system message of this conversation\n"
    "  /set parameter NAME VALUE   an option such as temperature, num_ctx, seed or stop\n"
    "  /set verbose | quiet        counts and rates after each answer, or not\n"
    "  /clear                      forget the conversation\n"
    "  /bye                        leave (so does Ctrl-D)\n"
    "  /? or /help                 this text\n"
    "\"\"\" begins and ends a message of several lines. Ctrl-C stops an answer.\n";

// Takes the next word off `text`.
std::string_view TakeWord(std::string_view& text) {
  const size_t begin = std::min(text.find_first_not_of(' '), text.size());
  const size_t end = std::min(text.find(' ', begin), text.size());
  const std::string_view word = text.substr(begin, end - begin);
  text.remove_prefix(std::min(text.find_first_not_of(' ', end), text.size()));
  return word;
}

std::string Duration(double nanoseconds) {
  if (nanoseconds >= 1e9) return fmt::format("{:.3f}s", nanoseconds / 1e9);
  return fmt::format("{:.3f}ms", nanoseconds / 1e6);
}

void PrintStatistics(const Json& reply) {
  const auto number = [&reply](const char* name) { return reply.value(name, 0.0); };
  const auto rate = [](double tokens, double nanoseconds) {
    return nanoseconds > 0 ? tokens * 1e9 / nanoseconds : 0.0;
  };
  fmt::print(stderr, "total duration:       {}\n", Duration(number("total_duration")));
  fmt::print(stderr, "load duration:        {}\n", Duration(number("load_duration")));
  fmt::print(stderr, "prompt eval count:    {:.0f} token(s), {:.0f} cached\n", number("prompt_eval_count"),
             number("prompt_eval_cached_count"));
  fmt::print(stderr, "prompt eval duration: {}\n", Duration(number("prompt_eval_duration")));
  fmt::print(stderr, "prompt eval rate:     {:.2f} tokens/s\n",
             rate(number("prompt_eval_count"), number("prompt_eval_duration")));
  fmt::print(stderr, "eval count:           {:.0f} token(s)\n", number("eval_count"));
  fmt::print(stderr, "eval duration:        {}\n", Duration(number("eval_duration")));
  fmt::print(stderr, "eval rate:            {:.2f} tokens/s\n",
             rate(number("eval_count"), number("eval_duration")));
}

std::filesystem::path HistoryFile() {
  const char* home = std::getenv("HOME");
  return home != nullptr && *home != '\0' ? std::filesystem::path(home) / ".quire_history" : "";
}

// Columns of the terminal at stdout; 0 = it is none.
int OutputColumns() {
  winsize size{};
  if (isatty(STDOUT_FILENO) == 0 || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

// Ctrl-C ends a line or an answer, never the conversation: between the two it waits until the next of them
// asks for it.
class InterruptsHeld {
 public:
  InterruptsHeld() {
    sigset_t interrupt;
    ::sigemptyset(&interrupt);
    ::sigaddset(&interrupt, SIGINT);
    ::pthread_sigmask(SIG_BLOCK, &interrupt, &before_);
  }
  ~InterruptsHeld() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  InterruptsHeld(const InterruptsHeld&) = delete;
  InterruptsHeld& operator=(const InterruptsHeld&) = delete;

 private:
  sigset_t before_{};
};

// A message: a line, or several between """. Nothing at the end of input.
std::optional<std::string> ReadMessage(LineEditor& editor) {
  using Kind = LineEditor::Input::Kind;
  std::string text;
  bool open = false;  // a """ that is not closed yet
  for (;;) {
    const LineEditor::Input input = editor.Read(open ? "... " : ">>> ");
    if (input.kind != Kind::kLine) std::fputs("\n", stdout);
    if (input.kind == Kind::kEnd) return std::nullopt;
    if (input.kind == Kind::kInterrupted) {
      if (!open && input.text.empty()) fmt::print("Use Ctrl-D or /bye to leave.\n");
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

}  // namespace

std::string ReadAll(std::FILE* file) {
  std::string text;
  std::array<char, 65536> bytes;
  while (const size_t n = std::fread(bytes.data(), 1, bytes.size(), file)) text.append(bytes.data(), n);
  return text;
}

// A number is a number of seconds, anything else a duration for the server to read.
void Chat::AddKeepAlive(Json& body) const {
  if (!options_.keep_alive) return;
  char* end = nullptr;
  const double seconds = std::strtod(options_.keep_alive->c_str(), &end);
  body["keep_alive"] = *end == '\0' ? Json(seconds) : Json(*options_.keep_alive);
}

std::string Chat::RequestBody(const std::string& question) const {
  Json body = {{"model", options_.model}, {"messages", Json::array()}};
  if (!system_.empty()) body["messages"].push_back({{"role", "system"}, {"content", system_}});
  for (const auto& turn : turns_)
    body["messages"].push_back({{"role", turn.role}, {"content", turn.content}});
  body["messages"].push_back({{"role", "user"}, {"content", question}});
  AddKeepAlive(body);
  for (const auto& [name, value] : parameters_) body["options"][name] = Json::parse(value);
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

api::Result<void> Chat::OnLine(std::string_view line, std::string& answer) {
  const Json reply = Json::parse(line, nullptr, false);
  if (!reply.is_object())
    return api::Fail(api::ErrorCode::kInternal, "the server sent a line that is not JSON");
  if (const auto error = reply.find("error"); error != reply.end()) {
    return api::Fail(api::ErrorCode::kInternal,
                     error->is_string() ? error->get<std::string>() : error->dump());
  }
  if (const auto message = reply.find("message"); message != reply.end() && message->is_object()) {
    const std::string text = message->value("content", "");
    answer += text;
    const std::string shown = wrap_.Put(text, OutputColumns());
    std::fwrite(shown.data(), 1, shown.size(), stdout);
    std::fflush(stdout);
  }
  if (reply.value("done", false)) {
    std::fputs(isatty(STDOUT_FILENO) != 0 ? "\n\n" : "\n", stdout);
    std::fflush(stdout);
    if (options_.verbose) PrintStatistics(reply);
  }
  return {};
}

api::Result<void> Chat::Ask(const std::string& question) {
  std::string answer;
  wrap_ = WordWrap();
  api::Result<void> stream_error;
  auto done = client_.PostLines("/api/chat", RequestBody(question), [&](std::string_view line) {
    if (auto ok = OnLine(line, answer); !ok && stream_error) stream_error = std::move(ok);
  });
  if (done && !stream_error) done = std::move(stream_error);
  const bool interrupted = !done && done.error().code == api::ErrorCode::kCancelled;
  const bool cut_short = !done && (interrupted || !answer.empty());
  if (done || interrupted) {
    turns_.push_back({"user", question});
    turns_.push_back({"assistant", std::move(answer)});
  }
  if (cut_short) std::fputs("\n\n", stdout);
  return done;
}

void Chat::Set(std::string_view arguments) {
  const std::string_view what = TakeWord(arguments);
  if (what == "system" && !arguments.empty()) {
    system_ = arguments;
    fmt::print("Set system message.\n");
  } else if (what == "parameter") {
    const std::string name(TakeWord(arguments));
    if (name.empty() || arguments.empty()) {
      fmt::print("Usage: /set parameter NAME VALUE\n");
      return;
    }
    const Json parsed = Json::parse(arguments, nullptr, false);
    const Json value = name == "stop" ? Json::array({std::string(arguments)})
                                      : (parsed.is_discarded() ? Json(std::string(arguments)) : parsed);
    parameters_.emplace_back(name, value.dump(-1, ' ', false, Json::error_handler_t::replace));
    fmt::print("Set parameter {} to {}.\n", name, arguments);
  } else if (what == "verbose" || what == "quiet") {
    options_.verbose = what == "verbose";
    fmt::print("Set {} mode.\n", what);
  } else {
    fmt::print("{}", kHelp);
  }
}

Chat::Next Chat::Command(std::string_view line) {
  const std::string_view command = TakeWord(line);
  if (command == "/bye" || command == "/exit") return Next::kEnd;
  if (command == "/clear") {
    turns_.clear();
    fmt::print("Cleared session context.\n");
  } else if (command == "/set") {
    Set(line);
  } else if (command == "/?" || command == "/help") {
    fmt::print("{}", kHelp);
  } else {
    fmt::print("Unknown command '{}'. Type /? for help.\n", command);
  }
  return Next::kGoOn;
}

// Loads the model, so that a name that is none shows at once and the first answer does not wait for it.
api::Result<void> Chat::Load() {
  Json body = {{"model", options_.model}};
  AddKeepAlive(body);
  return client_.PostLines("/api/generate", body.dump(-1, ' ', false, Json::error_handler_t::replace),
                           [](std::string_view) {});
}

int Chat::Converse() {
  if (const auto loaded = Load(); !loaded) {
    fmt::print(stderr, "Error: {}\n", loaded.error().message);
    return 1;
  }
  const InterruptsHeld held;
  LineEditor editor(HistoryFile());
  while (auto message = ReadMessage(editor)) {
    const size_t begin = message->find_first_not_of(" \t\n");
    if (begin == std::string::npos) continue;
    if ((*message)[begin] == '/') {
      if (Command(std::string_view(*message).substr(begin)) == Next::kEnd) break;
      continue;
    }
    if (auto answered = Ask(*message); !answered && answered.error().code != api::ErrorCode::kCancelled) {
      fmt::print(stderr, "Error: {}\n\n", answered.error().message);
    }
  }
  return 0;
}

}  // namespace quire::cli
