// The spans of a request, as OpenTelemetry's collectors take them: OTLP over HTTP in JSON, with the names of
// its conventions for generative AI. Times of the runner are durations: spans are laid out backwards from the
// first token.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/request_log.h"

namespace quire::server {

// W3C's traceparent.
struct TraceParent {
  std::string trace_id;  // 32 hex digits
  std::string span_id;   // 16
  bool sampled = false;
};
// Nothing: the header is malformed, and counts as none.
std::optional<TraceParent> ParseTraceParent(std::string_view header);

struct TraceSpan {
  std::string name;
  std::chrono::nanoseconds begin{}, end{};  // since the epoch
};

// One request that has ended, without prompts and answers.
struct RequestTrace {
  RequestLog log;
  std::string trace_id, span_id, parent_id;  // hex; parent_id may be empty
  std::chrono::nanoseconds begin{}, end{};   // since the epoch
};

// Nothing: no model took part, or whoever called does not sample.
std::optional<RequestTrace> TraceOf(const RequestLog& log, std::chrono::steady_clock::time_point now,
                                    std::chrono::system_clock::time_point wall);

// queue, template, fetch, prefill, decode: those that took place.
std::vector<TraceSpan> StagesOf(const RequestTrace& trace);

// The body of a POST to /v1/traces.
std::string EncodeTraces(const std::vector<RequestTrace>& traces, std::string_view instance);

}  // namespace quire::server
