// One structured line per request. Never holds or prints prompts, answers or credentials.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quire::server {

struct RequestLog {
  std::string id;
  std::string client;  // address:port
  std::string method;
  std::string path;
  std::string model = {};  // as the client named it
  int status = 0;
  uint64_t bytes = 0;  // of the answer's body
  std::chrono::steady_clock::time_point start = {};
  std::optional<std::chrono::nanoseconds> queued = {};       // submitted until the prompt was admitted
  std::optional<std::chrono::nanoseconds> first_token = {};  // since `start`
  std::optional<int32_t> prompt_tokens = {}, cached_tokens = {}, output_tokens = {};
  std::string miss = {};    // why not more of the prompt was cached (api/event.h)
  std::string finish = {};  // stop | length | load | unload | embed
  int runner_pid = 0;
  std::string error = {};  // why the answer is not a good one: a word, not a sentence
};

// "key=value ..." without the fields that are not set; values from outside are quoted when they need it.
std::string FormatRequest(const RequestLog& log, std::chrono::steady_clock::time_point now);

// A text from outside as one value of a log line: bounded, quoted and escaped when it needs it.
std::string LogValue(std::string_view text);

}  // namespace quire::server
