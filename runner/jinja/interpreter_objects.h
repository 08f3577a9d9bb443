// Objects that a running template can call: its macros, and `loop`.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "runner/jinja/interpreter.h"

namespace quire::runner::jinja {

class Macro final : public Object {
 public:
  // `closure` outlives the macro: it is captured. REQUIRES: no call after the interpreter is gone.
  Macro(Interpreter& interpreter, const MacroDef& macro, Scope* closure)
      : Object(Type::kMacro), interpreter_(interpreter), macro_(macro), closure_(closure) {}
  bool callable() const override { return true; }
  std::optional<Value> Attribute(Runtime& runtime, std::string_view name) override;
  Value Call(Runtime&, const CallArguments& arguments) override {
    return interpreter_.CallMacro(macro_, closure_, arguments);
  }

 private:
  Interpreter& interpreter_;
  const MacroDef& macro_;
  Scope* closure_;
};

class Loop final : public Object, public std::enable_shared_from_this<Loop> {
 public:
  Loop(Interpreter& interpreter, const ForStmt& stmt, std::shared_ptr<const List> items, int depth0,
       Scope* outer)
      : Object(Type::kLoop, items->depth + 1),
        interpreter_(interpreter),
        stmt_(stmt),
        items_(std::move(items)),
        depth0_(depth0),
        outer_(outer) {}

  void Advance(size_t index) { index_ = index; }
  void End() {  // the loop is over; what it went through is let go
    items_ = std::make_shared<const List>();
    over_ = true;
  }

  bool callable() const override { return true; }
  std::optional<Value> Attribute(Runtime& runtime, std::string_view name) override;
  // loop(items) of a recursive loop.
  Value Call(Runtime& runtime, const CallArguments& arguments) override;

  Value Cycle(const CallArguments& arguments) const;
  Value Changed(Runtime& runtime, const CallArguments& arguments);

 private:
  std::optional<Value> Position(std::string_view name) const;

  Interpreter& interpreter_;
  const ForStmt& stmt_;
  std::shared_ptr<const List> items_;
  size_t index_ = 0;
  int depth0_;
  Scope* outer_;  // valid until the loop is over
  bool over_ = false;
  std::optional<std::vector<Value>> last_changed_;
};

}  // namespace quire::runner::jinja
