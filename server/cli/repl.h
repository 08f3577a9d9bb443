// `quire run MODEL` in a terminal: messages and commands read line by line.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "server/cli/chat.h"
#include "server/cli/line_editor.h"

namespace quire::cli {

// One thread.
class Repl {
 public:
  // `history_enabled`: lines go into a file that outlives the process, and can be recalled.
  Repl(Chat& chat, bool history_enabled) : chat_(chat), history_enabled_(history_enabled) {}

  // Reads from the terminal until /bye or end of input. The value is the exit code.
  int Run();

 private:
  enum class Next { kGoOn, kEnd };

  std::optional<std::string> ReadMessage(LineEditor& editor, std::string text, bool open);
  Next Command(LineEditor& editor, std::string_view line);
  void Set(LineEditor& editor, std::string_view arguments);
  bool SetSwitch(LineEditor& editor, std::string_view what);
  void SetSystem(LineEditor& editor, std::string_view text);
  void Show(std::string_view what);

  Chat& chat_;
  bool history_enabled_;
};

}  // namespace quire::cli
