// The last line of a terminal while something takes its time: what is happening, and that it does.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace quire::cli {

// How far the daemon is with a prompt, as it reports it.
struct PrefillReport {
  int64_t total = 0;      // tokens of the prompt
  int64_t cached = 0;     // of them, not to be computed
  int64_t processed = 0;  // cached or computed by now
  int64_t elapsed_ms = 0;
};

// "prefilling 12,000 of 36,013 tokens, 212 tokens/s, 1 min 53 s left"; without the last two while nothing is
// known of them.
std::string PrefillText(const PrefillReport& report);

// "1 min 53 s left"
std::string TimeLeft(double seconds);

// One thread.
class Spinner {
 public:
  // Draws nothing where `out` is no terminal that can go back in a line.
  explicit Spinner(std::FILE* out);
  ~Spinner() { Stop(); }
  Spinner(const Spinner&) = delete;
  Spinner& operator=(const Spinner&) = delete;

  bool enabled() const { return enabled_; }
  // From the next tick but one: what is soon over is not shown.
  void Show(std::string text);
  // Another text in place of the one that is shown.
  void Update(std::string text);
  // Ten times a second.
  void Tick();
  // Removes it from the terminal until the next Show().
  void Stop();

 private:
  std::FILE* out_;
  const bool enabled_;
  std::string text_;  // empty: stopped
  int ticks_ = 0;
  bool drawn_ = false;
};

}  // namespace quire::cli
