// llama.cpp's /tokenize and /detokenize: bodies to structs, events to reply bodies. Errors as in the Ollama
// dialect.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "api/base/error.h"
#include "api/base/reply_encoder.h"
#include "api/base/request.h"

namespace quire::api {

struct TokenizeRequest {
  std::string model;  // empty = the one that is loaded
  std::string content;
  bool add_special = false;   // BOS, if the model uses one
  bool parse_special = true;  // special tokens in the text are read as such
  bool with_pieces = false;
};
struct DetokenizeRequest {
  std::string model;  // as above
  std::vector<TokenId> tokens;
};

Result<TokenizeRequest> ParseTokenize(std::string_view body);
Result<DetokenizeRequest> ParseDetokenize(std::string_view body);

Request ToRequest(TokenizeRequest request);
Request ToRequest(DetokenizeRequest request);

// {"tokens": [id]}, with pieces {"tokens": [{"id", "piece"}]}, where a piece that is not UTF-8 by itself is
// an array of bytes; {"content": text} for ids, {"prompt": text} for
// messages that a template was applied to.
class TokenizeEncoder : public ReplyEncoder {
 public:
  enum class Shape : uint8_t { kIds, kPieces, kText, kPrompt };
  explicit TokenizeEncoder(Shape shape) : shape_(shape) {}

 private:
  std::string OnDelta(const TextDelta& delta, const EventContext& context) override;
  std::string OnFinished(const Finished& finished, const EventContext& context) override;

  Shape shape_;
  TextDelta text_;
};

}  // namespace quire::api
