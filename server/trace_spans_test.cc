#include "server/trace_spans.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>

#include "api/base/file_descriptor.h"
#include "server/trace_exporter.h"

namespace quire::server {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

constexpr const char* kParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const std::chrono::steady_clock::time_point kBegin{100s};
const std::chrono::system_clock::time_point kWallEnd{1000s};

RequestLog TracedRequest() {
  RequestLog log;
  log.id = "req_1";
  log.model = "demo";
  log.stored_model = "demo:latest";
  log.route = "/v1/chat/completions";
  log.method = "POST";
  log.status = 200;
  log.body_bytes = 100;
  log.start = kBegin;
  log.queued = 2s;
  log.first_token = 6s;
  log.prompt_build = 100ms;
  log.prefix_restore = 400ms;
  log.prompt_compute = 3s;
  log.output_compute = 4s;
  log.prompt_tokens = 700;
  log.cached_tokens = 600;
  log.output_tokens = 20;
  log.finish = "stop";
  log.trace_parent = kParent;
  return log;
}

std::optional<RequestTrace> Trace(const RequestLog& log) { return TraceOf(log, kBegin + 10s, kWallEnd); }

TEST(TraceParents, AreReadAsW3cWritesThem) {
  const auto parent = ParseTraceParent(kParent);
  ASSERT_TRUE(parent);
  EXPECT_EQ(parent->trace_id, "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(parent->span_id, "b7ad6b7169203331");
  EXPECT_TRUE(parent->sampled);
  EXPECT_FALSE(ParseTraceParent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")->sampled);
  EXPECT_TRUE(ParseTraceParent("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more"));
  for (const char* header : {"", "00-", "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                             "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
                             "00-00000000000000000000000000000000-b7ad6b7169203331-01",
                             "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
                             "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
                             "00-0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331-01"})
    EXPECT_FALSE(ParseTraceParent(header)) << header;
}

TEST(Traces, ContinueTheCallersOrBeginTheirOwn) {
  const auto trace = Trace(TracedRequest());
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace->trace_id, "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(trace->parent_id, "b7ad6b7169203331");
  EXPECT_EQ(trace->span_id.size(), 16U);
  EXPECT_EQ(trace->begin, 990s);
  RequestLog log = TracedRequest();
  log.trace_parent = "nonsense";
  const auto own = Trace(log);
  EXPECT_EQ(own->trace_id.size(), 32U);
  EXPECT_EQ(own->parent_id, "");
  log.trace_parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
  EXPECT_FALSE(Trace(log));
  EXPECT_FALSE(Trace(RequestLog()));
}

TEST(Traces, HaveASpanForEachStage) {
  const auto trace = Trace(TracedRequest());
  std::vector<std::pair<std::string, std::chrono::nanoseconds>> stages;
  for (const TraceSpan& span : StagesOf(*trace)) {
    EXPECT_GE(span.begin, trace->begin);
    EXPECT_LE(span.end, trace->end);
    stages.emplace_back(span.name, span.end - span.begin);
  }
  EXPECT_EQ(stages,
            (decltype(stages){
                {"queue", 2500ms}, {"template", 100ms}, {"fetch", 400ms}, {"prefill", 3s}, {"decode", 4s}}));
  RequestLog waiting = TracedRequest();
  waiting.queued.reset();
  EXPECT_TRUE(StagesOf(*Trace(waiting)).empty());
}

TEST(Traces, AreEncodedForACollector) {
  RequestLog failed = TracedRequest();
  failed.status = 500;
  failed.error = "internal";
  const auto body = json::parse(EncodeTraces({*Trace(TracedRequest()), *Trace(failed)}, "node-1"));
  const json& resource = body["resourceSpans"][0];
  EXPECT_EQ(resource["resource"]["attributes"][0]["value"]["stringValue"], "quire");
  const json& spans = resource["scopeSpans"][0]["spans"];
  ASSERT_EQ(spans.size(), 12U);
  EXPECT_EQ(spans[0]["name"], "chat demo:latest");
  EXPECT_EQ(spans[0]["parentSpanId"], "b7ad6b7169203331");
  EXPECT_EQ(spans[0]["startTimeUnixNano"], "990000000000");
  EXPECT_FALSE(spans[0].contains("status"));
  EXPECT_EQ(spans[6]["status"]["code"], 2);
  EXPECT_EQ(spans[1]["parentSpanId"], spans[0]["spanId"]);
  EXPECT_NE(spans[1]["spanId"], spans[2]["spanId"]);
  std::map<std::string, json> attributes;
  for (const json& attribute : spans[0]["attributes"]) attributes[attribute["key"]] = attribute["value"];
  EXPECT_EQ(attributes["gen_ai.usage.input_tokens"]["intValue"], "700");
  EXPECT_EQ(attributes["gen_ai.response.finish_reasons"]["arrayValue"]["values"][0]["stringValue"], "stop");
}

// A collector that nobody runs: traces are dropped, counted, and hold nobody up at the end.
TEST(Traces, AreDroppedWhereNobodyCollectsThem) {
  TraceExporter exporter("http://127.0.0.1:1", "node-1");
  exporter.Export(*Trace(TracedRequest()));
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  while (exporter.stats().dropped == 0 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(10ms);
  EXPECT_EQ(exporter.stats().dropped, 1U);
  EXPECT_EQ(exporter.stats().sent, 0U);
}

// Answers each request with `head`, then byte by byte.
class DrippingCollector {
 public:
  explicit DrippingCollector(std::string head)
      : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), head_(std::move(head)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(listener_.get(), 4), 0);
    EXPECT_EQ(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::jthread([this] {
      const api::FileDescriptor fd(::accept(listener_.get(), nullptr, nullptr));
      bool sent = ::send(fd.get(), head_.data(), head_.size(), MSG_NOSIGNAL) > 0;
      while (sent) {
        sent = ::send(fd.get(), "x", 1, MSG_NOSIGNAL) == 1;
        std::this_thread::sleep_for(5ms);
      }
    });
  }
  std::string url() const { return fmt::format("http://127.0.0.1:{}", port_); }

 private:
  api::FileDescriptor listener_;
  const std::string head_;
  uint16_t port_ = 0;
  std::jthread thread_;  // last
};

// A collector that goes on answering would have the thread, and with it all traces, forever.
TEST(Traces, ACollectorThatDripsIsLeft) {
  const std::string head = "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n";
  for (const std::string& begin :
       {head, std::string("HTTP/1.1 200 OK\r\nX-Long: "), head + std::string(70'000, 'x')}) {
    const DrippingCollector collector(begin);
    TraceExporter exporter(collector.url(), "node-1", begin.size() < 1000 ? 300ms : 100s);
    exporter.Export(*Trace(TracedRequest()));
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    while (exporter.stats().dropped == 0 && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(10ms);
    EXPECT_EQ(exporter.stats().dropped, 1U);
  }
}

}  // namespace
}  // namespace quire::server
