// libFuzzer: a regular expression, a zero byte, and choices. A text that the whole pattern lets the choices
// write contains a match of it.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "api/base/utf8.h"
#include "runner/constraint/code_points.h"
#include "runner/constraint/output_format.h"
#include "runner/constraint/regex.h"
#include "runner/constraint/testing/fuzz_walk.h"
#include "runner/work/work_budget.h"

namespace {

using namespace quire::runner::constraint;
using fuzzing::Require;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto [pattern, choices] = fuzzing::SplitAt({reinterpret_cast<const char*>(data), size}, '\0');
  try {
    const quire::runner::WorkLimit limit(fuzzing::kUnitsMax);
    const auto whole = Regex(pattern, Anchoring::kWhole, Utf8);
    const auto search = Regex(pattern, Anchoring::kSearch, Utf8);
    const auto in_json = Regex(pattern, Anchoring::kSearch, JsonCharacter);
    if (in_json) static_cast<void>(BuildDfa(**in_json));
    if (!whole) return 0;
    const GrammarBuilder builder;
    const auto grammar = CompileGrammar(*whole, builder);
    if (!grammar) return 0;
    const auto text = fuzzing::Walk(**grammar, fuzzing::Choices(choices));
    if (!text) return 0;
    Require(quire::api::IsValidUtf8(*text));
    Require(fuzzing::Matches(**grammar, *text).value_or(true));
    if (!search) return 0;  // it is larger
    if (const auto found = BuildDfa(**search)) Require(Matches(*found, *text));
  } catch (const quire::runner::WorkStopped&) {
  }
  return 0;
}
