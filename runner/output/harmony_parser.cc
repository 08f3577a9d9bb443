#include "runner/output/harmony_parser.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/json/read.h"
#include "runner/output/chunk_writer.h"
#include "runner/output/cut_calls.h"
#include "runner/output/text.h"

namespace quire::runner::output {
namespace {

constexpr std::string_view kMessage = "<|message|>";
constexpr std::string_view kChannel = "<|channel|>";
constexpr std::string_view kStart = "<|start|>";
constexpr std::string_view kFunctions = "functions.";
constexpr std::string_view kTo = "to=";
constexpr std::array<std::string_view, 4> kBodyEnds = {"<|end|>", "<|call|>", "<|return|>", kStart};
constexpr std::array<std::string_view, 4> kHeaderBegins = {kStart, kChannel, kMessage, "<|constrain|>"};
constexpr size_t kHeaderBytesMax = 1024;

// The word that begins behind `mark`.
std::string_view WordBehind(std::string_view header, std::string_view mark) {
  const size_t at = header.find(mark);
  if (at == std::string_view::npos) return {};
  const auto word = header.substr(at + mark.size());
  return word.substr(0, word.find_first_of(" \n\t<{\""));
}

}  // namespace

HarmonyParser::HarmonyParser(const ParserSetup& setup)
    : tokens_(setup.format.tokens),
      tools_(setup.tools),
      expects_calls_(setup.expects_calls),
      forced_(setup.forced),
      document_(setup.document),
      message_(Marked(kMessage)),
      start_(Marked(kStart)),
      in_header_(!setup.continues),
      body_(setup.continues ? BodyOfText() : Body::kText) {
  for (const auto marker : kHarmonyMarkers) markers_.push_back(Marked(marker));
  for (const auto marker : kHeaderBegins) header_begins_.push_back(Marked(marker));
  header_begins_.emplace_back(kTo);
  for (const auto marker : kBodyEnds) body_ends_.emplace_back(Marked(marker));
}

std::string HarmonyParser::Marked(std::string_view marker) const {
  return (IsMarker(marker) ? std::string(1, kTokenMark) : std::string()) + std::string(marker);
}

bool HarmonyParser::IsMarker(std::string_view token) const {
  return std::ranges::find(tokens_, token) != tokens_.end();
}

void HarmonyParser::FeedToken(std::string_view token, OutputChunks& chunks) {
  buffer_ += kTokenMark;
  Feed(token, chunks);
}

// Once from left to right: what the removal of one marker joins stays, however the answer's text was cut.
std::string HarmonyParser::WithoutMarkers(std::string_view text) const {
  std::string kept;
  while (!text.empty()) {
    const auto marker =
        std::ranges::find_if(markers_, [text](const auto& one) { return text.starts_with(one); });
    if (marker == markers_.end()) kept += text.front();
    text.remove_prefix(marker == markers_.end() ? 1 : marker->size());
  }
  return kept;
}

// Bytes at the end that may become a marker.
size_t HarmonyParser::PartialMarker(std::string_view text) const {
  size_t longest = 0;
  for (const std::string_view marker : markers_) {
    for (size_t size = std::min(marker.size() - 1, text.size()); size > longest; --size) {
      if (text.ends_with(marker.substr(0, size))) longest = size;
    }
  }
  return longest;
}

void HarmonyParser::Feed(std::string_view text, OutputChunks& chunks) {
  buffer_ += text;
  while (Step(/*end=*/false, chunks)) {
  }
  for (MarkerSearch& ending : body_ends_) ending.Cut(buffer_, begin_);
  buffer_.erase(0, std::exchange(begin_, 0));
}

void HarmonyParser::Finish(OutputChunks& chunks) {
  while (Step(/*end=*/true, chunks)) {
  }
}

bool HarmonyParser::Step(bool end, OutputChunks& chunks) {
  return in_header_ ? ConsumeHeader(end, chunks) : ConsumeBody(end, chunks);
}

void HarmonyParser::ReadHeader(std::string_view header) {
  const auto recipient = WordBehind(header, kTo);
  recipient_ = recipient.substr(recipient.starts_with(kFunctions) ? kFunctions.size() : 0);
  const bool thinks = WordBehind(header, kChannel) == "analysis";
  body_ = expects_calls_ && !recipient_.empty() ? Body::kCall : thinks ? Body::kThinking : BodyOfText();
}

bool HarmonyParser::ConsumeHeader(bool end, OutputChunks& chunks) {
  const auto text = rest();
  if (text.empty()) return false;
  const size_t message = text.substr(0, kHeaderBytesMax).find(message_);
  const auto head = TrimLeft(text);
  const bool begins =
      std::ranges::any_of(header_begins_, [&](const auto& mark) { return head.starts_with(mark); });
  const bool may_begin = head.empty() || std::ranges::any_of(header_begins_, [&](const auto& mark) {
                           return IsBeginOf(head, mark);
                         });
  if (message != std::string_view::npos && begins) {
    ReadHeader(WithoutTokenMarks(text.substr(0, message)));
    begin_ += message + message_.size();
    in_header_ = false;
    return true;
  }
  if ((begins || may_begin) && !end && text.size() < kHeaderBytesMax) return false;
  if (end && forced_) {
    EndCutHeader(WithoutTokenMarks(text), chunks);
    begin_ += text.size();
    return false;
  }
  // No header: the model wrote text at once.
  if (end && begins) {
    AddText(OutputChunk::Kind::kText, TrimLeft(WithoutMarkers(text)), chunks);
    begin_ += text.size();
    return false;
  }
  // Its begin goes, or the text would end at it and begin the same header again.
  if (head.starts_with(start_)) begin_ += text.size() - head.size() + start_.size();
  body_ = Body::kText;
  in_header_ = false;
  return true;
}

// The end of the answer is inside what names a call.
void HarmonyParser::EndCutHeader(std::string_view header, OutputChunks& chunks) {
  ReadHeader(header);
  if (body_ == Body::kThinking) return;
  const Tool* tool = tools_.Find(recipient_);
  if (tool == nullptr) tool = tools_.Only();
  if (tool != nullptr) AddCalls({{{}, tool->name, "{}"}}, false, chunks);
}

bool HarmonyParser::ConsumeBody(bool end, OutputChunks& chunks) {
  const auto text = rest();
  if (body_ == Body::kDocument) {
    AddText(OutputChunk::Kind::kText, WithoutTokenMarks(text), chunks);
    begin_ += text.size();
    return false;
  }
  size_t size = std::string_view::npos;
  size_t mark = 0;
  for (MarkerSearch& ending : body_ends_) {
    const size_t at = ending.Find(buffer_, begin_);
    if (at == std::string_view::npos || at - begin_ >= size) continue;
    size = at - begin_;
    mark = ending.marker() == start_ ? 0 : ending.marker().size();  // a begin belongs to the next header
  }
  const bool ended = size != std::string_view::npos;
  if (!ended) size = text.size();
  if (body_ == Body::kCall) {
    if (!ended && !end) return false;
    EndCall(text.substr(0, size), /*cut=*/!ended && forced_, chunks);
  } else {
    if (!ended && !end) size -= PartialMarker(text);
    const auto kind = body_ == Body::kThinking ? OutputChunk::Kind::kThinking : OutputChunk::Kind::kText;
    AddText(kind, WithoutMarkers(text.substr(0, size)), chunks);
  }
  begin_ += size + mark;
  if (ended) in_header_ = true;
  if (!ended && body_ == Body::kCall) body_ = Body::kText;
  return ended;
}

void HarmonyParser::EndCall(std::string_view arguments, bool cut, OutputChunks& chunks) const {
  const std::string text(Trim(WithoutTokenMarks(arguments)));
  auto value = api::ReadJson(text.empty() ? "{}" : text);
  if (!value && cut) value = api::ReadJson(CloseObject(text));
  if (value && value->is_object()) {
    return AddCalls({{{}, recipient_, api::DumpJson(*value)}}, false, chunks);
  }
  AddText(OutputChunk::Kind::kText, WithoutMarkers(recipient_ + std::string(arguments)), chunks);
}

}  // namespace quire::runner::output
