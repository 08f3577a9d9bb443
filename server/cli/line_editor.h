// Reads messages from the terminal with editing, bracketed paste and a history that outlives the process.
//
// libedit edits. It has no bracketed paste of its own, but it shows lines that contain newlines, so a paste
// is one key of ours that inserts a text. GNU readline has bracketed paste and a license that this program
// cannot have.
#pragma once

#include <csignal>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "server/cli/line_history.h"

struct editline;

namespace quire::cli {

// One at a time in a process, and one thread: it takes SIGINT and SIGWINCH over while it reads.
class LineEditor {
 public:
  struct Input {
    enum class Kind { kLine, kInterrupted, kEnd };
    Kind kind = Kind::kEnd;
    // kLine: without its newline; one that was pasted may have newlines inside. kInterrupted: what had been
    // typed
    std::string text;
  };

  // Loads the history. An empty path keeps none. Characters are read in the locale's encoding.
  explicit LineEditor(std::filesystem::path history_file);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // Whether lines join the history from now on. At first they do.
  void SetHistoryEnabled(bool enabled) { history_enabled_ = enabled; }

  // The next line; it joins the history, and its file, at once. Ctrl-C ends it with kInterrupted, Ctrl-D on
  // an empty line with kEnd. `hint` is shown in gray while the line is empty.
  Input Read(const char* prompt, std::string_view hint = {});

 private:
  static int ReadCharacter(editline* editor, wchar_t* character);
  static char* Prompt(editline* editor);
  static unsigned char Paste(editline* editor, int key);
  static LineEditor* Self(editline* editor);
  int ReadCharacter(wchar_t* character);
  unsigned char Paste();
  void ShowHint();
  void HideHint();

  LineHistory history_;
  editline* editor_ = nullptr;
  const char* prompt_ = "";
  std::string_view hint_;
  bool hint_shown_ = false;
  bool pasting_ = false;
  bool history_enabled_ = true;
  sigset_t while_waiting_{};  // the signal mask in which a character is waited for
};

}  // namespace quire::cli
