// Reads lines from the terminal with editing and a history that outlives the process (libedit).
#pragma once

#include <csignal>
#include <filesystem>
#include <optional>
#include <string>

struct editline;
struct history;

namespace quire::cli {

// One at a time in a process, and one thread: it takes SIGINT and SIGWINCH over while it reads.
class LineEditor {
 public:
  struct Input {
    enum class Kind { kLine, kInterrupted, kEnd };
    Kind kind = Kind::kEnd;
    std::string text;  // kLine: without its newline. kInterrupted: what had been typed
  };

  // Loads the history, and saves it when destroyed. An empty path keeps none. Characters are read in the
  // locale's encoding.
  explicit LineEditor(std::filesystem::path history_file);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // Whether lines join the history from now on, and it is saved. At first they do.
  void SetHistoryEnabled(bool enabled) { history_enabled_ = enabled; }

  // The next line; it joins the history. Ctrl-C ends it with kInterrupted, Ctrl-D on an empty line with kEnd.
  Input Read(const char* prompt);

 private:
  static int ReadCharacter(editline* editor, wchar_t* character);
  static char* Prompt(editline* editor);
  int ReadCharacter(wchar_t* character);

  std::filesystem::path history_file_;
  editline* editor_ = nullptr;
  history* history_ = nullptr;
  const char* prompt_ = "";
  bool history_enabled_ = true;
  sigset_t while_waiting_{};  // the signal mask in which a character is waited for
};

}  // namespace quire::cli
