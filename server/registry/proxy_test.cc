#include "server/registry/proxy.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace quire::server::registry {
namespace {

using Variables = std::map<std::string, std::string>;

std::string Proxy(const std::string& url, const Variables& variables) {
  return ProxyFor(*OriginOf(url),
                  [&variables](const char* name) {
                    const auto found = variables.find(name);
                    return found == variables.end() ? nullptr : found->second.c_str();
                  })
      .value_or("");
}

TEST(Proxy, IsThatOfTheScheme) {
  const Variables both = {{"HTTPS_PROXY", "http://s:1"}, {"HTTP_PROXY", "http://h:1"}};
  EXPECT_EQ(Proxy("https://hub.example/x", both), "http://s:1");
  EXPECT_EQ(Proxy("http://hub.example/x", both), "http://h:1");
  EXPECT_EQ(Proxy("https://hub.example/x", {{"HTTPS_PROXY", "http://s:1"}, {"https_proxy", "http://t:1"}}),
            "http://t:1");
  EXPECT_EQ(Proxy("https://hub.example/x", {{"ALL_PROXY", "socks5h://a:1"}}), "socks5h://a:1");
  EXPECT_EQ(Proxy("https://hub.example/x", {{"HTTPS_PROXY", ""}}), "");
}

TEST(Proxy, IsNotForThisMachineNorForNamesThatAreExempt) {
  Variables variables = {{"ALL_PROXY", "http://a:1"}};
  for (const char* own : {"http://127.0.0.1:5000/", "https://localhost/", "http://[::1]:80/"})
    EXPECT_EQ(Proxy(own, variables), "") << own;
  variables["NO_PROXY"] = "corp.example, .other.example,10.1.2.3,port.example:8443";
  for (const char* exempt : {"https://corp.example/", "https://hub.CORP.example/", "https://x.other.example/",
                             "http://10.1.2.3/", "https://port.example:8443/"})
    EXPECT_EQ(Proxy(exempt, variables), "") << exempt;
  for (const char* not_exempt :
       {"https://notcorp.example/", "https://corp.example.org/", "https://port.example/"})
    EXPECT_EQ(Proxy(not_exempt, variables), "http://a:1") << not_exempt;
  variables["NO_PROXY"] = "*";
  EXPECT_EQ(Proxy("https://hub.example/", variables), "");
}

TEST(Proxy, IsNotAskedForPrivateAddresses) {
  for (const char* host :
       {"10.0.0.1", "127.0.0.1", "169.254.169.254", "::1", "localhost", "0.0.0.0", "2130706433"})
    EXPECT_FALSE(MayBeReachedByProxy(host)) << host;
  EXPECT_TRUE(MayBeReachedByProxy("8.8.8.8"));
  EXPECT_TRUE(MayBeReachedByProxy("unknown.invalid"));
}

}  // namespace
}  // namespace quire::server::registry
