// Keeps stop strings out of streamed text.
//
// Text arrives in pieces that are independent of the stop strings; a possible beginning of one is held back
// until it is certain. The match that ends first counts, and among those that end together the longest. What
// is emitted does not depend on how the text was cut into pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire::runner::sampler {

class ByteAutomaton;

// Works on bytes; with pieces and stop strings of whole UTF-8 characters it emits whole characters. Copyable:
// the strings are shared, the state is one integer. One thread. Time: linear in the text, whatever the number
// of strings.
class StopMatcher {
 public:
  struct Emission {
    std::string text;            // may go out now
    std::optional<size_t> stop;  // a stop string matched: its index in the constructor's list
  };

  // Empty strings never match.
  explicit StopMatcher(std::vector<std::string> stop_strings);

  // After a match everything is swallowed.
  Emission Feed(std::string_view text);
  // The end of the text: what was held back.
  std::string Flush();

 private:
  std::vector<std::string> strings_;                // until the first text
  std::shared_ptr<const ByteAutomaton> automaton_;  // from the first text on: what waits for a place has none
  int32_t node_;                                    // the held text is the path from the root to here
  bool stopped_ = false;
};

}  // namespace quire::runner::sampler
