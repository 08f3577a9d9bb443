// /tokenize and /detokenize as llama.cpp's server and vLLM have them: bodies to structs, events to reply
// bodies. A body with "prompt" or "messages" instead of "content" is vLLM's. Errors as in the Ollama dialect.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "api/base/reply_encoder.h"
#include "api/base/request.h"
#include "api/llama_server/props.h"

namespace quire::api {

struct TokenizeRequest {
  std::string model;  // empty = the one that is loaded
  std::string content;
  bool add_special = false;                  // BOS, if the model uses one
  bool parse_special = true;                 // special tokens in the text are read as such
  bool with_pieces = false;                  // what each token stands for, too
  bool counts = false;                       // the reply is vLLM's
  std::optional<TemplateRequest> chat = {};  // instead of `content`
};
struct DetokenizeRequest {
  std::string model;  // as above
  std::vector<TokenId> tokens;
};

Result<TokenizeRequest> ParseTokenize(std::string_view body);
Result<DetokenizeRequest> ParseDetokenize(std::string_view body);

Request ToRequest(TokenizeRequest request, const ModelDefaults& defaults);
Request ToRequest(DetokenizeRequest request);

// {"tokens": [id]}, with pieces {"tokens": [{"id", "piece"}]}, where a piece that is not UTF-8 by itself is
// an array of bytes; {"count", "max_model_len", "tokens": [id], "token_strs"} for vLLM; {"content": text,
// "prompt": text} for ids, as llama.cpp's server and vLLM call it; {"prompt": text} for messages that a
// template was applied to.
class TokenizeEncoder : public ReplyEncoder {
 public:
  enum class Shape : uint8_t { kIds, kPieces, kCounted, kText, kPrompt };
  // For kCounted: whether the reply has the tokens' texts, and the context of requests.
  explicit TokenizeEncoder(Shape shape, bool with_pieces = false, int32_t num_ctx = 0)
      : shape_(shape), with_pieces_(with_pieces), num_ctx_(num_ctx) {}

 private:
  std::string OnDelta(const TextDelta& delta, const EventContext& context) override;
  std::string OnFinished(const Finished& finished, const EventContext& context) override;

  std::string Counted(const std::vector<TokenId>& ids) const;

  Shape shape_;
  bool with_pieces_;
  int32_t num_ctx_;
  TextDelta text_;
};

}  // namespace quire::api
