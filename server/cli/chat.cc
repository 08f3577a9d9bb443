#include "server/cli/chat.h"

#include <editline/readline.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace quire::cli {
namespace {

using Json = nlohmann::ordered_json;

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
  fmt::print(stderr, "\ntotal duration:       {}\n", Duration(number("total_duration")));
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
  return home != nullptr && *home != '\0' ? std::filesystem::path(home) / ".ollama" / "history" : "";
}

// One line from the terminal; nothing at the end of input.
std::optional<std::string> ReadLine(const char* prompt) {
  char* line = readline(prompt);
  if (line == nullptr) return std::nullopt;
  std::string text(line);
  std::free(line);
  return text;
}

// A message, or several lines between """.
std::optional<std::string> ReadMessage() {
  auto line = ReadLine(">>> ");
  if (!line || !line->starts_with("\"\"\"")) return line;
  std::string text = line->substr(3);
  while (!text.ends_with("\"\"\"")) {
    auto more = ReadLine("... ");
    if (!more) return text;
    text += "\n" + *more;
  }
  text.resize(text.size() - 3);
  return text;
}

}  // namespace

std::string ReadAll(std::FILE* file) {
  std::string text;
  std::array<char, 65536> bytes;
  while (const size_t n = std::fread(bytes.data(), 1, bytes.size(), file)) text.append(bytes.data(), n);
  return text;
}

std::string Chat::RequestBody(const std::string& question) const {
  Json body = {{"model", options_.model}, {"messages", Json::array()}};
  if (!system_.empty()) body["messages"].push_back({{"role", "system"}, {"content", system_}});
  for (const auto& turn : turns_)
    body["messages"].push_back({{"role", turn.role}, {"content", turn.content}});
  body["messages"].push_back({{"role", "user"}, {"content", question}});
  if (options_.keep_alive) {
    char* end = nullptr;
    const double seconds = std::strtod(options_.keep_alive->c_str(), &end);
    body["keep_alive"] = *end == '\0' ? Json(seconds) : Json(*options_.keep_alive);
  }
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
    std::fwrite(text.data(), 1, text.size(), stdout);
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
  api::Result<void> stream_error;
  auto done = client_.PostLines("/api/chat", RequestBody(question), [&](std::string_view line) {
    if (auto ok = OnLine(line, answer); !ok && stream_error) stream_error = std::move(ok);
  });
  if (done && !stream_error) done = std::move(stream_error);
  const bool interrupted = !done && done.error().code == api::ErrorCode::kCancelled;
  if (done || interrupted) {
    turns_.push_back({"user", question});
    turns_.push_back({"assistant", std::move(answer)});
  }
  if (!done && !answer.empty()) std::fputs("\n", stdout);
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

int Chat::Converse() {
  using_history();
  const auto history = HistoryFile();
  if (!history.empty()) read_history(history.c_str());
  while (auto message = ReadMessage()) {
    const size_t begin = message->find_first_not_of(" \t\n");
    if (begin == std::string::npos) continue;
    add_history(message->c_str());
    if ((*message)[begin] == '/') {
      if (Command(std::string_view(*message).substr(begin)) == Next::kEnd) break;
      continue;
    }
    if (auto answered = Ask(*message); !answered && answered.error().code != api::ErrorCode::kCancelled) {
      fmt::print(stderr, "Error: {}\n", answered.error().message);
    }
  }
  if (!history.empty()) {
    std::error_code ignored;
    std::filesystem::create_directories(history.parent_path(), ignored);
    write_history(history.c_str());
  }
  return 0;
}

}  // namespace quire::cli
