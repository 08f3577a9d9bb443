#include "server/http/request_log.h"

#include <gtest/gtest.h>

namespace quire::server {
namespace {

TEST(RequestLog, PrintsWhatIsKnownAsKeyValue) {
  RequestLog log{.id = "req-1", .client = "127.0.0.1:9", .method = "POST", .path = "/api/chat"};
  log.status = 200;
  log.model = "quire-demo";
  log.bytes = 12;
  log.prompt_tokens = 5;
  log.cached_tokens = 0;
  log.finish = "stop";
  log.finish_in = "thinking";
  log.first_token = std::chrono::microseconds(1500);
  EXPECT_EQ(FormatRequest(log, log.start + std::chrono::milliseconds(20)),
            "id=req-1 method=POST path=/api/chat status=200 model=quire-demo client=127.0.0.1:9 bytes=12 "
            "ttft_ms=1.5 "
            "total_ms=20.0 prompt_tokens=5 cached_tokens=0 finish=stop finish_in=thinking");
}

TEST(RequestLog, ForeignTextCannotForgeFieldsOrLines) {
  RequestLog log{.id = "req-1", .client = "c", .method = "GET", .path = "/x status=200\nid=\"fake\"\xC3\xA9"};
  log.status = 404;
  log.model = std::string(1000, 'm');
  const std::string line = FormatRequest(log, log.start);
  EXPECT_NE(line.find(R"(path="/x status=200\x0aid=\"fake\"\xc3\xa9")"), std::string::npos) << line;
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_LT(line.size(), 600u);
}

}  // namespace
}  // namespace quire::server
