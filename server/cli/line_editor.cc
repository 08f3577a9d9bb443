#include "server/cli/line_editor.h"

#include <histedit.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cwchar>
#include <system_error>
#include <utility>

namespace quire::cli {
namespace {

constexpr int kHistoryLinesMax = 1000;
constexpr wchar_t kReplacement = L'\uFFFD';

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

}  // namespace

LineEditor::LineEditor(std::filesystem::path history_file)
    : history_file_(std::move(history_file)),
      editor_(::el_init("quire", stdin, stdout, stderr)),
      history_(::history_init()) {
  HistEvent event;
  ::history(history_, &event, H_SETSIZE, kHistoryLinesMax);
  ::history(history_, &event, H_SETUNIQUE, 1);
  if (!history_file_.empty()) ::history(history_, &event, H_LOAD, history_file_.c_str());
  ::el_set(editor_, EL_CLIENTDATA, this);
  ::el_set(editor_, EL_PROMPT, static_cast<char* (*)(EditLine*)>(&LineEditor::Prompt));
  ::el_set(editor_, EL_EDITOR, "emacs");
  ::el_set(editor_, EL_HIST, ::history, history_);
  ::el_set(editor_, EL_GETCFN, static_cast<int (*)(EditLine*, wchar_t*)>(&LineEditor::ReadCharacter));
  ::el_source(editor_, nullptr);  // ~/.editrc, the user's own keys
}

LineEditor::~LineEditor() {
  if (!history_file_.empty() && history_enabled_) {
    std::error_code ignored;
    std::filesystem::create_directories(history_file_.parent_path(), ignored);
    const mode_t before = ::umask(077);  // what was asked is nobody else's business
    HistEvent event;
    ::history(history_, &event, H_SAVE, history_file_.c_str());
    ::umask(before);
  }
  ::el_end(editor_);
  ::history_end(history_);
}

char* LineEditor::Prompt(editline* editor) {
  LineEditor* self = nullptr;
  ::el_get(editor, EL_CLIENTDATA, &self);
  return const_cast<char*>(self->prompt_);  // libedit only reads it
}

int LineEditor::ReadCharacter(editline* editor, wchar_t* character) {
  LineEditor* self = nullptr;
  ::el_get(editor, EL_CLIENTDATA, &self);
  return self->ReadCharacter(character);
}

// As libedit wants it: 1 with a character, 0 at the end of input, -1 to give the line up.
int LineEditor::ReadCharacter(wchar_t* character) {
  std::mbstate_t state{};
  for (;;) {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    const int ready = ::ppoll(&input, 1, nullptr, &while_waiting_);
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

LineEditor::Input LineEditor::Read(const char* prompt) {
  const ScopedSignalHandlers signals(while_waiting_);
  prompt_ = prompt;
  int count = 0;
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
  if (history_enabled_ && input.text.find_first_not_of(" \t") != std::string::npos) {
    HistEvent event;
    ::history(history_, &event, H_ENTER, input.text.c_str());
  }
  return input;
}

}  // namespace quire::cli
