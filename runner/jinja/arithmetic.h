// Operators on values, with Python's rules; integers are 64 bits wide and overflow is an error.
#pragma once

#include "runner/jinja/ast.h"
#include "runner/jinja/runtime.h"
#include "runner/jinja/value.h"

namespace quire::runner::jinja {

Value Apply(Runtime& runtime, BinaryOp op, const Value& left, const Value& right);
Value Negate(const Value& value);
Value Plus(const Value& value);

}  // namespace quire::runner::jinja
