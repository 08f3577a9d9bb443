#include "runner/output/tagged_parser.h"

#include <algorithm>
#include <array>
#include <utility>

#include "runner/output/chunk_writer.h"
#include "runner/output/cut_calls.h"
#include "runner/output/text.h"

namespace quire::runner::output {
namespace {

// A name longer than this before a call's arguments is no name.
constexpr size_t kNameBytesMax = 512;

// What an answer may have read more than once, some 50 ms: 1,600 apparent ends of one call in each other's
// way.
constexpr size_t kRereadBytesMax = size_t{16} << 20;

// Those that read a text which begins with {, or with [ and {, as JSON and nothing else.
constexpr std::array kJsonReaders = {ReadJsonCalls, ReadTaggedCalls, ReadPythonicCalls, ReadInvokeCalls,
                                     ReadDsmlCalls};

std::string ReplaceAll(std::string_view text, const Replacement& replacement) {
  std::string replaced;
  for (size_t at = text.find(replacement.from); at != std::string_view::npos;
       at = text.find(replacement.from)) {
    replaced += text.substr(0, at);
    replaced += replacement.to;
    text.remove_prefix(at + replacement.from.size());
  }
  return replaced += text;
}

// The text without the marker, also where the removal of one joins another.
std::string RemoveAll(std::string_view text, std::string_view marker) {
  std::string kept;
  kept.reserve(text.size());
  for (const char c : text) {
    kept += c;
    if (c == marker.back() && kept.ends_with(marker)) kept.resize(kept.size() - marker.size());
  }
  return kept;
}

}  // namespace

TaggedParser::TaggedParser(const ParserSetup& setup)
    : calls_(setup.expects_calls ? setup.format.calls : nullptr),
      thinking_(setup.format.thinking),
      tools_(setup.tools),
      forced_(setup.forced && calls_ != nullptr),
      document_(setup.document),
      state_(setup.thinking_open && thinking_ != nullptr ? State::kThinking : State::kText),
      at_segment_start_(!setup.continues),
      drop_space_(state_ == State::kThinking),
      has_text_(setup.continues),
      rereads_left_(kRereadBytesMax) {
  if (thinking_ != nullptr) {
    thinking_end_ = MarkerSearch(Marked(setup.format, thinking_->end));
    AddMarker(setup, Kind::kThinkingBegin, thinking_->begin);
    AddMarker(setup, Kind::kUnmatchedEnd, thinking_->end);
  }
  AddMarker(setup, Kind::kTextBegin, setup.format.text_begin);
  AddMarker(setup, Kind::kUnmatchedEnd, setup.format.text_end);
  if (calls_ == nullptr) return;
  call_begin_ = MarkerSearch(Marked(setup.format, calls_->begin));
  call_end_ = MarkerSearch(Marked(setup.format, calls_->end));
  AddMarker(setup, Kind::kCallBegin, calls_->begin);
  AddMarker(setup, Kind::kUnmatchedEnd, calls_->end);
}

std::string TaggedParser::Marked(const Format& format, std::string_view marker) {
  const bool is_token = !marker.empty() && format.HasTokenOf(marker);
  return (is_token ? std::string(1, kTokenMark) : std::string()) + std::string(marker);
}

void TaggedParser::AddMarker(const ParserSetup& setup, Kind kind, std::string_view marker) {
  using Where = MarkerSearch::Where;
  if (marker.empty()) return;
  const bool is_token = setup.format.HasTokenOf(marker);
  // Where nothing is open, the characters of an end are text like any other.
  if (kind == Kind::kUnmatchedEnd && !is_token) return;
  const Where where = is_token ? Where::kAnywhere : Where::kLineBegin;
  markers_.push_back({kind, is_token, MarkerSearch(Marked(setup.format, marker), where, !setup.continues)});
}

bool TaggedParser::IsMarker(std::string_view token) const {
  return std::ranges::any_of(markers_, [token](const Marker& marker) {
    return marker.is_token && TokenOf(marker.text().substr(1)) == token;
  });
}

void TaggedParser::FeedToken(std::string_view token, OutputChunks& chunks) {
  buffer_ += kTokenMark;
  Feed(token, chunks);
}

void TaggedParser::Feed(std::string_view text, OutputChunks& chunks) {
  buffer_ += text;
  while (Step(/*end=*/false, chunks)) {
  }
  for (Marker& marker : markers_) marker.search.Cut(buffer_, begin_);
  for (MarkerSearch* search : {&thinking_end_, &call_begin_, &call_end_}) search->Cut(buffer_, begin_);
  for (SpaceRun* run : {&space_run_, &before_answer_end_}) run->Cut(begin_);
  read_until_ -= std::min(read_until_, begin_);
  buffer_.erase(0, std::exchange(begin_, 0));
}

void TaggedParser::Finish(OutputChunks& chunks) {
  while (Step(/*end=*/true, chunks)) {
  }
}

bool TaggedParser::Step(bool end, OutputChunks& chunks) {
  switch (state_) {
    case State::kThinking:
      return ConsumeThinking(end, chunks);
    case State::kCall:
      return ConsumeCall(end, chunks);
    case State::kDocument:
      return ConsumeDocument(end, chunks);
    default:
      return document_ ? ConsumeDocument(end, chunks) : ConsumeText(end, chunks);
  }
}

size_t TaggedParser::Find(MarkerSearch& marker, size_t from) {
  const size_t at = marker.Find(buffer_, begin_ + from);
  return at == std::string_view::npos ? at : at - begin_;
}

void TaggedParser::DropSpace() {
  if (drop_space_) begin_ += rest().size() - TrimLeft(rest()).size();
}

void TaggedParser::Show(OutputChunk::Kind kind, std::string_view text, OutputChunks& chunks) {
  if (kind == OutputChunk::Kind::kText && !Trim(text).empty()) {
    at_segment_start_ = after_call_ = drop_space_ = false;
    has_text_ = true;
  }
  AddText(kind, WithoutTokenMarks(text), chunks);
}

// What comes first in a segment is at the beginning of a line, too.
TaggedParser::Hit TaggedParser::FindMarker() {
  Hit hit;
  const size_t first = at_segment_start_ ? FirstInSegment() - begin_ : std::string_view::npos;
  for (Marker& marker : markers_) {
    size_t at = Find(marker.search);
    const bool is_first = !marker.is_token && first < at && rest().substr(first).starts_with(marker.text());
    if (is_first) at = first;
    if (at == std::string_view::npos || (hit.marker != nullptr && at >= hit.at)) continue;
    hit = {at, &marker};
  }
  return hit;
}

size_t TaggedParser::PartialMarker() {
  size_t longest = 0;
  const std::string_view first =
      at_segment_start_ ? std::string_view(buffer_).substr(FirstInSegment()) : std::string_view();
  for (const Marker& marker : markers_) {
    longest = std::max(longest, marker.search.Partial(buffer_, begin_));
    if (!marker.is_token && IsBeginOf(first, marker.text())) longest = std::max(longest, first.size());
  }
  return longest;
}

bool TaggedParser::ConsumeAnswerBegin(bool end) {
  const auto text = TrimLeft(rest());
  const bool here = text.starts_with(thinking_->answer_begin);
  if (!here && !end && thinking_->answer_begin.starts_with(text)) return false;
  behind_thinking_ = false;
  if (here) {
    begin_ += rest().size() - text.size() + thinking_->answer_begin.size();
    answer_open_ = drop_space_ = true;
  }
  return true;
}

size_t TaggedParser::BeforeAnswerEnd(size_t size, bool whole) {
  const std::string_view tag = thinking_->answer_end;
  const auto text = rest().substr(0, size);
  const size_t before = WithoutSpace(size);
  if (text.substr(0, before).ends_with(tag)) {
    return before_answer_end_.SkipBack(buffer_, begin_, begin_ + before - tag.size()) - begin_;
  }
  if (whole) return size;
  size_t partial = std::min(tag.size() - 1, size);
  while (partial > 0 && !text.ends_with(tag.substr(0, partial))) --partial;
  return WithoutSpace(size - partial);
}

bool TaggedParser::ConsumeText(bool end, OutputChunks& chunks) {
  DropSpace();
  if (behind_thinking_ && !ConsumeAnswerBegin(end)) return false;
  DropSpace();
  if (rest().empty()) return false;
  if (at_segment_start_ && ConsumeUnmarkedCalls(end, chunks)) return false;
  const auto text = rest();
  const Hit hit = FindMarker();
  size_t size = hit.marker != nullptr ? hit.at : text.size();
  if (hit.marker == nullptr && !end) size -= PartialMarker();
  const size_t until = size;
  if (answer_open_) size = BeforeAnswerEnd(size, end || hit.marker != nullptr);
  // Space does not belong to an unmatched end tag.
  const bool unmatched = hit.marker != nullptr &&
                         (hit.marker->kind == Kind::kUnmatchedEnd || hit.marker->kind == Kind::kTextBegin);
  const bool keeps_space = markers_.empty() || unmatched || (end && hit.marker == nullptr);
  const auto shown = text.substr(0, keeps_space ? size : WithoutSpace(size));
  const auto space = text.substr(shown.size(), size - shown.size());
  if (forced_ && end && hit.marker == nullptr) {
    EndCut(chunks);
    return false;
  }
  Show(OutputChunk::Kind::kText, shown, chunks);
  if (hit.marker == nullptr) {
    begin_ += shown.size();
    return false;
  }
  const size_t consumed = until + hit.marker->text().size();
  if (hit.marker->kind == Kind::kCallBegin) {
    EnterCall(consumed, space);
    return true;
  }
  begin_ += consumed;
  if (!unmatched) EnterThinking();
  return true;
}

// Thinking comes once, before a document; calls, and what marks text, come first.
bool TaggedParser::ConsumeDocument(bool end, OutputChunks& chunks) {
  const bool begins = state_ == State::kText;
  if (begins && behind_thinking_ && !ConsumeAnswerBegin(end)) return false;
  if (begins) DropSpace();
  const auto text = rest();
  if (text.empty()) return false;
  for (const Marker& marker : markers_) {
    const bool counts =
        begins && (marker.kind == Kind::kThinkingBegin ? !drop_space_ : marker.kind != Kind::kUnmatchedEnd);
    if (!counts) continue;
    if (!end && IsBeginOf(text, marker.text())) return false;
    if (!text.starts_with(marker.text())) continue;
    if (marker.kind == Kind::kCallBegin) {
      EnterCall(marker.text().size(), {});
    } else {
      begin_ += marker.text().size();
      if (marker.kind == Kind::kThinkingBegin) EnterThinking();
    }
    return true;
  }
  state_ = State::kDocument;
  Show(OutputChunk::Kind::kText, text, chunks);
  begin_ += text.size();
  return false;
}

void TaggedParser::EnterThinking() {
  state_ = State::kThinking;
  drop_space_ = true;
}

bool TaggedParser::ConsumeThinking(bool end, OutputChunks& chunks) {
  DropSpace();
  const auto text = rest();
  if (text.empty()) return false;
  const size_t found = Find(thinking_end_);
  const bool ended = found != std::string_view::npos;
  size_t size = ended ? found : text.size();
  if (!ended && !end) size -= thinking_end_.Partial(buffer_, begin_);
  const auto shown = text.substr(0, WithoutSpace(size));
  if (!shown.empty()) drop_space_ = false;
  Show(OutputChunk::Kind::kThinking, shown, chunks);
  if (!ended) {
    begin_ += end ? text.size() : shown.size();
    return false;
  }
  begin_ += size + thinking_end_.marker().size();
  state_ = State::kText;
  at_segment_start_ = drop_space_ = may_be_unmarked_ = true;
  behind_thinking_ = !thinking_->answer_begin.empty();
  after_call_ = false;
  return true;
}

void TaggedParser::EnterCall(size_t consumed, std::string_view space) {
  space_ = space;
  begin_ += consumed;
  state_ = State::kCall;
  searched_ = 0;
  first_end_.reset();
  value_.reset();
}

bool TaggedParser::ConsumeUnmarkedCalls(bool end, OutputChunks& chunks) {
  if (calls_ == nullptr || has_text_ || !may_be_unmarked_) return false;
  if (!unmarked_) unmarked_.emplace(tools_, after_call_);
  std::vector<api::ToolCall> calls;
  const bool begins = unmarked_->Advance(rest());
  if (begins && !end) return true;
  may_be_unmarked_ = false;
  if (begins && unmarked_->Read(rest(), calls)) {
    EndCalls(std::move(calls), rest().size(), chunks);
  } else if (begins && forced_) {
    EndCut(chunks);
  }
  unmarked_.reset();
  return rest().empty();
}

void TaggedParser::EndCut(OutputChunks& chunks) {
  const std::string text = WithoutTokenMarks(rest());
  EndCalls(ReadCutCalls(*calls_, text, tools_, /*is_first=*/!after_call_), rest().size(), chunks);
}

bool TaggedParser::ConsumeCall(bool end, OutputChunks& chunks) {
  if (calls_->ends == CallEnd::kMarker) return ConsumeMarkedCall(end, chunks);
  return ConsumeValueCall(end, chunks);
}

size_t TaggedParser::BytesRead(size_t from) const {
  return read_until_ - std::min(read_until_, begin_ + from);
}

bool TaggedParser::Read(size_t size, std::vector<api::ToolCall>& calls, Reading& reading) {
  reading = Reading::kMalformed;
  const size_t again = std::min(size, BytesRead(0));
  if (again > rereads_left_) return false;
  rereads_left_ -= again;
  RecordRead(size);
  reading = calls_->read(WithoutTokenMarks(rest().substr(0, size)), tools_, calls);
  return reading == Reading::kCalls;
}

// Each byte is read once by a call; what an earlier one has read counts, and at its bound the value is
// broken.
ValueEnd::State TaggedParser::AdvanceValue(size_t until) {
  const auto value = rest().substr(value_begin_, until - value_begin_);
  const size_t before = value_->size();
  const size_t again = std::min(BytesRead(value_begin_), value.size());
  if (before < again) {
    const size_t allowed = std::min(again, before + std::max<size_t>(rereads_left_, 1));
    const auto state = value_->Advance(value.substr(0, allowed));
    rereads_left_ -= std::min(rereads_left_, value_->size() - before);
    if (state != ValueEnd::State::kOpen) return state;
    if (allowed < again) return ValueEnd::State::kBroken;
  }
  return value_->Advance(value);
}

bool TaggedParser::IsInsideJson(size_t size) {
  if (!value_) {
    if (first_end_ || std::ranges::find(kJsonReaders, calls_->read) == kJsonReaders.end()) return false;
    const auto text = TrimLeft(rest().substr(0, size));
    const auto first = text.starts_with('[') ? TrimLeft(text.substr(1)) : text;
    if (!first.starts_with('{')) return false;
    value_begin_ = size - text.size();
    value_.emplace();
  }
  return !value_->ended() && AdvanceValue(size) == ValueEnd::State::kOpen;
}

bool TaggedParser::ConsumeMarkedCall(bool end, OutputChunks& chunks) {
  const auto text = rest();
  std::vector<api::ToolCall> calls;
  Reading reading = Reading::kIncomplete;
  for (size_t found = Find(call_end_, searched_); found != std::string_view::npos;
       found = Find(call_end_, searched_)) {
    const size_t consumed = found + call_end_.marker().size();
    if (IsInsideJson(found)) {
      reading = Reading::kIncomplete;
    } else if (Read(found, calls, reading)) {
      EndCalls(std::move(calls), consumed, chunks);
      return true;
    }
    if (!first_end_) first_end_ = found;
    if (reading == Reading::kMalformed) {
      EndMalformed(*first_end_, *first_end_ + call_end_.marker().size(), chunks);
      return true;
    }
    // An apparent end tag may be inside a string.
    searched_ = consumed;
  }
  if (!end) return false;
  if (!first_end_ && Read(text.size(), calls, reading)) {
    EndCalls(std::move(calls), text.size(), chunks);
  } else if (forced_) {
    EndCut(chunks);
  } else if (first_end_) {
    EndMalformed(*first_end_, *first_end_ + call_end_.marker().size(), chunks);
  } else {
    EndMalformed(text.size(), text.size(), chunks);
  }
  return true;
}

TaggedParser::ValueBegin TaggedParser::FindValue(std::string_view text) {
  using enum ValueBegin::Known;
  const size_t space = std::min(space_run_.Skip(buffer_, begin_) - begin_, text.size());
  if (space == text.size()) return {kNotYet};
  if (text[space] == '{') return {kHere, space};
  if (text[space] == '[' && calls_->ends == CallEnd::kNamedValue) return {kHere, space};
  if (calls_->ends == CallEnd::kValue) return {kNever, space};
  const size_t begin = text.substr(0, kNameBytesMax).find('{');
  if (begin != std::string_view::npos) return {kHere, begin};
  if (text.size() < kNameBytesMax) return {kNotYet};
  return {kNever, kNameBytesMax};
}

// Whether the text ends before a next call's marker that begins among the bytes which are no name would be
// whole.
bool TaggedParser::EndsWithinMarker(std::string_view text, const ValueBegin& begin) const {
  const size_t marker = call_begin_.marker().size();
  return begin.known == ValueBegin::Known::kNever && marker > 0 && text.size() < begin.at + marker - 1;
}

bool TaggedParser::ConsumeValueCall(bool end, OutputChunks& chunks) {
  const auto text = rest();
  if (!value_) {
    // The next call may begin before this one's arguments do.
    const size_t next = Find(call_begin_);
    const ValueBegin begin = FindValue(text.substr(0, next));
    const bool may_begin = begin.known == ValueBegin::Known::kNotYet || EndsWithinMarker(text, begin);
    if (may_begin && next == std::string_view::npos && !end) return false;
    if (may_begin && end && forced_) {
      EndCut(chunks);
      return true;
    }
    if (begin.known != ValueBegin::Known::kHere) {
      const bool never = begin.known == ValueBegin::Known::kNever;
      const size_t size = never ? begin.at : std::min(text.size(), next);
      EndMalformed(size, size, chunks);
      return true;
    }
    value_begin_ = begin.at;
    value_.emplace();
  }
  const auto state = AdvanceValue(text.size());
  if (state == ValueEnd::State::kOpen && !end) return false;
  if (state == ValueEnd::State::kOpen && forced_) {
    EndCut(chunks);
    return true;
  }
  const size_t size = value_begin_ + value_->size();
  std::vector<api::ToolCall> calls;
  Reading reading = Reading::kMalformed;
  if (state == ValueEnd::State::kEnded && Read(size, calls, reading)) {
    EndCalls(std::move(calls), size, chunks);
  } else {
    EndMalformed(size, size, chunks);
  }
  return true;
}

void TaggedParser::EndCalls(std::vector<api::ToolCall> calls, size_t consumed, OutputChunks& chunks) {
  AddCalls(std::move(calls), calls_->short_id, chunks);
  begin_ += consumed;
  state_ = State::kText;
  at_segment_start_ = drop_space_ = after_call_ = may_be_unmarked_ = true;
}

// The first `size` bytes are text; where another call begins among them, only those before it.
void TaggedParser::EndMalformed(size_t size, size_t consumed, OutputChunks& chunks) {
  if (value_) RecordRead(value_begin_ + value_->size());
  auto body = rest().substr(0, size);
  const size_t next = Find(call_begin_);
  state_ = State::kText;
  if (next < size && call_begin_.marker().size() <= size - next) {
    body = body.substr(0, next);
    consumed = next;
    std::vector<api::ToolCall> calls;
    Reading reading = Reading::kMalformed;
    if (Read(body.size(), calls, reading)) return EndCalls(std::move(calls), consumed, chunks);
  }
  std::string shown = space_;
  shown += body;
  for (const Replacement& inner : calls_->inner) shown = ReplaceAll(shown, inner);
  for (const Marker& marker : markers_) shown = RemoveAll(shown, marker.text());
  Show(OutputChunk::Kind::kText, shown, chunks);
  begin_ += consumed;
}

}  // namespace quire::runner::output
