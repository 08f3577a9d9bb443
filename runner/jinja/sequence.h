// Going through values: iteration, subscripts, slices, attributes.
#pragma once

#include <memory>
#include <optional>

#include "runner/jinja/builtins.h"
#include "runner/jinja/runtime.h"
#include "runner/jinja/value.h"

namespace quire::runner::jinja {

// The items of anything iterable: a list's own, a dict's keys, a string's code points, nothing of undefined.
// A generator is used up by it. Raises for the rest. The result may be the value's own list.
std::shared_ptr<const List> Iterate(Runtime& runtime, const Value& value);
// len(); nothing for what has none.
std::optional<int64_t> Length(Runtime& runtime, const Value& value);

// object.name: methods first, then keys, else undefined. Raises on undefined.
Value GetAttribute(Runtime& runtime, const Value& object, const TextRef& name, const Methods& methods);
// object[key]: elements first, then attributes, else undefined. Raises on undefined.
Value GetElement(Runtime& runtime, const Value& object, const Value& key);
// object[start:stop:step]; None leaves a bound out.
Value GetSlice(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
               const Value& step);
// The method of the object's kind, or null.
Method MethodOf(const Value& object, const Methods& methods);

// "a.b.0" as the filters' `attribute` has it: a number is an index. An integer value is one index.
Value GetPath(Runtime& runtime, const Value& object, const Value& path);

// A function of the environment, or a method with its object, as a value.
class Function final : public Object {
 public:
  using Body = Value (*)(Runtime& runtime, const CallArguments& arguments);
  explicit Function(Body body) : Object(Type::kFunction), body_(body) {}
  bool callable() const override { return true; }
  Value Call(Runtime& runtime, const CallArguments& arguments) override { return body_(runtime, arguments); }

 private:
  Body body_;
};

class BoundMethod final : public Object {
 public:
  BoundMethod(Value self, Method method)
      : Object(Type::kMethod, self.depth() + 1), self_(std::move(self)), method_(method) {}
  bool callable() const override { return true; }
  Value Call(Runtime& runtime, const CallArguments& arguments) override {
    return method_(runtime, self_, arguments);
  }

 private:
  Value self_;
  Method method_;
};

}  // namespace quire::runner::jinja
