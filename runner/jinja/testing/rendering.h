// Shared by the tests of the template language: one set of variables, and tables of template and outcome.
#pragma once

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <string_view>

#include "runner/jinja/template.h"

namespace quire::runner::jinja {

struct Rendering {
  std::string_view source;
  std::string_view expected;  // the text; of a failing source the whole message after "line N: "
};

// xs, s, d, n, u, ms, f, i, t, nest, ws, lines, names: see test_support.cc. Strings are of Trust::kRequest.
Value TestVariables();
// 2026-01-15T12:34:56, a Thursday.
RenderOptions TestOptions();

// The text, or "error: " and the message.
std::string RenderOrError(std::string_view source);

void CheckTemplates(std::span<const Rendering> table);
void CheckExpressions(std::span<const Rendering> table);       // sources stand between {{ and }}
void CheckFailingTemplates(std::span<const Rendering> table);  // at parsing or at rendering
void CheckFailingExpressions(std::span<const Rendering> table);

}  // namespace quire::runner::jinja
