#include "runner/tokenizer/model_tokenizer.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace quire::runner::tokenizer {
namespace {

api::Result<std::shared_ptr<const Tokenizer>> BuildFor(const weights::ModelFiles& files) {
  if (files.format() == weights::Format::kGguf) return Tokenizer::FromGguf(files.config());
  if (files.tokenizer_json().empty() && !files.tokenizer_model().empty()) {
    return Tokenizer::FromSentencePiece(files.tokenizer_model(), files.tokenizer_config());
  }
  return Tokenizer::FromTokenizerJson(files.tokenizer_json(), files.tokenizer_config());
}

}  // namespace

api::Result<std::shared_ptr<const Tokenizer>> LoadTokenizer(const weights::ModelFiles& files) {
  auto built = BuildFor(files);
  if (built) return built;
  return api::Fail(built.error().code, fmt::format("{}: {}", files.path(), built.error().message),
                   built.error().field);
}

}  // namespace quire::runner::tokenizer
