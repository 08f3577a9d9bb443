#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/base/utf8.h"
#include "api/json/encode_parts.h"
#include "api/openai/completions.h"

namespace quire::api::openai {
namespace {

constexpr std::string_view kObject = "text_completion";

// {"tokens", "token_logprobs", "top_logprobs", "text_offset"}
Json EncodeLogprobLists(const std::vector<TokenLogprob>& logprobs, size_t& text_offset) {
  if (logprobs.empty()) return nullptr;
  Json tokens = Json::array();
  Json chosen = Json::array();
  Json tops = Json::array();
  Json offsets = Json::array();
  for (const TokenLogprob& token : logprobs) {
    tokens.push_back(token.chosen.bytes);
    chosen.push_back(JsonLogprob(token.chosen.logprob));
    Json top = Json::object();
    for (const TokenCandidate& candidate : token.top) top[candidate.bytes] = JsonLogprob(candidate.logprob);
    tops.push_back(std::move(top));
    offsets.push_back(text_offset);
    text_offset += CountCodePoints(token.chosen.bytes);
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(chosen)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

Json EncodeChoice(size_t index, std::string_view text, Json logprobs, Json finish_reason) {
  return {{"text", text},
          {"index", index},
          {"logprobs", std::move(logprobs)},
          {"finish_reason", std::move(finish_reason)}};
}

}  // namespace

CompletionEncoder::CompletionEncoder(ReplyHead head, std::vector<std::string> echoes)
    : ChoicesEncoder(std::move(head), kObject, kObject) {
  for (size_t i = 0; i < echoes.size() && i < choices().size(); ++i) {
    choices()[i].text_offset = CountCodePoints(echoes[i]);
    choices()[i].echo = std::move(echoes[i]);
  }
}

std::string CompletionEncoder::EncodeDelta(Choice& choice, const TextDelta& delta, bool due) {
  if (delta.text.empty() && delta.logprobs.empty() && !due) return {};
  const std::string text = std::exchange(choice.echo, {}) + delta.text;
  Json logprobs = EncodeLogprobLists(delta.logprobs, choice.text_offset);
  return Chunk(EncodeChoice(choice.index, text, std::move(logprobs), nullptr), &choice);
}

Json CompletionEncoder::EncodeNothing(const Choice& choice) {
  return EncodeChoice(choice.index, "", nullptr, nullptr);
}

std::string CompletionEncoder::EncodeEnd(Choice& choice) {
  const std::string text = std::exchange(choice.echo, {});
  return Chunk(EncodeChoice(choice.index, text, nullptr, Name(*choice.finished)), &choice);
}

Json CompletionEncoder::EncodeWhole(Choice& choice) {
  return EncodeChoice(choice.index, choice.echo + choice.answer.text,
                      EncodeLogprobLists(choice.answer.logprobs, choice.text_offset), Name(*choice.finished));
}

}  // namespace quire::api::openai
