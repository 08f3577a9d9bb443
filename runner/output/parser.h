// Splits the output of a model into what the client sees: text, thinking, tool calls.
// Invariants:
// - the output does not depend on how the input text was split;
// - a marker counts where the model produced its own token for it (FeedToken) or, where the vocabulary has
//   none, at the beginning of the answer or of a line; elsewhere the same characters are text;
// - no marker that counts comes out, and no beginning of one while it may still become one;
// - a constrained document comes out as it is;
// - a call's arguments are a JSON object; malformed calls come out as text, without their markers;
// - text and thinking come out as soon as they are certain, calls whole.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/request.h"

namespace quire::runner::output {

struct OutputChunk {
  enum class Kind : uint8_t { kText, kThinking, kCall };
  Kind kind = Kind::kText;
  std::string text;         // of kText and kThinking; not empty there
  api::ToolCall call = {};  // of kCall; the id is not empty
};

using OutputChunks = std::vector<OutputChunk>;

// One per answer; one thread. Time: linear in the text, whatever is held back; what is read again, of calls
// that turn out to be malformed, is bounded.
class Parser {
 public:
  virtual ~Parser() = default;

  // Appends what is certain now. REQUIRES: not after Finish().
  virtual void Feed(std::string_view text, OutputChunks& chunks) = 0;
  // A token of the model's that is a marker, or begins one.
  virtual bool IsMarker(std::string_view token) const = 0;
  // The same for such a token.
  virtual void FeedToken(std::string_view token, OutputChunks& chunks) = 0;
  // The end of the answer: what was held back.
  virtual void Finish(OutputChunks& chunks) = 0;
  // Whether what comes next is thinking.
  virtual bool thinking() const = 0;
  // Whether it belongs to a call.
  virtual bool calling() const = 0;
};

}  // namespace quire::runner::output
