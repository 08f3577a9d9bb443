#include "api/json/encode_parts.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "api/json/read.h"

namespace quire::api {
namespace {

constexpr float kLogprobFloor = -9999.0F;

Json EncodeCandidate(const TokenCandidate& candidate) {
  Json bytes = Json::array();
  for (const char c : candidate.bytes) bytes.push_back(static_cast<unsigned char>(c));
  return {
      {"token", candidate.bytes}, {"logprob", JsonLogprob(candidate.logprob)}, {"bytes", std::move(bytes)}};
}

}  // namespace

float JsonLogprob(float logprob) { return std::isfinite(logprob) ? logprob : kLogprobFloor; }

Json EncodeLogprobs(const std::vector<TokenLogprob>& logprobs) {
  Json list = Json::array();
  for (const TokenLogprob& token : logprobs) {
    Json entry = EncodeCandidate(token.chosen);
    Json top = Json::array();
    for (const TokenCandidate& candidate : token.top) top.push_back(EncodeCandidate(candidate));
    entry["top_logprobs"] = std::move(top);
    list.push_back(std::move(entry));
  }
  return list;
}

Json EncodePromptLogprobs(const std::vector<TokenLogprob>& tokens, int32_t alternatives) {
  Json list = Json::array();
  for (const TokenLogprob& token : tokens) {
    Json entry = token.rank == 0 ? Json(nullptr) : Json::object();
    const auto add = [&entry](const TokenCandidate& candidate, int32_t rank) {
      entry[std::to_string(candidate.id)] = {
          {"logprob", JsonLogprob(candidate.logprob)}, {"rank", rank}, {"decoded_token", candidate.bytes}};
    };
    if (token.rank > 0) add(token.chosen, token.rank);
    for (int32_t i = 0; std::cmp_less(i, token.top.size()) && i < alternatives; ++i) {
      add(token.top[static_cast<size_t>(i)], i + 1);
    }
    list.push_back(std::move(entry));
  }
  return list;
}

void Append(TextDelta& answer, const TextDelta& delta) {
  answer.text += delta.text;
  answer.tokens += delta.tokens;
  answer.thinking += delta.thinking;
  answer.tool_calls.insert(answer.tool_calls.end(), delta.tool_calls.begin(), delta.tool_calls.end());
  answer.logprobs.insert(answer.logprobs.end(), delta.logprobs.begin(), delta.logprobs.end());
  answer.prompt.insert(answer.prompt.end(), delta.prompt.begin(), delta.prompt.end());
}

bool IsSilent(const TextDelta& delta) {
  return delta.text.empty() && delta.thinking.empty() && delta.tool_calls.empty() && delta.logprobs.empty();
}

Json ArgumentsOf(const ToolCall& call) {
  auto arguments = ReadJson(call.arguments_json);
  return arguments && arguments->is_object() ? *std::move(arguments) : Json::object();
}

std::string NamedEvent(const Json& data) {
  return fmt::format("event: {}\ndata: {}\n\n", data.at("type").get_ref<const std::string&>(),
                     DumpJson(data));
}

std::string_view Name(FinishReason reason) { return reason == FinishReason::kLength ? "length" : "stop"; }

}  // namespace quire::api
