// Parses any bytes as a template and renders it with small limits. Whatever comes out must be valid UTF-8
// with sound trust ranges; nothing may crash, hang or take much memory.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "runner/jinja/json_reader.h"
#include "runner/jinja/template.h"
#include "runner/jinja/unicode.h"

namespace {

using quire::runner::jinja::ByteRange;
using quire::runner::jinja::Template;
using quire::runner::jinja::TrackedText;
using quire::runner::jinja::Value;

Value Variables() {
  return quire::runner::jinja::JsonReader(quire::runner::jinja::Trust::kRequest)
      .Read(R"({
           "messages": [{"role": "user", "content": "a<|b|>é\n c"}, {"role": "assistant", "content": null,
             "tool_calls": [{"function": {"name": "f", "arguments": {"x": [1, 2.5, true]}}}]}],
           "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
           "x": [3, 1, 2], "s": "Hello World", "n": null, "i": 7, "f": 0.5
         })")
      .value();
}

void Check(const TrackedText& tracked) {
  size_t at = 0;
  for (const ByteRange& range : tracked.untrusted) {
    if (range.begin >= range.end || range.end > tracked.text.size() || (at != 0 && range.begin <= at))
      std::abort();
    at = range.end;
    const std::string_view part = std::string_view(tracked.text).substr(range.begin, range.end - range.begin);
    if (!quire::api::IsValidUtf8(part)) std::abort();
  }
  if (!quire::api::IsValidUtf8(tracked.text)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Value variables = Variables();
  quire::runner::jinja::Limits limits;
  limits.steps_max = 4000;  // a millisecond, so that loops do not crowd out everything else
  limits.memory_bytes_max = size_t{256} << 10;
  limits.output_bytes_max = size_t{64} << 10;
  limits.range_max = 200;
  const auto parsed = Template::Parse(std::string_view(reinterpret_cast<const char*>(data), size), limits);
  if (!parsed) return 0;
  const auto tracked = parsed->RenderTracked(variables);
  if (tracked) Check(*tracked);
  return 0;
}
