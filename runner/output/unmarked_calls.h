// Calls without a marker: an answer that is as a whole JSON objects, or lists of them, perhaps in Markdown
// fences, each with the name of a tool and an object of arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runner/output/tools.h"

namespace quire::runner::output {

// One per answer. Time: linear in the text.
class UnmarkedCalls {
 public:
  // `tools` outlives this. `behind_calls`: a comma or semicolon may come first.
  explicit UnmarkedCalls(const Tools& tools, bool behind_calls)
      : tools_(tools), may_separate_(behind_calls) {}

  // Goes on where the last call stopped; `text` is the same text, or longer. False: no such answer begins
  // like this.
  bool Advance(std::string_view text);
  // At the end of the answer, all of which is `text`: appends its calls. False, and nothing appended: it is
  // no such answer.
  bool Read(std::string_view text, std::vector<api::ToolCall>& calls) const;

 private:
  // What comes next in an object that may be a call.
  enum class Expects : uint8_t { kKey, kColon, kValue, kEnd };

  bool ConsumeByte(char c);
  bool ConsumeBetween(char c);
  bool ConsumeFence(char c);
  bool ConsumeInString(char c);
  bool ConsumeInValue(char c);
  bool ConsumeInCall(char c);
  bool EndString();
  bool Open(char c);
  bool Close(char c);
  bool InCall() const {
    return open_.back() == '{' && (open_.size() == 1 || (open_.size() == 2 && open_[0] == '['));
  }

  const Tools& tools_;
  size_t at_ = 0;
  std::vector<std::pair<size_t, size_t>> values_;  // begin and end of each

  // Between values:
  bool may_separate_;
  size_t fence_marks_ = 0;  // of a fence that is not whole yet
  bool in_fence_ = false;
  bool in_info_ = false;  // behind the fence, up to the end of its line
  std::string info_;

  // In a value:
  std::vector<char> open_;
  bool in_string_ = false, escaped_ = false;
  Expects expects_ = Expects::kKey;
  std::string string_;  // of a call: the key or the name that is being read
  std::string key_;
  bool named_ = false, has_arguments_ = false;
};

}  // namespace quire::runner::output
