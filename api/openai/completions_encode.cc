#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/base/limits.h"
#include "api/base/utf8.h"
#include "api/json/encode_parts.h"
#include "api/openai/completions.h"

namespace quire::api::openai {
namespace {

constexpr std::string_view kObject = "text_completion";

// {"tokens", "token_logprobs", "top_logprobs", "text_offset"}
class LogprobLists {
 public:
  void Add(const TokenLogprob& token, int32_t alternatives, bool is_known, size_t offset) {
    tokens_.push_back(token.chosen.bytes);
    chosen_.push_back(is_known ? Json(JsonLogprob(token.chosen.logprob)) : Json(nullptr));
    Json top = is_known ? Json::object() : Json(nullptr);
    for (int32_t i = 0; std::cmp_less(i, token.top.size()) && i < alternatives; ++i) {
      const TokenCandidate& candidate = token.top[static_cast<size_t>(i)];
      top[candidate.bytes] = JsonLogprob(candidate.logprob);
    }
    tops_.push_back(std::move(top));
    offsets_.push_back(offset);
  }
  Json Take() {
    if (tokens_.empty()) return nullptr;
    return {{"tokens", std::move(tokens_)},
            {"token_logprobs", std::move(chosen_)},
            {"top_logprobs", std::move(tops_)},
            {"text_offset", std::move(offsets_)}};
  }

 private:
  Json tokens_ = Json::array(), chosen_ = Json::array(), tops_ = Json::array(), offsets_ = Json::array();
};

// How much of `text` a prompt's token is that was read there: all of its bytes, or those without the space
// that a tokenizer puts before a text. Nothing of one that was added to the text, as BOS is.
std::string_view PartOf(std::string_view text, std::string_view token) {
  if (text.starts_with(token)) return text.substr(0, token.size());
  if (!token.starts_with(' ')) return {};
  token.remove_prefix(1);
  return text.starts_with(token) ? text.substr(0, token.size()) : std::string_view();
}

Json EncodeChoice(size_t index, std::string_view text, Json logprobs, Json finish_reason) {
  return {{"text", text},
          {"index", index},
          {"logprobs", std::move(logprobs)},
          {"finish_reason", std::move(finish_reason)}};
}

}  // namespace

CompletionEncoder::CompletionEncoder(ReplyHead head, Echoes echoes)
    : ChoicesEncoder(std::move(head), kObject, kObject), echo_logprobs_(echoes.logprobs) {
  for (size_t i = 0; i < echoes.texts.size() && i < choices().size(); ++i) {
    Choice& choice = choices()[i];
    choice.echoes_tokens = !echoes.texts[i];
    choice.echo = std::move(echoes.texts[i]).value_or("");
    choice.text_offset = CountCodePoints(choice.echo);
  }
}

std::string CompletionEncoder::EchoOnce(Choice& choice, const std::vector<TokenLogprob>& prompt) {
  std::string text = std::exchange(choice.echo_sent, true) ? "" : choice.echo;
  if (choice.echoes_tokens) {
    for (const TokenLogprob& token : prompt) text += choice.token_text.Append(token.chosen.bytes);
  }
  return text;
}

Json CompletionEncoder::EncodeLogprobs(Choice& choice, const std::vector<TokenLogprob>& prompt,
                                       const std::vector<TokenLogprob>& answer) const {
  LogprobLists lists;
  for (const TokenLogprob& token : prompt) {
    if (echo_logprobs_ < 0) break;
    const bool is_known = token.rank > 0;
    if (choice.echoes_tokens) {
      lists.Add(token, echo_logprobs_, is_known, choice.text_offset);
      choice.text_offset += CountCodePoints(token.chosen.bytes);
      continue;
    }
    lists.Add(token, echo_logprobs_, is_known, choice.echo_offset);
    const std::string_view part =
        PartOf(std::string_view(choice.echo).substr(choice.echo_at), token.chosen.bytes);
    choice.echo_at += part.size();
    choice.echo_offset += CountCodePoints(part);
  }
  for (const TokenLogprob& token : answer) {
    lists.Add(token, kTopLogprobsMax, true, choice.text_offset);
    choice.text_offset += CountCodePoints(token.chosen.bytes);
  }
  return lists.Take();
}

std::string CompletionEncoder::EncodeDelta(Choice& choice, const TextDelta& delta, bool due) {
  const bool of_prompt = !delta.prompt.empty();
  if (delta.text.empty() && delta.logprobs.empty() && !of_prompt && !due) return {};
  std::string text = EchoOnce(choice, delta.prompt);
  if (!of_prompt) text += choice.token_text.Flush() + delta.text;
  Json logprobs = EncodeLogprobs(choice, delta.prompt, delta.logprobs);
  if (!of_prompt) std::string().swap(choice.echo);
  return Chunk(EncodeChoice(choice.index, text, std::move(logprobs), nullptr), &choice);
}

Json CompletionEncoder::EncodeNothing(const Choice& choice) {
  return EncodeChoice(choice.index, "", nullptr, nullptr);
}

std::string CompletionEncoder::EncodeEnd(Choice& choice) {
  const std::string text = EchoOnce(choice, {}) + choice.token_text.Flush();
  return Chunk(EncodeChoice(choice.index, text, nullptr, Name(*choice.finished)), &choice);
}

Json CompletionEncoder::EncodeWhole(Choice& choice) {
  const TextDelta& answer = choice.answer;
  const std::string echo = EchoOnce(choice, answer.prompt) + choice.token_text.Flush();
  Json encoded = EncodeChoice(choice.index, echo + answer.text,
                              EncodeLogprobs(choice, answer.prompt, answer.logprobs), Name(*choice.finished));
  if (head().prompt_logprobs >= 0)
    encoded["prompt_logprobs"] = EncodePromptLogprobs(answer.prompt, head().prompt_logprobs);
  return encoded;
}

}  // namespace quire::api::openai
