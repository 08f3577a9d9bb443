#include "server/registry/address_policy.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <cstring>

namespace quire::server::registry {
namespace {

bool IsPublicText(const char* text) {
  sockaddr_storage storage{};
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  v4.sin_family = AF_INET;
  v6.sin6_family = AF_INET6;
  if (::inet_pton(AF_INET, text, &v4.sin_addr) == 1) {
    std::memcpy(&storage, &v4, sizeof(v4));
  } else {
    EXPECT_EQ(::inet_pton(AF_INET6, text, &v6.sin6_addr), 1) << text;
    std::memcpy(&storage, &v6, sizeof(v6));
  }
  return IsPublic(reinterpret_cast<const sockaddr&>(storage));
}

TEST(AddressPolicy, KnowsWhatIsPublic) {
  for (const char* text : {"1.1.1.1", "8.8.8.8", "172.15.255.255", "172.32.0.1", "100.63.0.1", "100.128.0.1",
                           "2606:4700::1111", "::ffff:8.8.8.8"}) {
    EXPECT_TRUE(IsPublicText(text)) << text;
  }
  for (const char* text : {"0.0.0.0",
                           "10.1.2.3",
                           "127.0.0.1",
                           "127.255.255.255",
                           "169.254.169.254",
                           "172.16.0.1",
                           "172.31.255.255",
                           "192.168.0.1",
                           "100.64.0.1",
                           "198.18.0.1",
                           "224.0.0.1",
                           "255.255.255.255",
                           "::",
                           "::1",
                           "fc00::1",
                           "fe80::1",
                           "fd00:ec2::254",
                           "ff02::1",
                           "::ffff:127.0.0.1",
                           "::ffff:169.254.169.254",
                           "64:ff9b::7f00:1",
                           "2002:7f00:1::",
                           "2001:0:1::",
                           "2001:db8::1"}) {
    EXPECT_FALSE(IsPublicText(text)) << text;
  }
}

TEST(AddressPolicy, TakesUrlsApart) {
  EXPECT_EQ(*OriginOf("https://Example.com/v2/"), (Origin{"https", "example.com", 443}));
  EXPECT_EQ(*OriginOf("http://[::1]:5000/x"), (Origin{"http", "::1", 5000}));
  for (const char* url : {"ftp://x/", "file:///etc/passwd", "https://user:pass@x/", "x", "", "https://"}) {
    EXPECT_FALSE(OriginOf(url)) << url;
  }
  EXPECT_EQ(*Resolve("https://a/v2/x?y", "/z"), "https://a/z");
  EXPECT_EQ(*Resolve("https://a/v2/x", "https://b/z"), "https://b/z");
}

TEST(AddressPolicy, HttpIsForTrustedRegistries) {
  const AddressPolicy policy({"Registry.lan", "other.lan:5000"});
  EXPECT_TRUE(policy.Check({"https", "anybody", 443}));
  EXPECT_TRUE(policy.Check({"http", "registry.lan", 80}));
  EXPECT_TRUE(policy.Check({"http", "registry.lan", 5000}));
  EXPECT_TRUE(policy.Check({"http", "other.lan", 5000}));
  EXPECT_EQ(policy.Check({"http", "other.lan", 80}).error().code, api::ErrorCode::kForbidden);
  EXPECT_EQ(policy.Check({"http", "anybody", 80}).error().code, api::ErrorCode::kForbidden);
}

}  // namespace
}  // namespace quire::server::registry
