// From an answer's tokens to what the client sees: text, thinking and calls, up to where a stop string ends
// the text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/ids.h"
#include "runner/output/parser.h"
#include "runner/sampler/indent_limit.h"
#include "runner/sampler/stop_matcher.h"
#include "runner/tokenizer/detokenizer.h"

namespace quire::runner::engine {

// One per answer; one thread. All of its state follows from the tokens. Stop strings are looked for in the
// answer's text, not in thinking or calls. Control tokens that are no marker of the answer's format do not
// come out.
class AnswerText {
 public:
  struct Rules {
    std::vector<std::string> stop = {};
    int32_t indent_min = 0;                            // see sampler::IndentLimit
    std::unique_ptr<output::Parser> parser = nullptr;  // null: all of the answer is text
  };

  AnswerText(std::shared_ptr<const tokenizer::Tokenizer> tokenizer, tokenizer::Detokenizer::StartAt start,
             Rules rules);

  // The next token, or the end of the answer with what was held back. REQUIRES: neither is_cut() nor stop().
  void Append(api::TokenId token);
  void End();

  // Replaces `chunks` by what is certain since the last call. No allocation where the same list comes back
  // each time.
  void PopCertain(output::OutputChunks& chunks);
  std::optional<size_t> stop() const { return stop_; }  // which of the strings ended the text
  bool is_cut() const { return is_cut_; }               // too little indentation ended it
  bool line_broken() const { return line_broken_; }     // the answer has a line break

  // What comes next, as far as that is known.
  bool thinking() const { return parser_ && parser_->thinking(); }
  bool in_text() const { return !parser_ || (!parser_->thinking() && !parser_->calling()); }

 private:
  void Parse(std::string text, std::string_view marker);
  void Filter(size_t begin);

  const std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  tokenizer::Detokenizer detokenizer_;
  const std::unique_ptr<output::Parser> parser_;
  sampler::StopMatcher stop_matcher_;
  sampler::IndentLimit indent_limit_;
  output::OutputChunks certain_;
  std::optional<size_t> stop_;
  bool is_cut_ = false;
  bool line_broken_ = false;
};

}  // namespace quire::runner::engine
