#include "runner/output/harmony_parser.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/json/read.h"
#include "runner/output/chunk_writer.h"
#include "runner/output/text.h"

namespace quire::runner::output {
namespace {

constexpr std::string_view kMessage = "<|message|>";
constexpr std::string_view kChannel = "<|channel|>";
constexpr std::string_view kStart = "<|start|>";
constexpr std::string_view kFunctions = "functions.";
constexpr std::string_view kTo = "to=";
constexpr std::array<std::string_view, 4> kBodyEnds = {"<|end|>", "<|call|>", "<|return|>", kStart};
constexpr std::array<std::string_view, 5> kHeaderBegins = {kStart, kChannel, kMessage, "<|constrain|>", kTo};
constexpr std::array<std::string_view, 8> kMarkers = {kMessage,  kChannel,   kStart,       "<|constrain|>",
                                                      "<|end|>", "<|call|>", "<|return|>", "<|refusal|>"};
constexpr size_t kHeaderBytesMax = 1024;

// Once from left to right: what the removal of one marker joins stays, however the answer's text was cut.
std::string WithoutMarkers(std::string_view text) {
  std::string kept;
  while (!text.empty()) {
    const auto marker = std::ranges::find_if(kMarkers, [text](auto one) { return text.starts_with(one); });
    if (marker == kMarkers.end()) kept += text.front();
    text.remove_prefix(marker == kMarkers.end() ? 1 : marker->size());
  }
  return kept;
}

// Bytes at the end that may become a marker.
size_t PartialMarker(std::string_view text) {
  size_t longest = 0;
  for (const auto marker : kMarkers) {
    for (size_t size = std::min(marker.size() - 1, text.size()); size > longest; --size) {
      if (text.ends_with(marker.substr(0, size))) longest = size;
    }
  }
  return longest;
}

// The word that begins behind `mark`.
std::string_view WordBehind(std::string_view header, std::string_view mark) {
  const size_t at = header.find(mark);
  if (at == std::string_view::npos) return {};
  const auto word = header.substr(at + mark.size());
  return word.substr(0, word.find_first_of(" \n\t<{\""));
}

}  // namespace

HarmonyParser::HarmonyParser(bool in_text, bool tools)
    : tools_(tools), in_header_(!in_text), body_ends_(kBodyEnds.begin(), kBodyEnds.end()) {}

void HarmonyParser::Feed(std::string_view text, OutputChunks& chunks) {
  buffer_ += text;
  while (Step(/*end=*/false, chunks)) {
  }
  for (MarkerSearch& ending : body_ends_) ending.Cut(begin_);
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
  body_ = tools_ && !recipient_.empty() ? Body::kCall : thinks ? Body::kThinking : Body::kText;
}

bool HarmonyParser::ConsumeHeader(bool end, OutputChunks& chunks) {
  const auto text = rest();
  if (text.empty()) return false;
  const size_t message = text.substr(0, kHeaderBytesMax).find(kMessage);
  const auto head = TrimLeft(text);
  const bool begins = std::ranges::any_of(kHeaderBegins, [&](auto mark) { return head.starts_with(mark); });
  const bool may_begin =
      head.empty() || std::ranges::any_of(kHeaderBegins, [&](auto mark) { return IsBeginOf(head, mark); });
  if (message != std::string_view::npos && begins) {
    ReadHeader(text.substr(0, message));
    begin_ += message + kMessage.size();
    in_header_ = false;
    return true;
  }
  if ((begins || may_begin) && !end && text.size() < kHeaderBytesMax) return false;
  // No header: the model wrote text at once.
  if (end && begins) {
    AddText(OutputChunk::Kind::kText, TrimLeft(WithoutMarkers(text)), chunks);
    begin_ += text.size();
    return false;
  }
  // Its begin goes, or the text would end at it and begin the same header again.
  if (head.starts_with(kStart)) begin_ += text.size() - head.size() + kStart.size();
  body_ = Body::kText;
  in_header_ = false;
  return true;
}

bool HarmonyParser::ConsumeBody(bool end, OutputChunks& chunks) {
  const auto text = rest();
  size_t size = std::string_view::npos;
  size_t mark = 0;
  for (MarkerSearch& ending : body_ends_) {
    const size_t at = ending.Find(buffer_, begin_);
    if (at == std::string_view::npos || at - begin_ >= size) continue;
    size = at - begin_;
    mark = ending.marker() == kStart ? 0 : ending.marker().size();  // a begin belongs to the next header
  }
  const bool ended = size != std::string_view::npos;
  if (!ended) size = text.size();
  if (body_ == Body::kCall) {
    if (!ended && !end) return false;
    EndCall(text.substr(0, size), chunks);
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

void HarmonyParser::EndCall(std::string_view arguments, OutputChunks& chunks) const {
  const auto trimmed = Trim(arguments);
  const auto value = api::ReadJson(trimmed.empty() ? std::string_view("{}") : trimmed);
  if (value && value->is_object()) {
    return AddCalls({{{}, recipient_, api::DumpJson(*value)}}, false, chunks);
  }
  AddText(OutputChunk::Kind::kText, WithoutMarkers(recipient_ + std::string(arguments)), chunks);
}

}  // namespace quire::runner::output
