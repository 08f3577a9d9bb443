// `quire run`: one question, or a conversation in the terminal.
#pragma once

#include <cstdio>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/error.h"
#include "server/cli/client.h"
#include "server/cli/word_wrap.h"

namespace quire::cli {

struct ChatOptions {
  std::string model;
  std::optional<std::string> keep_alive;
  bool verbose = false;  // print counts and rates to stderr after each answer
};

// The conversation so far and what was set for it. One thread.
class Chat {
 public:
  Chat(Client& client, ChatOptions options) : client_(client), options_(std::move(options)) {}

  // Asks and prints the answer to stdout as it arrives; remembers both. An interrupted answer is remembered
  // as far as it came. Errors leave the conversation as it was.
  api::Result<void> Ask(const std::string& question);

  // Reads questions from the terminal until /bye or end of input. The value is the exit code.
  int Converse();

 private:
  struct Turn {
    std::string role;
    std::string content;
  };
  enum class Next { kGoOn, kEnd };

  api::Result<void> Load();
  void AddKeepAlive(nlohmann::ordered_json& body) const;
  Next Command(std::string_view line);
  void Set(std::string_view arguments);
  std::string RequestBody(const std::string& question) const;
  // Prints what the line adds; the error it carries, if any.
  api::Result<void> OnLine(std::string_view line, std::string& answer);

  Client& client_;
  ChatOptions options_;
  std::vector<Turn> turns_;
  WordWrap wrap_;  // of the answer that is being shown
  std::string system_;
  std::vector<std::pair<std::string, std::string>> parameters_;  // name, JSON value
};

// Reads stdin to its end.
std::string ReadAll(std::FILE* file);

}  // namespace quire::cli
