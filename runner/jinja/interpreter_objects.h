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

// loop.cycle(...): the argument whose turn it is.
class LoopCycle final : public Object {
 public:
  explicit LoopCycle(size_t index) : Object(Type::kMethod), index_(index) {}
  bool callable() const override { return true; }
  Value Call(Runtime&, const CallArguments& arguments) override {
    if (arguments.positional.empty()) Raise("no items for cycling given");
    return arguments.positional[index_ % arguments.positional.size()];
  }

 private:
  const size_t index_;
};

class Loop final : public Object {
 public:
  // How a recursive loop calls itself; `stmt` is null for others. `closure` is captured.
  struct Recursion {
    Interpreter& interpreter;
    const ForStmt* stmt;
    Scope* closure;
    int64_t depth;
  };

  Loop(std::shared_ptr<const List> items, Recursion recursion)
      : Object(Type::kLoop, items->depth + 1), items_(std::move(items)), recursion_(recursion) {}

  bool callable() const override { return recursion_.stmt != nullptr; }
  Value Call(Runtime& runtime, const CallArguments& arguments) override;

  void Advance(size_t index) { index_ = index; }
  // The loop is over; what it went through is let go.
  void End() { items_ = std::make_shared<const List>(); }

  std::optional<Value> Attribute(Runtime& runtime, std::string_view name) override;

 private:
  std::optional<Value> Position(std::string_view name) const;

  std::shared_ptr<const List> items_;
  const Recursion recursion_;
  size_t index_ = 0;
};

}  // namespace quire::runner::jinja
