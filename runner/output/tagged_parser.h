// Answers in which markers set thinking and calls apart from text; with no markers at all, plain text.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runner/output/format.h"
#include "runner/output/marker_search.h"
#include "runner/output/parser.h"
#include "runner/output/tool_call_syntax.h"
#include "runner/output/tools.h"
#include "runner/output/unmarked_calls.h"

namespace quire::runner::output {

// Space around thinking and calls belongs to them: it comes out only where text follows on text.
class TaggedParser final : public Parser {
 public:
  explicit TaggedParser(const ParserSetup& setup);

  void Feed(std::string_view text, OutputChunks& chunks) override;
  bool IsMarker(std::string_view token) const override;
  void FeedToken(std::string_view token, OutputChunks& chunks) override;
  void Finish(OutputChunks& chunks) override;
  bool thinking() const override { return state_ == State::kThinking; }
  bool calling() const override { return state_ == State::kCall || (forced_ && !thinking()); }

 private:
  enum class State : uint8_t { kText, kThinking, kCall, kDocument };
  enum class Kind : uint8_t { kThinkingBegin, kCallBegin, kTextBegin, kUnmatchedEnd };
  struct Marker {
    Kind kind;
    bool is_token;
    MarkerSearch search;

    std::string_view text() const { return search.marker(); }
  };
  struct Hit {
    size_t at = 0;
    const Marker* marker = nullptr;  // null: there is none
  };

  // Each takes what is certain from the buffer; false when nothing more is.
  bool Step(bool end, OutputChunks& chunks);
  bool ConsumeText(bool end, OutputChunks& chunks);
  bool ConsumeDocument(bool end, OutputChunks& chunks);
  bool ConsumeThinking(bool end, OutputChunks& chunks);
  bool ConsumeCall(bool end, OutputChunks& chunks);

  // Whether what comes next is, or may be, a call without a marker. One that is, is taken.
  bool ConsumeUnmarkedCalls(bool end, OutputChunks& chunks);
  // The end of an answer that had to be calls: what of them is there.
  void EndCut(OutputChunks& chunks);
  bool ConsumeMarkedCall(bool end, OutputChunks& chunks);
  bool ConsumeValueCall(bool end, OutputChunks& chunks);
  // Where a call's arguments begin.
  struct ValueBegin {
    enum class Known : uint8_t { kNotYet, kHere, kNever };
    Known known = Known::kNotYet;
    size_t at = 0;  // kHere: there; kNever: this many bytes are no call
  };
  ValueBegin FindValue(std::string_view text);
  bool EndsWithinMarker(std::string_view text, const ValueBegin& begin) const;
  // Reads the next `size` bytes as calls.
  bool Read(size_t size, std::vector<api::ToolCall>& calls, Reading& reading);
  // Whether a marked call that ends behind `size` bytes has its JSON value still open.
  bool IsInsideJson(size_t size);
  // Goes on with value_, which begins at value_begin_, up to `until`.
  ValueEnd::State AdvanceValue(size_t until);
  // How much of what comes next was read before, as part of a call that turned out to be none.
  size_t BytesRead(size_t from) const;
  void RecordRead(size_t size) { read_until_ = std::max(read_until_, begin_ + size); }
  void EndCalls(std::vector<api::ToolCall> calls, size_t consumed, OutputChunks& chunks);
  void EndMalformed(size_t size, size_t consumed, OutputChunks& chunks);

  // A marker as it stands in the buffer.
  static std::string Marked(const Format& format, std::string_view marker);
  void AddMarker(const ParserSetup& setup, Kind kind, std::string_view marker);
  // The answer's text, or thinking, from the buffer.
  void Show(OutputChunk::Kind kind, std::string_view text, OutputChunks& chunks);
  Hit FindMarker();
  // Bytes at the end that may become a marker.
  size_t PartialMarker();
  void EnterThinking();
  size_t FirstInSegment() { return space_run_.Skip(buffer_, begin_); }
  // Behind thinking: drops the tag that opens the answer; false when more text is needed to decide.
  bool ConsumeAnswerBegin(bool end);
  // How much of the next `size` bytes is the answer's, before the tag that closes it or, unless `whole`, may
  // become one.
  size_t BeforeAnswerEnd(size_t size, bool whole);
  void DropSpace();
  // How much of the next `size` bytes is left without the space that ends them.
  size_t WithoutSpace(size_t size) { return space_run_.SkipBack(buffer_, begin_, begin_ + size) - begin_; }
  // A position in rest(), at or behind `from`; npos: none.
  size_t Find(MarkerSearch& marker, size_t from = 0);
  void EnterCall(size_t consumed, std::string_view space);
  std::string_view rest() const { return std::string_view(buffer_).substr(begin_); }

  const ToolCallSyntax* const calls_;  // null: no calls are expected
  const ThinkingForm* const thinking_;
  const Tools tools_;
  const bool forced_, document_;
  std::vector<Marker> markers_;  // that may stand in text

  State state_;
  std::string buffer_;
  size_t begin_ = 0;                                   // of what is not taken yet
  MarkerSearch thinking_end_, call_begin_, call_end_;  // anywhere
  SpaceRun space_run_, before_answer_end_;
  bool at_segment_start_ = true;  // only space since the begin of the answer, thinking or a call
  bool drop_space_ = false;       // space that comes next belongs to what came before
  bool after_call_ = false;       // at_segment_start_, after a call
  bool has_text_;                 // the answer is not thinking and calls only
  std::optional<UnmarkedCalls> unmarked_;
  bool may_be_unmarked_ = true;   // this segment may be calls without markers
  bool behind_thinking_ = false;  // where ThinkingForm::answer_begin may stand
  bool answer_open_ = false;      // it stood there

  // State of the current call:
  std::string space_;    // before its marker
  size_t searched_ = 0;  // of rest(): no end of it before
  std::optional<size_t> first_end_;
  std::optional<ValueEnd> value_;
  size_t value_begin_ = 0;  // of rest()

  // What is no call is read again as text in which other calls may begin, and a call up to each of its
  // apparent ends. All of that together is bounded: what exceeds it is text. Both depend on the answer's text
  // alone.
  size_t read_until_ = 0;  // of buffer_: as (part of) calls
  size_t rereads_left_;    // bytes
};

}  // namespace quire::runner::output
