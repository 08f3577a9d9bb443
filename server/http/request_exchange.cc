#include "server/http/request_exchange.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

namespace quire::server {

std::optional<ParseFailure> FailureOf(const std::optional<fair::Quota::Refusal>& refusal,
                                      std::string_view what) {
  if (!refusal) return std::nullopt;
  if (refusal->bound == fair::Quota::Bound::kParty)
    return ParseFailure{429, fmt::format("too many large {} of this client in memory", what)};
  return ParseFailure{503, fmt::format("too many {} in memory", what)};
}

void RequestExchange::SetParty(const fair::PartyId& party) {
  body_memory_ = fair::Quota::Lease(transport_.bodies, party);
  answer_memory_ = fair::Quota::Lease(transport_.answers, party);
}

void RequestExchange::DropBody() {
  dropped_bytes_ += request_.body.size();
  std::string().swap(request_.body);  // an assignment keeps the memory
}

std::optional<ParseFailure> RequestExchange::ReserveRequest(uint64_t bytes) {
  const uint64_t all = request_.body.size() + bytes;
  if (all <= body_limit_) return FailureOf(body_memory_.GrowTo(all), kBodies);
  return ParseFailure{
      413, fmt::format("the request, with a copy for each choice, takes more than {} bytes of memory",
                       body_limit_)};
}

void RequestExchange::ShrinkRequest(uint64_t bytes) { body_memory_.ShrinkTo(request_.body.size() + bytes); }

std::optional<ParseFailure> RequestExchange::ReserveAnswer(uint64_t bytes) {
  const uint64_t limit = transport_.limits.answer_bytes_max;
  if (bytes <= limit) return FailureOf(answer_memory_.GrowTo(bytes), kAnswers);
  return ParseFailure{
      413, fmt::format("the answer is larger than {} bytes, the limit of one that is sent whole; ask for "
                       "fewer tokens, choices, logprobs or texts, or for a stream",
                       limit)};
}

std::string RequestExchange::ClientText(const std::string& message) {
  std::string text = transport_.client_text(message);
  if (text != message) spdlog::warn("id={} error_detail={}", log_.id, LogValue(message));
  return text;
}

Awaitable<bool> RequestExchange::Send(HttpResponse response) {
  if (!writer_.close() && !body_.done()) {
    const bool dropped = co_await body_.Drop();
    if (!dropped) writer_.CloseAfterwards();
  }
  EndWork();
  // Where there is no memory for the encoder, the answer leaves as it is.
  const bool encode =
      writer_.MayEncode(response) && !answer_memory_.GrowTo(answer_memory_.amount() + GzipEncoder::kBytes);
  co_return co_await writer_.Send(std::move(response), encode);
}

}  // namespace quire::server
