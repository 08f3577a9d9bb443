// Objects that a running template can call: its macros, and `loop`.
#pragma once

#include <memory>
#include <optional>

#include "runner/jinja/interpreter.h"

namespace quire::runner::jinja {

class Macro final : public Object {
 public:
  // `closure` outlives the macro: it is captured. REQUIRES: no call after the interpreter is gone.
  Macro(Interpreter& interpreter, const MacroDef& macro, Scope* closure)
      : Object(Type::kMacro), interpreter_(interpreter), macro_(macro), closure_(closure) {}
  bool callable() const override { return true; }
  Value Call(Runtime&, const CallArguments& arguments) override {
    return interpreter_.CallMacro(macro_, closure_, arguments);
  }

 private:
  Interpreter& interpreter_;
  const MacroDef& macro_;
  Scope* closure_;
};

class Loop final : public Object {
 public:
  explicit Loop(std::shared_ptr<const List> items)
      : Object(Type::kLoop, items->depth + 1), items_(std::move(items)) {}

  void Advance(size_t index) { index_ = index; }
  // The loop is over; what it went through is let go.
  void End() { items_ = std::make_shared<const List>(); }

  std::optional<Value> Attribute(Runtime& runtime, std::string_view name) override;

 private:
  std::optional<Value> Position(std::string_view name) const;

  std::shared_ptr<const List> items_;
  size_t index_ = 0;
};

}  // namespace quire::runner::jinja
