// A prompt template in the language of Go's text/template, as Ollama's models carry it.
//
// Supported: {{ if }}, {{ range }} (break, continue), {{ with }}, else and else if, {{ define }},
// {{ template }}, {{ block }}, pipelines, variables, trim markers, comments, and the functions of
// functions.h; other functions are an error on parsing. Lists and maps print as JSON; maps iterate
// in insertion order; a missing field is nil.
//
// Templates come with models, and what they render with requests: both are hostile. All work, memory, output
// and nesting is bounded by jinja::Limits, and what came from the request stays marked in the result.
#pragma once

#include <ctime>
#include <memory>
#include <span>
#include <string_view>

#include "api/base/error.h"
#include "runner/jinja/limits.h"
#include "runner/jinja/template.h"
#include "runner/jinja/value.h"

namespace quire::runner::gotemplate {

struct Program;

// Immutable: any number of threads may render at once.
class Template {
 public:
  // kBadModel names the line and what is wrong there. `limits` also bound every rendering.
  static api::Result<Template> Parse(std::string_view source, const jinja::Limits& limits = {});

  // Whether a field of this name ("Messages") is taken somewhere.
  bool Uses(std::string_view field) const;

  // The output for each of `data` (dicts), concatenated. With `stop_at_response` the last
  // ends where .Response is first used, behind it. kInvalidArgument "template line N: ...".
  api::Result<jinja::TrackedText> Render(std::span<const jinja::Value> data, bool stop_at_response,
                                         const std::tm& now) const;

 private:
  explicit Template(std::shared_ptr<const Program> program) : program_(std::move(program)) {}

  std::shared_ptr<const Program> program_;
};

}  // namespace quire::runner::gotemplate
