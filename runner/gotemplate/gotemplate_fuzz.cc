// Any bytes as a template, rendered with a small conversation under small limits.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runner/gotemplate/template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using quire::runner::jinja::Trust;
  using quire::runner::jinja::Value;
  quire::runner::jinja::Limits limits;
  limits.steps_max = 20'000;
  limits.output_bytes_max = size_t{1} << 20;
  limits.memory_bytes_max = size_t{8} << 20;
  const auto parsed =
      quire::runner::gotemplate::Template::Parse({reinterpret_cast<const char*>(data), size}, limits);
  if (!parsed) return 0;
  const Value message = Value::MakeDict(
      {{"role", Value::String("user")}, {"content", Value::String("caf\xC3\xA9", Trust::kRequest)}});
  const std::array values = {Value::MakeDict({{"System", Value::String("s")},
                                              {"Prompt", Value::String("p", Trust::kRequest)},
                                              {"Response", Value::String("")},
                                              {"Messages", Value::MakeList({message, message})}})};
  const auto rendered = parsed->Render(values, true, {});
  static_cast<void>(rendered);
  return 0;
}
