// Truth, equality and order of values, as Python has them.
#pragma once

#include <compare>

#include "runner/jinja/runtime.h"
#include "runner/jinja/value.h"

namespace quire::runner::jinja {

bool Truthy(const Value& value);

// REQUIRES: both are numbers. Exact, also between an integer and a float; unordered with NaN.
std::partial_ordering CompareNumbers(const Value& a, const Value& b);

bool Equal(Runtime& runtime, const Value& a, const Value& b);
// a < b; raises for kinds that have no order between them.
bool Less(Runtime& runtime, const Value& a, const Value& b);
// The order of a < b, a > b; `sign` is how the operator is written, for the message.
std::partial_ordering Order(Runtime& runtime, const Value& a, const Value& b, const char* sign);
bool Contains(Runtime& runtime, const Value& container, const Value& item);
bool Identical(const Value& a, const Value& b);  // `is sameas`

// Fails with the message of an undefined value; does nothing for others.
void RequireDefined(const Value& value);

}  // namespace quire::runner::jinja
