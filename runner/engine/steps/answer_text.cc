#include "runner/engine/steps/answer_text.h"

#include <utility>

#include "runner/tokenizer/tokenizer.h"

namespace quire::runner::engine {

using Kind = output::OutputChunk::Kind;

AnswerText::AnswerText(std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
                       tokenizer::Detokenizer::StartAt start, Rules rules)
    : tokenizer_(std::move(tokenizer)),
      detokenizer_(tokenizer_, tokenizer::Detokenizer::Special::kWrite, start),
      parser_(std::move(rules.parser)),
      stop_matcher_(std::move(rules.stop)),
      indent_limit_(rules.indent_min) {}

void AnswerText::Append(api::TokenId token) {
  const size_t begin = certain_.size();
  const std::string_view bytes = tokenizer_->TokenBytes(token);
  const bool is_marker = parser_ && parser_->IsMarker(bytes);
  // Markup that means nothing here is nothing the client can use. The markup of a call is more than its first
  // marker.
  const bool hidden = !is_marker && tokenizer_->IsSpecial(token) && !(parser_ && parser_->calling());
  if (hidden) return;
  Parse(detokenizer_.Append(token), is_marker ? bytes : std::string_view());
  Filter(begin);
}

void AnswerText::End() {
  const size_t begin = certain_.size();
  Parse(detokenizer_.Flush(), {});
  if (parser_) parser_->Finish(certain_);
  Filter(begin);
  if (!stop_) certain_.push_back({Kind::kText, stop_matcher_.Flush()});
}

void AnswerText::PopCertain(output::OutputChunks& chunks) {
  chunks.clear();
  std::swap(chunks, certain_);
}

void AnswerText::Parse(std::string text, std::string_view marker) {
  line_broken_ = line_broken_ || text.find('\n') != std::string::npos;
  if (!parser_) {
    if (!text.empty()) certain_.push_back({Kind::kText, std::move(text)});
    return;
  }
  // Before the marker there may be what its token makes of a character that was begun.
  const bool is_marker = !marker.empty() && text.ends_with(marker);
  if (is_marker) text.resize(text.size() - marker.size());
  parser_->Feed(text, certain_);
  if (is_marker) parser_->FeedToken(marker, certain_);
}

// What was added behind `begin` chunks.
void AnswerText::Filter(size_t begin) {
  for (size_t i = begin; i < certain_.size() && !stop_ && !is_cut_; ++i) {
    if (certain_[i].kind != Kind::kText) {
      // A stop string does not go on behind it.
      std::string held = stop_matcher_.Flush();
      if (held.empty()) continue;
      certain_.insert(certain_.begin() + static_cast<std::ptrdiff_t>(i), {Kind::kText, std::move(held)});
      ++i;
      continue;
    }
    auto emission = stop_matcher_.Feed(certain_[i].text);
    certain_[i].text = std::move(emission.text);
    stop_ = emission.stop;
    is_cut_ = !stop_ && indent_limit_.Cut(certain_[i].text);
    if (stop_ || is_cut_) certain_.resize(i + 1);
  }
}

}  // namespace quire::runner::engine
