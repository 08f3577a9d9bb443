#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/base/utf8.h"
#include "api/json/encode_parts.h"
#include "api/json/read.h"
#include "api/openai/completions.h"
#include "api/openai/parts.h"

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

std::string Chunk(const ReplyHead& head, Json choice, const Usage& so_far) {
  Json chunk = Head(head, kObject);
  chunk["choices"] = Json::array({std::move(choice)});
  AddUsage(chunk, head, so_far);
  return ServerSentEvent(chunk);
}

}  // namespace

CompletionEncoder::CompletionEncoder(ReplyHead head, std::vector<std::string> echoes)
    : head_(std::move(head)), choices_(head_.choices) {
  for (size_t i = 0; i < echoes.size() && i < choices_.size(); ++i) {
    choices_[i].text_offset = CountCodePoints(echoes[i]);
    choices_[i].echo = std::move(echoes[i]);
  }
}

std::string CompletionEncoder::OnEvent(size_t choice, const Event& event) {
  Count(choices_.at(choice).so_far, event);
  if (const auto* delta = std::get_if<TextDelta>(&event)) return OnText(choice, *delta);
  if (const auto* finished = std::get_if<Finished>(&event)) return OnFinished(choice, *finished);
  if (const auto* failed = std::get_if<Failed>(&event)) return StreamError(failed->error);
  return {};
}

std::string CompletionEncoder::OnText(size_t index, const TextDelta& delta) {
  Choice& choice = choices_.at(index);
  if (!head_.stream) {
    Append(choice.answer, delta);
    return {};
  }
  const bool due = head_.chunk_per_token && delta.tokens > 0;
  if (delta.text.empty() && delta.logprobs.empty() && !due) return {};
  const std::string text = std::exchange(choice.echo, {}) + delta.text;
  return Chunk(head_,
               EncodeChoice(index, text, EncodeLogprobLists(delta.logprobs, choice.text_offset), nullptr),
               choice.so_far);
}

std::string CompletionEncoder::OnFinished(size_t index, const Finished& finished) {
  Choice& choice = choices_.at(index);
  choice.finished = finished;
  usage_.Add(finished.usage, index % head_.choices_per_prompt == 0);
  const bool all = std::ranges::all_of(choices_, [](const Choice& one) { return one.finished.has_value(); });
  if (!head_.stream) return all ? Whole() : std::string();
  const std::string text = std::exchange(choice.echo, {});
  const std::string out =
      Chunk(head_, EncodeChoice(index, text, nullptr, Name(finished.reason)), finished.usage);
  return all ? out + EndOfStream(head_, kObject, usage_) : out;
}

std::string CompletionEncoder::Whole() {
  Json list = Json::array();
  for (size_t i = 0; i < choices_.size(); ++i) {
    Choice& choice = choices_[i];
    list.push_back(EncodeChoice(i, choice.echo + choice.answer.text,
                                EncodeLogprobLists(choice.answer.logprobs, choice.text_offset),
                                Name(choice.finished->reason)));
  }
  Json body = Head(head_, kObject);
  body["choices"] = std::move(list);
  body["usage"] = EncodeUsage(usage_);
  return DumpJson(body);
}

}  // namespace quire::api::openai
