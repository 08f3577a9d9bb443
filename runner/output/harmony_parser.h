// Answers in OpenAI's harmony format: messages with a header that names a channel and maybe a recipient.
//
//   <|channel|>analysis<|message|>thinking<|end|><|start|>assistant<|channel|>final<|message|>text
//   ... <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{...}<|call|>
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runner/output/format.h"
#include "runner/output/marker_search.h"
#include "runner/output/parser.h"
#include "runner/output/tools.h"

namespace quire::runner::output {

inline constexpr std::array<std::string_view, 8> kHarmonyMarkers = {
    "<|message|>", "<|channel|>", "<|start|>",  "<|constrain|>",
    "<|end|>",     "<|call|>",    "<|return|>", "<|refusal|>"};

class HarmonyParser final : public Parser {
 public:
  // Where no calls are expected a message to a recipient is text.
  explicit HarmonyParser(const ParserSetup& setup);

  void Feed(std::string_view text, OutputChunks& chunks) override;
  bool IsMarker(std::string_view token) const override;
  void FeedToken(std::string_view token, OutputChunks& chunks) override;
  void Finish(OutputChunks& chunks) override;
  bool thinking() const override { return body_ == Body::kThinking || in_header_; }
  bool calling() const override {
    return forced_ ? body_ != Body::kThinking : body_ == Body::kCall && !in_header_;
  }

 private:
  enum class Body : uint8_t { kText, kThinking, kCall, kDocument };

  bool Step(bool end, OutputChunks& chunks);
  bool ConsumeHeader(bool end, OutputChunks& chunks);
  bool ConsumeBody(bool end, OutputChunks& chunks);
  void ReadHeader(std::string_view header);
  void EndCall(std::string_view arguments, bool cut, OutputChunks& chunks) const;
  void EndCutHeader(std::string_view header, OutputChunks& chunks);
  std::string WithoutMarkers(std::string_view text) const;
  size_t PartialMarker(std::string_view text) const;
  // As it stands in the buffer.
  std::string Marked(std::string_view marker) const;
  Body BodyOfText() const { return document_ ? Body::kDocument : Body::kText; }
  std::string_view rest() const { return std::string_view(buffer_).substr(begin_); }

  const std::vector<std::string_view> tokens_;  // see Format::tokens
  const Tools tools_;
  const bool expects_calls_, forced_, document_;
  const std::string message_, start_;
  std::vector<std::string> markers_, header_begins_;
  bool in_header_;
  Body body_ = Body::kText;
  std::string recipient_;
  std::string buffer_;
  size_t begin_ = 0;                     // of what is not taken yet
  std::vector<MarkerSearch> body_ends_;  // what ends a message
};

}  // namespace quire::runner::output
