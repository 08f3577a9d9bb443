#include "server/routes/gathered_body.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "api/base/sha256.h"
#include "server/testing/test_daemon.h"

namespace quire::server {
namespace {

using testing::RawClient;
using testing::TestDaemon;

std::string UploadBytes(const std::string& blob, size_t announced) {
  return "POST /api/blobs/sha256:" + api::Sha256Of(blob) +
         " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(announced) + "\r\n\r\n";
}

TEST(GatheredBody, ThoseThatSendNothingHoldUpNobody) {
  TestDaemon daemon;
  std::vector<std::unique_ptr<RawClient>> silent;
  for (size_t i = 0; i < 40; ++i) {
    silent.push_back(std::make_unique<RawClient>(daemon.port()));
    const std::string blob(1000 + i, 's');
    silent.back()->Send(UploadBytes(blob, blob.size()));
  }
  const std::string blob(3 << 20, 'b');
  EXPECT_EQ(daemon.Post("/api/blobs/sha256:" + api::Sha256Of(blob), blob).status, 201);
  for (size_t i = 0; i < silent.size(); ++i) {
    silent[i]->Send(std::string(1000 + i, 's'));
    EXPECT_EQ(silent[i]->Read().status, 201) << i;
  }
}

}  // namespace
}  // namespace quire::server
