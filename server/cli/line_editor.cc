#include "server/cli/line_editor.h"

#include <fmt/format.h>
#include <histedit.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <cwchar>
#include <string_view>
#include <utility>

#include "server/cli/terminal.h"

namespace quire::cli {
namespace {

constexpr wchar_t kReplacement = L'\uFFFD';
constexpr std::wstring_view kPasteEnd = L"\x1b[201~";

volatile std::sig_atomic_t g_interrupted = 0;
volatile std::sig_atomic_t g_resized = 0;

void OnInterrupt(int) { g_interrupted = 1; }
void OnResize(int) { g_resized = 1; }

// SIGINT and SIGWINCH are ours and blocked; a wait with `outside` receives them there and nowhere else.
class ScopedSignalHandlers {
 public:
  explicit ScopedSignalHandlers(sigset_t& outside) {
    sigset_t taken;
    ::sigemptyset(&taken);
    ::sigaddset(&taken, SIGINT);
    ::sigaddset(&taken, SIGWINCH);
    ::sigprocmask(SIG_BLOCK, &taken, &before_);
    outside = before_;
    ::sigdelset(&outside, SIGINT);
    ::sigdelset(&outside, SIGWINCH);
    g_interrupted = 0;
    g_resized = 0;
    struct sigaction action {};
    action.sa_handler = OnInterrupt;
    ::sigaction(SIGINT, &action, &interrupt_before_);
    action.sa_handler = OnResize;
    ::sigaction(SIGWINCH, &action, &resize_before_);
  }
  ~ScopedSignalHandlers() {
    ::sigaction(SIGINT, &interrupt_before_, nullptr);
    ::sigaction(SIGWINCH, &resize_before_, nullptr);
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  ScopedSignalHandlers(const ScopedSignalHandlers&) = delete;
  ScopedSignalHandlers& operator=(const ScopedSignalHandlers&) = delete;

 private:
  sigset_t before_{};
  struct sigaction interrupt_before_ {};
  struct sigaction resize_before_ {};
};

void Write(std::string_view escapes) {
  std::fwrite(escapes.data(), 1, escapes.size(), stdout);
  std::fflush(stdout);
}

// The terminal marks what is pasted while this lives.
class ScopedBracketedPaste {
 public:
  ScopedBracketedPaste() : on_(HasEscapes(stdout)) {
    if (on_) Write("\033[?2004h");
  }
  ~ScopedBracketedPaste() {
    if (on_) Write("\033[?2004l");
  }
  ScopedBracketedPaste(const ScopedBracketedPaste&) = delete;
  ScopedBracketedPaste& operator=(const ScopedBracketedPaste&) = delete;

 private:
  const bool on_;
};

// As a line holds it: no control character but newlines and tabs, and none at its end.
std::wstring PastedText(std::wstring_view typed) {
  std::wstring text;
  for (size_t i = 0; i < typed.size(); ++i) {
    const wchar_t c = typed[i];
    if (c == L'\r') {
      text += L'\n';
      if (i + 1 < typed.size() && typed[i + 1] == L'\n') ++i;
    } else if (c == L'\n' || c == L'\t' || (c >= L' ' && c < 0x7f) || c >= 0xa0) {
      text += c;
    }
  }
  text.erase(text.find_last_not_of(L'\n') + 1);
  return text;
}

}  // namespace

LineEditor::LineEditor(std::filesystem::path history_file)
    : history_(std::move(history_file)), editor_(::el_init("quire", stdin, stdout, stderr)) {
  ::el_set(editor_, EL_CLIENTDATA, this);
  ::el_set(editor_, EL_PROMPT, static_cast<char* (*)(EditLine*)>(&LineEditor::Prompt));
  ::el_set(editor_, EL_EDITOR, "emacs");
  ::el_set(editor_, EL_HIST, ::history, history_.handle());
  ::el_set(editor_, EL_SETTY, "-d", "-icrnl", "-inlcr", nullptr);  // else a CRLF in a paste is two newlines
  ::el_set(editor_, EL_GETCFN, static_cast<int (*)(EditLine*, wchar_t*)>(&LineEditor::ReadCharacter));
  ::el_source(editor_, nullptr);  // ~/.editrc, the user's own keys
  const auto paste = static_cast<unsigned char (*)(EditLine*, int)>(&LineEditor::Paste);
  ::el_set(editor_, EL_ADDFN, "quire-paste", "Insert what the terminal pastes", paste);
  ::el_set(editor_, EL_BIND, "\\e[200~", "quire-paste", nullptr);
}

LineEditor::~LineEditor() { ::el_end(editor_); }

LineEditor* LineEditor::Self(editline* editor) {
  LineEditor* self = nullptr;
  ::el_get(editor, EL_CLIENTDATA, &self);
  return self;
}

char* LineEditor::Prompt(editline* editor) {
  return const_cast<char*>(Self(editor)->prompt_);  // libedit only reads it
}

int LineEditor::ReadCharacter(editline* editor, wchar_t* character) {
  return Self(editor)->ReadCharacter(character);
}

unsigned char LineEditor::Paste(editline* editor, int) { return Self(editor)->Paste(); }

// The terminal has said that a paste begins. Newlines in it are text.
unsigned char LineEditor::Paste() {
  std::wstring typed;
  wchar_t character = 0;
  pasting_ = true;
  int got = 0;
  while (!typed.ends_with(kPasteEnd) && (got = ReadCharacter(&character)) == 1) typed += character;
  pasting_ = false;
  if (got < 1) return CC_EOF;
  typed.resize(typed.size() - kPasteEnd.size());
  const std::wstring text = PastedText(typed);
  if (!text.empty() && ::el_winsertstr(editor_, text.c_str()) != 0) return CC_ERROR;
  return CC_REFRESH;
}

// The cursor stays where it is: libedit does not know of the hint.
void LineEditor::ShowHint() {
  const LineInfoW* typed = ::el_wline(editor_);
  const auto columns = static_cast<size_t>(Columns(stdout));
  if (hint_.empty() || pasting_ || typed->buffer != typed->lastchar) return;
  if (!HasEscapes(stdout) || std::strlen(prompt_) + hint_.size() >= columns) return;
  Write(fmt::format("\033[90m{}\033[0m\033[{}D", hint_, hint_.size()));
  hint_shown_ = true;
}

void LineEditor::HideHint() {
  if (std::exchange(hint_shown_, false)) Write("\033[K");
}

// As libedit wants it: 1 with a character, 0 at the end of input, -1 to give the line up.
int LineEditor::ReadCharacter(wchar_t* character) {
  std::mbstate_t state{};
  for (;;) {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    if (::poll(&input, 1, 0) == 0) ShowHint();
    const int ready = ::ppoll(&input, 1, nullptr, &while_waiting_);
    HideHint();
    if (ready < 0 && errno != EINTR) return -1;
    if (g_resized != 0) {
      g_resized = 0;
      ::el_resize(editor_);
    }
    if (g_interrupted != 0) return -1;
    if (ready <= 0) continue;
    char byte = 0;
    const ssize_t got = ::read(STDIN_FILENO, &byte, 1);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) return static_cast<int>(got);
    const size_t used = std::mbrtowc(character, &byte, 1, &state);
    if (used == static_cast<size_t>(-2)) continue;  // the character has more bytes
    if (used == static_cast<size_t>(-1)) *character = kReplacement;
    return 1;
  }
}

LineEditor::Input LineEditor::Read(const char* prompt, std::string_view hint) {
  const ScopedSignalHandlers signals(while_waiting_);
  const ScopedBracketedPaste pastes;
  prompt_ = prompt;
  hint_ = hint;
  int count = 0;
  // el_gets() would do so behind the prompt: what is pasted in between would be translated.
  ::el_set(editor_, EL_PREP_TERM, 1);
  const char* line = ::el_gets(editor_, &count);
  Input input;
  if (g_interrupted != 0) {
    input.kind = Input::Kind::kInterrupted;
    const LineInfo* typed = ::el_line(editor_);
    input.text.assign(typed->buffer, typed->lastchar);
    return input;
  }
  if (line == nullptr || count <= 0) return input;
  input.kind = Input::Kind::kLine;
  input.text.assign(line, static_cast<size_t>(count));
  while (input.text.ends_with('\n') || input.text.ends_with('\r')) input.text.pop_back();
  if (history_enabled_ && input.text.find_first_not_of(" \t") != std::string::npos) history_.Add(input.text);
  return input;
}

}  // namespace quire::cli
