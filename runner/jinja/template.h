// A chat template: Jinja as Hugging Face's chat-template environment speaks it. README.md says what is
// covered.
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "runner/jinja/limits.h"
#include "runner/jinja/text.h"
#include "runner/jinja/value.h"

namespace quire::runner::jinja {

struct Program;

struct RenderOptions {
  std::tm now = {};  // local time, for strftime_now(); the zero value is no valid date, but harmless
};

// Text and which bytes of it came from values of Trust::kRequest.
struct TrackedText {
  std::string text;
  std::vector<ByteRange> untrusted;  // sorted, apart, on code point borders
};

// Immutable: any number of threads may render at once.
class Template {
 public:
  // kBadModel names the line and what is wrong there. `limits` also bound every rendering.
  static api::Result<Template> Parse(std::string_view source, const Limits& limits = {});

  // `variables` is a dict; names are looked up in it before the built-in functions. All failures are
  // kInvalidArgument, as they depend on the request: the template's own message when it calls
  // raise_exception(), else "template line N: ...".
  api::Result<std::string> Render(const Value& variables, const RenderOptions& options = {}) const;
  api::Result<TrackedText> RenderTracked(const Value& variables, const RenderOptions& options = {}) const;

 private:
  explicit Template(std::shared_ptr<const Program> program) : program_(std::move(program)) {}

  std::shared_ptr<const Program> program_;
};

}  // namespace quire::runner::jinja
