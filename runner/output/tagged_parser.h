// Answers in which markers set thinking and calls apart from text; with no markers at all, plain text.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runner/output/call_form.h"
#include "runner/output/format.h"
#include "runner/output/parser.h"
#include "runner/output/tools.h"

namespace quire::runner::output {

// Space around thinking and calls belongs to them: it comes out only where text follows on text.
class TaggedParser final : public Parser {
 public:
  // `calls` and `thinking` may be null and outlive this.
  TaggedParser(const CallForm* calls, const ThinkingForm* thinking, bool thinking_open, Tools tools);

  void Feed(std::string_view text, Pieces& pieces) override;
  void Finish(Pieces& pieces) override;
  bool thinking() const override;

 private:
  enum class State : uint8_t { kText, kThinking, kCall };
  enum class Kind : uint8_t { kThinkingBegin, kCallBegin, kStrayEnd };
  struct Marker {
    Kind kind;
    std::string_view text;
  };
  struct Hit {
    size_t at = 0;
    const Marker* marker = nullptr;  // null: there is none
  };

  // Each takes what is certain from the buffer; false when nothing more is.
  bool Step(bool end, Pieces& pieces);
  bool TakeText(bool end, Pieces& pieces);
  bool TakeThinking(bool end, Pieces& pieces);
  bool TakeCall(bool end, Pieces& pieces);

  // A call that stands without a marker may begin here: its end, or whether it does, is for more text to
  // tell.
  enum class Bare : uint8_t { kNo, kYes, kNotYet };
  Bare TakeBareCall(bool end);
  bool TakeMarkedCall(bool end, Pieces& pieces);
  bool TakeValueCall(bool end, Pieces& pieces);
  // Where a call's arguments begin.
  struct ValueBegin {
    enum class Known : uint8_t { kNotYet, kHere, kNever };
    Known known = Known::kNotYet;
    size_t at = 0;  // kHere: there; kNever: so many bytes are no call
  };
  ValueBegin FindValue(std::string_view text) const;
  bool Read(std::string_view text, std::vector<api::ToolCall>& calls, Reading& reading) const;
  void EndCalls(std::vector<api::ToolCall> calls, size_t consumed, Pieces& pieces);
  void EndMalformed(size_t size, size_t consumed, Pieces& pieces);

  Hit FindMarker(std::string_view text) const;
  size_t PartialMarker(std::string_view text) const;
  void EnterCall(size_t consumed, std::string_view space);
  std::string_view rest() const { return std::string_view(buffer_).substr(begin_); }

  const CallForm* const calls_;
  const ThinkingForm* const thinking_;
  const Tools tools_;
  std::vector<Marker> markers_;  // that may stand in text

  State state_;
  std::string buffer_;
  size_t begin_ = 0;         // of what is not taken yet
  bool fresh_ = true;        // nothing but space since the answer's begin, or since thinking or a call
  bool drop_space_ = false;  // space that comes next belongs to what came before
  bool after_call_ = false;  // fresh_, because of a call

  // Of the call that is being taken:
  std::string space_;    // before its marker
  bool bare_ = false;    // it has none
  size_t searched_ = 0;  // of rest(): no end of it before
  std::optional<size_t> first_end_;
  std::optional<ValueEnd> value_;
};

}  // namespace quire::runner::output
