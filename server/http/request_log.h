// One structured line per request. Never prints prompts, answers or credentials, and holds none of them but
// `divergence`.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "api/base/event.h"

namespace quire::server {

// How long the tokens of a stream were apart, as a histogram.
struct TokenGaps {
  static constexpr std::array<double, 10> kBounds = {0.005, 0.01, 0.025, 0.05, 0.1,
                                                     0.25,  0.5,  1,     2.5,  5};  // seconds, upper
  std::array<uint32_t, kBounds.size() + 1> counts = {};
  double sum = 0;  // seconds
  std::optional<std::chrono::steady_clock::time_point> last = {};

  // `tokens` came together at `now`; their times are taken to be even. 0 tokens change nothing.
  void Record(std::chrono::steady_clock::time_point now, int32_t tokens);
};

struct RequestLog {
  std::string id;
  std::string client;  // address:port
  std::string method;
  std::string path;
  std::string route = {};         // the template that the path matched ("/v1/models/{model}"); empty: none
  std::string model = {};         // as the client named it
  std::string stored_model = {};  // as the store names it; empty: no such model
  std::string key = {};           // name of the API key
  int status = 0;
  uint64_t bytes = 0;       // of the answer's body
  uint64_t body_bytes = 0;  // of a request for an answer
  std::chrono::steady_clock::time_point start = {};
  std::optional<std::chrono::nanoseconds> queued = {};       // submitted until the prompt was admitted
  std::optional<std::chrono::nanoseconds> first_token = {};  // since `start`
  std::optional<int32_t> prompt_tokens = {}, cached_tokens = {}, output_tokens = {};
  int32_t streamed_tokens = 0;  // of the answer so far, all choices
  std::string miss = {};        // why not more of the prompt was cached (api/event.h)
  // Whose cached prefixes the request may see (api::Client), and where its prompt left them: for views of the
  // same isolation key only.
  std::string isolation = {};
  std::optional<api::Divergence> divergence = {};
  std::chrono::nanoseconds prompt_build = {}, prefix_restore = {};    // by the runner, before its prefill
  std::string finish = {};                                            // stop | length | load | unload | embed
  std::string finish_in = {};                                         // thinking: the answer ended there
  std::chrono::nanoseconds prompt_compute = {}, output_compute = {};  // by the runner
  TokenGaps gaps = {};
  api::DraftUsage draft = {};  // of all choices
  int runner_pid = 0;
  std::string trace_parent = {};  // the request's header, as it came
  std::string error = {};         // why the answer is not a good one: a word, not a sentence
};

// Adds the draft usage of another choice of the request.
void AddDrafts(api::DraftUsage& sum, const api::DraftUsage& more);

// Why not more of the prompt was cached, as clients may read it. That another client asked for the same
// prefix ("salt") is for the log alone: to clients the prefix is as unknown as any other ("cold").
std::string_view MissForClients(const RequestLog& log);

// "key=value ..." without the fields that are not set; values from outside are quoted when they need it.
std::string FormatRequest(const RequestLog& log, std::chrono::steady_clock::time_point now);

// FormatRequest() at info level, as of now.
void LogRequest(const RequestLog& log);

// A text from outside as one value of a log line: bounded, quoted and escaped when it needs it.
std::string LogValue(std::string_view text);

}  // namespace quire::server
