// A conversation with a model: what was said, what was set for it, and the requests that continue it.
#pragma once

#include <cstdio>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/base/error.h"
#include "server/cli/client.h"
#include "server/cli/repetition.h"
#include "server/cli/spinner.h"
#include "server/cli/word_wrap.h"

namespace quire::cli {

struct ChatOptions {
  std::string model;
  std::optional<std::string> keep_alive;
  std::string format;  // "json", a JSON Schema, or empty
  std::string think;   // "true", "false", a level, or empty = not said
  bool hide_thinking = false;
  bool verbose = false;   // print counts and rates to stderr after each answer
  bool word_wrap = true;  // break lines between words on a terminal
};

// One thread.
class Chat {
 public:
  Chat(Client& client, ChatOptions options);

  // Sends the question, with the images whose paths it names where the model takes some, and prints the
  // answer to stdout as it arrives; remembers both. A terminal shows what
  // the wait is for. An interrupted answer is remembered as far as it came. Errors leave the conversation as
  // it was.
  api::Result<void> Send(const std::string& text);

  // Loads the model, so that a name that is none shows at once and the first answer does not wait for it.
  api::Result<void> Load();
  // Switches to another model and clears the conversation. On error nothing changes.
  api::Result<void> Switch(const std::string& model);
  // Makes a model of that name out of this one, what was set and what was said.
  api::Result<void> Save(const std::string& name);
  // The body of POST /api/show.
  api::Result<std::string> Show();

  ChatOptions& options() { return options_; }
  void Clear() { turns_.clear(); }
  void SetSystem(std::string text) { system_ = std::move(text); }
  const std::string& system() const { return system_; }
  // An option by its name; what is not JSON is a text, "stop" is a list of words in quotes or one. An error
  // where the server would not accept it or has no such option.
  api::Result<void> SetParameter(const std::string& name, std::string_view value);
  // "true", "false" or a level, if the model can think.
  api::Result<void> SetThink(const std::string& level);
  // "json" or a JSON Schema.
  api::Result<void> SetFormat(std::string format);
  // "name    value", a line for each.
  std::string Parameters() const;

 private:
  struct Turn {
    std::string role;
    std::string content;
    std::vector<std::string> images = {};  // base64
  };

  void AddKeepAlive(nlohmann::ordered_json& body) const;
  std::string RequestBody(const Turn& question) const;
  // Takes the images that a question names by their paths into it.
  api::Result<void> AttachImages(Turn& question);
  // From now on requests are texts to be completed; `why` is shown.
  void CompleteText(const nlohmann::ordered_json& model, std::string_view why);
  api::Result<void> SendQuestion(Turn& question, std::string& answer);
  // Prints what the line adds; the error it carries, if any.
  api::Result<void> OnLine(std::string_view line, std::string& answer);
  api::Result<void> OnMessage(const nlohmann::ordered_json& message, std::string& answer);
  api::Result<void> Print(std::string_view text);
  api::Result<void> PrintThought(std::string_view text);
  // Shows what the coming request waits for: the load of its model, or its turn.
  api::Result<void> ShowWait();
  void OnTick();

  Client& client_;
  ChatOptions options_;
  std::vector<Turn> turns_;
  Spinner spinner_;     // on stderr where answers go elsewhere
  WordWrap wrap_;       // of the answer that is being shown
  bool waits_ = false;  // nothing of the reply has come yet
  int wait_ticks_ = 0;
  bool thinking_ = false;        // its last piece was a thought
  bool completes_text_ = false;  // the model has no prompt format for chats
  bool looked_ = false;          // whether it has one of its own is known
  bool raw_ = false;             // it has none of its own, but the daemon has one
  bool sees_ = false;            // it takes images
  bool bounded_ = false;         // it completes text, and nothing bounds what it completes but kCompletionMax
  Repetition repetition_;        // of the answer that is being shown
  bool repeats_ = false;
  std::string system_;
  std::vector<std::pair<std::string, std::string>> parameters_;  // name, JSON value; each name once
};

// The error that `quire run` reports before it sends anything: a word for --think that is none.
api::Result<void> CheckThink(std::string_view level);

// Reads to the end.
std::string ReadAll(std::FILE* file);

}  // namespace quire::cli
