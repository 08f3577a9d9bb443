#include "runner/tokenizer/model_tokenizer.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace quire::runner::tokenizer {
namespace {

// The rows of the embedding that config.json of a directory states; 0 where it does not.
TokenId RowsOf(const nlohmann::ordered_json& config) {
  for (const char* key : {"/vocab_size", "/text_config/vocab_size"}) {
    const nlohmann::ordered_json::json_pointer at(key);
    if (!config.contains(at)) continue;
    const nlohmann::ordered_json& rows = config.at(at);
    if (rows.is_number_unsigned() && rows.get<uint64_t>() <= uint64_t{INT32_MAX}) return rows.get<TokenId>();
  }
  return 0;
}

api::Result<std::shared_ptr<const Tokenizer>> BuildFor(const weights::ModelFiles& files) {
  if (files.format() == weights::Format::kGguf) return Tokenizer::FromGguf(files.config());
  if (files.tokenizer_json().empty() && !files.tokenizer_model().empty()) {
    return Tokenizer::FromSentencePiece(files.tokenizer_model(), files.tokenizer_config());
  }
  return Tokenizer::FromTokenizerJson(files.tokenizer_json(), files.tokenizer_config(),
                                      RowsOf(files.config()));
}

}  // namespace

api::Result<std::shared_ptr<const Tokenizer>> LoadTokenizer(const weights::ModelFiles& files) {
  auto built = BuildFor(files);
  if (built) return built;
  return api::Fail(built.error().code, fmt::format("{}: {}", files.path(), built.error().message),
                   built.error().field);
}

}  // namespace quire::runner::tokenizer
