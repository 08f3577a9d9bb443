#include "runner/gotemplate/template.h"

#include <fmt/format.h>

#include <utility>

#include "api/base/utf8.h"
#include "runner/gotemplate/ast.h"
#include "runner/gotemplate/interpreter.h"
#include "runner/gotemplate/parser.h"
#include "runner/jinja/runtime.h"

namespace quire::runner::gotemplate {

api::Result<Template> Template::Parse(std::string_view source, const jinja::Limits& limits) {
  if (source.size() > limits.source_bytes_max) {
    return api::Fail(api::ErrorCode::kBadModel,
                     fmt::format("template: longer than {} bytes", limits.source_bytes_max));
  }
  if (!api::IsValidUtf8(source)) return api::Fail(api::ErrorCode::kBadModel, "template: not valid UTF-8");
  try {
    return Template(std::make_shared<const Program>(Parser(source, limits).Parse()));
  } catch (const SyntaxError& error) {
    return api::Fail(api::ErrorCode::kBadModel,
                     fmt::format("template line {}: {}", error.line, error.message));
  }
}

bool Template::Uses(std::string_view field) const { return program_->fields.contains(field); }

api::Result<jinja::TrackedText> Template::Render(std::span<const jinja::Value> data, bool stop_at_response,
                                                 const std::tm& now) const {
  jinja::Runtime runtime(program_->limits, now);
  int line = 1;
  try {
    jinja::TrackedText result;
    jinja::TextBuilder out(runtime.budget(), program_->limits.output_bytes_max);
    Interpreter interpreter(*program_, runtime, out);
    try {
      for (size_t i = 0; i < data.size(); ++i) {
        interpreter.Run(data[i], stop_at_response && i + 1 == data.size());
      }
    } catch (...) {
      line = interpreter.line();
      throw;
    }
    std::move(out).Release(result.text, result.untrusted);
    return result;
  } catch (const jinja::RenderError& error) {
    return api::Fail(api::ErrorCode::kInvalidArgument,
                     fmt::format("template line {}: {}", line, error.message));
  }
}

}  // namespace quire::runner::gotemplate
