#include "server/trace_spans.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/base/random_id.h"
#include "api/json/type.h"

namespace quire::server {
namespace {

using Json = api::Json;
using std::chrono::nanoseconds;

constexpr int kInternalSpan = 1, kServerSpan = 2;
constexpr int kStatusError = 2;
constexpr size_t kTraceIdDigits = 32, kSpanIdDigits = 16;

bool IsHex(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool IsId(std::string_view text, size_t digits) {
  return text.size() == digits && IsHex(text) && text.find_first_not_of('0') != std::string_view::npos;
}

Json TextValue(std::string_view key, std::string value) {
  return {{"key", key}, {"value", {{"stringValue", std::move(value)}}}};
}
Json WholeValue(std::string_view key, int64_t value) {
  return {{"key", key}, {"value", {{"intValue", std::to_string(value)}}}};
}

std::string OperationOf(const RequestLog& log) {
  if (log.finish == "embed") return "embeddings";
  return log.route.find("chat") != std::string::npos || log.route.find("messages") != std::string::npos
             ? "chat"
             : "text_completion";
}

Json AttributesOf(const RequestLog& log) {
  Json attributes = Json::array(
      {TextValue("gen_ai.operation.name", OperationOf(log)), TextValue("gen_ai.provider.name", "quire"),
       TextValue("gen_ai.request.model", log.model), TextValue("gen_ai.response.model", log.stored_model),
       TextValue("gen_ai.response.id", log.id), TextValue("http.request.method", log.method),
       TextValue("http.route", log.route), WholeValue("http.response.status_code", log.status)});
  if (log.prompt_tokens) attributes.push_back(WholeValue("gen_ai.usage.input_tokens", *log.prompt_tokens));
  if (log.cached_tokens)
    attributes.push_back(WholeValue("gen_ai.usage.cache_read.input_tokens", *log.cached_tokens));
  if (log.output_tokens) attributes.push_back(WholeValue("gen_ai.usage.output_tokens", *log.output_tokens));
  if (!log.finish.empty()) {
    const Json reasons = Json::array({Json{{"stringValue", log.finish}}});
    attributes.push_back(
        Json{{"key", "gen_ai.response.finish_reasons"}, {"value", {{"arrayValue", {{"values", reasons}}}}}});
  }
  if (!log.error.empty()) attributes.push_back(TextValue("error.type", log.error));
  return attributes;
}

Json SpanOf(const RequestTrace& trace, const std::string& id, const std::string& parent,
            const TraceSpan& span, int kind) {
  Json json{{"traceId", trace.trace_id}, {"spanId", id}};
  if (!parent.empty()) json["parentSpanId"] = parent;
  json["name"] = span.name;
  json["kind"] = kind;
  json["startTimeUnixNano"] = std::to_string(span.begin.count());
  json["endTimeUnixNano"] = std::to_string(span.end.count());
  return json;
}

std::string RandomSpanId() { return fmt::format("{:016x}", api::RandomBits() | 1); }

// Differs for each stage of a trace, and is the same when it is encoded again.
std::string StageId(const RequestTrace& trace, size_t stage) {
  uint64_t hash = 0xcbf29ce484222325 + stage;
  for (const char c : trace.trace_id + trace.span_id) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return fmt::format("{:016x}", hash | 1);
}

void AddSpans(const RequestTrace& trace, Json& spans) {
  const TraceSpan whole{OperationOf(trace.log) + " " + trace.log.stored_model, trace.begin, trace.end};
  Json root = SpanOf(trace, trace.span_id, trace.parent_id, whole, kServerSpan);
  root["attributes"] = AttributesOf(trace.log);
  if (trace.log.status >= 500 || !trace.log.error.empty()) root["status"] = {{"code", kStatusError}};
  spans.push_back(std::move(root));
  size_t stage = 0;
  for (const TraceSpan& span : StagesOf(trace))
    spans.push_back(SpanOf(trace, StageId(trace, ++stage), trace.span_id, span, kInternalSpan));
}

}  // namespace

std::optional<TraceParent> ParseTraceParent(std::string_view header) {
  // version-trace-span-flags; later versions may have more behind it.
  constexpr size_t kSize = 2 + 1 + kTraceIdDigits + 1 + kSpanIdDigits + 1 + 2;
  if (header.size() < kSize || header.starts_with("ff") || !IsHex(header.substr(0, 2))) return std::nullopt;
  if (header.size() > kSize && (header.starts_with("00") || header[kSize] != '-')) return std::nullopt;
  const std::string_view trace = header.substr(3, kTraceIdDigits);
  const std::string_view span = header.substr(4 + kTraceIdDigits, kSpanIdDigits);
  const std::string_view flags = header.substr(kSize - 2, 2);
  if (header[2] != '-' || header[3 + kTraceIdDigits] != '-' || header[kSize - 3] != '-') return std::nullopt;
  if (!IsId(trace, kTraceIdDigits) || !IsId(span, kSpanIdDigits) || !IsHex(flags)) return std::nullopt;
  const char last = flags[1];
  const int digit = last <= '9' ? last - '0' : last - 'a' + 10;
  return TraceParent{std::string(trace), std::string(span), (digit & 1) != 0};
}

std::optional<RequestTrace> TraceOf(const RequestLog& log, std::chrono::steady_clock::time_point now,
                                    std::chrono::system_clock::time_point wall) {
  if (log.stored_model.empty() || (log.body_bytes == 0 && !log.prompt_tokens)) return std::nullopt;
  RequestTrace trace{.log = log, .trace_id = {}, .span_id = {}, .parent_id = {}};
  if (const auto parent = ParseTraceParent(log.trace_parent)) {
    if (!parent->sampled) return std::nullopt;
    trace.trace_id = parent->trace_id;
    trace.parent_id = parent->span_id;
  } else {
    trace.trace_id = RandomSpanId() + RandomSpanId();
  }
  trace.span_id = RandomSpanId();
  trace.log.divergence.reset();
  trace.end = std::chrono::duration_cast<nanoseconds>(wall.time_since_epoch());
  trace.begin = trace.end - (now - log.start);
  return trace;
}

std::vector<TraceSpan> StagesOf(const RequestTrace& trace) {
  const RequestLog& log = trace.log;
  std::vector<TraceSpan> spans;
  if (!log.queued) return spans;
  const auto clamped = [&trace](nanoseconds time) { return std::clamp(time, trace.begin, trace.end); };
  const nanoseconds first = log.first_token ? clamped(trace.begin + *log.first_token) : trace.end;
  const nanoseconds prefill = log.prompt_compute.count() > 0 ? clamped(first - log.prompt_compute) : first;
  const nanoseconds fetch = clamped(prefill - log.prefix_restore);
  const nanoseconds build = clamped(fetch - log.prompt_build);
  const auto add = [&spans](const char* name, nanoseconds begin, nanoseconds end) {
    if (end > begin) spans.push_back({name, begin, end});
  };
  add("queue", trace.begin, build);
  add("template", build, fetch);
  add("fetch", fetch, prefill);
  add("prefill", prefill, first);
  if (log.first_token) add("decode", first, trace.end);
  return spans;
}

std::string EncodeTraces(const std::vector<RequestTrace>& traces, std::string_view instance) {
  Json spans = Json::array();
  for (const RequestTrace& trace : traces) AddSpans(trace, spans);
  const Json resource{{"attributes", Json::array({TextValue("service.name", "quire"),
                                                  TextValue("service.version", QUIRE_VERSION),
                                                  TextValue("service.instance.id", std::string(instance))})}};
  const Json scope{{"scope", {{"name", "quire"}, {"version", QUIRE_VERSION}}}, {"spans", std::move(spans)}};
  const Json body{
      {"resourceSpans", Json::array({Json{{"resource", resource}, {"scopeSpans", Json::array({scope})}}})}};
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace quire::server
