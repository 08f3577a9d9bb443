// libFuzzer: any bytes as a WWW-Authenticate header. What is read of it reads the same when it is written out
// again; the realm is looked at as a URL, and as a redirect.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "server/registry/address_policy.h"
#include "server/registry/challenge.h"

namespace {

using namespace quire::server::registry;

void Require(bool condition) {
  if (!condition) std::abort();
}

std::string Write(const Challenge& challenge) {
  std::string text = challenge.scheme;
  for (const auto& [name, value] : challenge.parameters) {
    text += " " + name + "=\"";
    for (const char c : value) {
      if (c == '"' || c == '\\') text += '\\';
      text += c;
    }
    text += "\",";
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Challenge challenge = ParseChallenge({reinterpret_cast<const char*>(data), size});
  Require(ParseChallenge(Write(challenge)) == challenge);
  const std::string realm = challenge.Parameter("realm");
  if (const auto origin = OriginOf(realm)) {
    Require(origin->scheme == "http" || origin->scheme == "https");
    Require(!origin->host.empty());
    static_cast<void>(AddressPolicy({"registry.example:5000"}).Check(*origin));
  }
  const auto resolved = Resolve("https://registry.example/v2/a/b/", challenge.Parameter("location"));
  if (resolved) Require(OriginOf(*resolved).has_value() || !resolved->empty());
  return 0;
}
