// Any bytes, in any split, give a request or none, and the same one however they were split.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "server/http/parser.h"

namespace {

struct Outcome {
  int status = 0;  // of a refusal, or 0
  bool done = false;
  size_t used = 0;
  std::string target, body;
  bool operator==(const Outcome&) const = default;
};

Outcome Parse(std::string_view bytes, size_t step) {
  quire::server::HttpParser parser({.header_bytes = 4096, .body_bytes = 4096});
  Outcome outcome;
  std::string buffer;
  for (size_t at = 0; at < bytes.size() && !parser.done(); at += step) {
    buffer += bytes.substr(at, step);
    while (!buffer.empty() && !parser.done()) {
      const auto used = parser.Feed(buffer);
      if (!used) {
        outcome.status = used.error().status;
        return outcome;
      }
      if (*used == 0) break;
      buffer.erase(0, *used);
      outcome.used += *used;
    }
  }
  outcome.done = parser.done();
  if (!outcome.done) outcome.used = 0;  // how far an unfinished request was taken depends on the split
  if (parser.header_done()) outcome.target = parser.request().target;
  if (outcome.done) outcome.body = parser.request().body;
  return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Outcome whole = Parse(bytes, size + 1);
  for (const size_t step : {size_t{1}, size_t{7}}) {
    const Outcome split = Parse(bytes, step);
    // Seeing more at once, a refusal may come earlier and name another first reason; a whole request stays
    // whole.
    if (whole.done != split.done || (whole.done && !(whole == split))) std::abort();
  }
  return 0;
}
