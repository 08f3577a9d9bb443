#include "runner/jinja/template.h"

#include <fmt/format.h>

#include <utility>

#include "api/base/utf8.h"
#include "runner/jinja/ast.h"
#include "runner/jinja/interpreter.h"
#include "runner/jinja/parser.h"
#include "runner/jinja/runtime.h"

namespace quire::runner::jinja {

api::Result<Template> Template::Parse(std::string_view source, const Limits& limits) {
  if (source.size() > limits.source_bytes_max) {
    return api::Fail(api::ErrorCode::kBadModel,
                     fmt::format("chat template: longer than {} bytes", limits.source_bytes_max));
  }
  if (!api::IsValidUtf8(source))
    return api::Fail(api::ErrorCode::kBadModel, "chat template: not valid UTF-8");
  try {
    return Template(std::make_shared<const Program>(ParseProgram(source, limits)));
  } catch (const SyntaxError& error) {
    return api::Fail(api::ErrorCode::kBadModel,
                     fmt::format("chat template line {}: {}", error.line, error.message));
  }
}

api::Result<TrackedText> Template::RenderTracked(const Value& variables, const RenderOptions& options) const {
  Runtime runtime(program_->limits, options.now);
  int line = 1;
  try {
    TrackedText result;
    TextBuilder out(runtime.budget(), program_->limits.output_bytes_max);
    Interpreter interpreter(*program_, runtime, variables);
    try {
      interpreter.Run(out);
    } catch (...) {
      line = interpreter.line();
      throw;
    }
    std::move(out).Release(result.text, result.untrusted);
    return result;
  } catch (const RenderError& error) {
    if (error.raised_by_template) return api::Fail(api::ErrorCode::kInvalidArgument, error.message);
    return api::Fail(api::ErrorCode::kInvalidArgument,
                     fmt::format("template line {}: {}", line, error.message));
  }
}

api::Result<std::string> Template::Render(const Value& variables, const RenderOptions& options) const {
  auto tracked = RenderTracked(variables, options);
  if (!tracked) return std::unexpected(std::move(tracked).error());
  return std::move(tracked->text);
}

}  // namespace quire::runner::jinja
