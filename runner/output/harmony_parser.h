// Answers in OpenAI's harmony format: messages with a header that names a channel and maybe a recipient.
//
//   <|channel|>analysis<|message|>thinking<|end|><|start|>assistant<|channel|>final<|message|>text
//   ... <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{...}<|call|>
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "runner/output/marker_search.h"
#include "runner/output/parser.h"

namespace quire::runner::output {

class HarmonyParser final : public Parser {
 public:
  // `in_text`: the answer continues the text of a message. Without `tools` a message to a recipient is
  // text.
  HarmonyParser(bool in_text, bool tools);

  void Feed(std::string_view text, OutputChunks& chunks) override;
  void Finish(OutputChunks& chunks) override;
  bool thinking() const override { return body_ == Body::kThinking || in_header_; }

 private:
  enum class Body : uint8_t { kText, kThinking, kCall };

  bool Step(bool end, OutputChunks& chunks);
  bool ConsumeHeader(bool end, OutputChunks& chunks);
  bool ConsumeBody(bool end, OutputChunks& chunks);
  void ReadHeader(std::string_view header);
  void EndCall(std::string_view arguments, OutputChunks& chunks) const;
  std::string_view rest() const { return std::string_view(buffer_).substr(begin_); }

  const bool tools_;
  bool in_header_;
  Body body_ = Body::kText;
  std::string recipient_;
  std::string buffer_;
  size_t begin_ = 0;                     // of what is not taken yet
  std::vector<MarkerSearch> body_ends_;  // what ends a message
};

}  // namespace quire::runner::output
