// Loops and macros.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runner/jinja/compare.h"
#include "runner/jinja/interpreter.h"
#include "runner/jinja/interpreter_objects.h"
#include "runner/jinja/sequence.h"

namespace quire::runner::jinja {
namespace {

class LoopMethod final : public Object {
 public:
  LoopMethod(std::shared_ptr<Loop> loop, bool cycles)
      : Object(Type::kMethod, loop->depth() + 1), loop_(std::move(loop)), cycles_(cycles) {}
  bool callable() const override { return true; }
  Value Call(Runtime& runtime, const CallArguments& arguments) override {
    return cycles_ ? loop_->Cycle(arguments) : loop_->Changed(runtime, arguments);
  }

 private:
  std::shared_ptr<Loop> loop_;
  bool cycles_;
};

// Ends a loop however it is left.
class LoopEnd {
 public:
  explicit LoopEnd(Loop& loop) : loop_(loop) {}
  ~LoopEnd() { loop_.End(); }
  LoopEnd(const LoopEnd&) = delete;
  LoopEnd& operator=(const LoopEnd&) = delete;

 private:
  Loop& loop_;
};

}  // namespace

std::optional<Value> Loop::Position(std::string_view name) const {
  const auto index = static_cast<int64_t>(index_);
  const auto length = static_cast<int64_t>(items_->items.size());
  if (name == "index") return Value(index + 1);
  if (name == "index0") return Value(index);
  if (name == "revindex") return Value(length - index);
  if (name == "revindex0") return Value(length - index - 1);
  if (name == "first") return Value(index == 0);
  if (name == "last") return Value(index + 1 >= length);
  if (name == "length") return Value(length);
  if (name == "depth") return Value(int64_t{depth0_} + 1);
  if (name == "depth0") return Value(int64_t{depth0_});
  return std::nullopt;
}

std::optional<Value> Loop::Attribute(Runtime& runtime, std::string_view name) {
  if (auto position = Position(name)) return position;
  if (name == "previtem") {
    if (index_ > 0 && index_ <= items_->items.size()) return items_->items[index_ - 1];
    return Value(Undefined{MakeText("there is no previous item"), Undefined::Why::kHint});
  }
  if (name == "nextitem") {
    if (index_ + 1 < items_->items.size()) return items_->items[index_ + 1];
    return Value(Undefined{MakeText("there is no next item"), Undefined::Why::kHint});
  }
  if (name == "cycle" || name == "changed") {
    return runtime.MakeObject<LoopMethod>(shared_from_this(), name == "cycle");
  }
  return std::nullopt;
}

Value Loop::Call(Runtime&, const CallArguments& arguments) {
  const BoundArguments bound("loop", arguments, {"iterable"}, 1);
  if (!stmt_.recursive) Raise("The loop must have the 'recursive' marker to be called recursively.");
  if (over_) Raise("the loop is over and cannot be called");
  return interpreter_.CallLoop(stmt_, *bound[0], depth0_ + 1, outer_);
}

Value Loop::Cycle(const CallArguments& arguments) const {
  if (arguments.positional.empty()) Raise("no items for cycling given");
  return arguments.positional[index_ % arguments.positional.size()];
}

Value Loop::Changed(Runtime& runtime, const CallArguments& arguments) {
  const std::vector<Value>& now = arguments.positional;
  const bool same = last_changed_ && last_changed_->size() == now.size() &&
                    std::equal(now.begin(), now.end(), last_changed_->begin(),
                               [&runtime](const Value& a, const Value& b) { return Equal(runtime, a, b); });
  if (!same) {
    // Kept by an object whose depth is fixed: deep values could otherwise chain through it.
    for (const Value& value : now) runtime.CheckDepth(value.depth() + 1);
    last_changed_ = now;
  }
  return Value(!same);
}

std::optional<Value> Macro::Attribute(Runtime& runtime, std::string_view name) {
  if (name == "name") return Value(macro_.name);
  if (name == "arguments") {
    std::vector<Value> names;
    names.reserve(macro_.parameters.size());
    for (const auto& [symbol, parameter] : macro_.parameters) names.emplace_back(parameter);
    return runtime.MakeList(std::move(names), Type::kTuple);
  }
  if (name == "catch_kwargs") return Value(macro_.reads_kwargs);
  if (name == "catch_varargs") return Value(macro_.reads_varargs);
  if (name == "caller") return Value(macro_.reads_caller);
  return std::nullopt;
}

std::shared_ptr<const List> Interpreter::Filtered(const ForStmt& stmt, std::shared_ptr<const List> items,
                                                  Scope* outer) {
  if (stmt.condition == nullptr) return items;
  std::vector<Value> kept;
  ScopeFrame scope(*this, outer);
  for (const Value& item : items->items) {
    scope.Renew();
    AssignTarget(stmt.target, item);
    if (Truthy(Evaluate(*stmt.condition))) kept.push_back(item);
  }
  return runtime_.MakeList(std::move(kept)).list_ref();
}

Interpreter::Flow Interpreter::ExecuteFor(const ForStmt& stmt) {
  return RunLoop(stmt, Evaluate(*stmt.iterable), 0, scope_);
}

Interpreter::Flow Interpreter::RunLoop(const ForStmt& stmt, const Value& iterable, int depth0, Scope* outer) {
  const std::shared_ptr<const List> items = Filtered(stmt, Iterate(runtime_, iterable), outer);
  if (items->items.empty()) {
    const ScopeFrame scope(*this, outer);
    return Execute(stmt.otherwise);
  }
  const Value loop_value = runtime_.MakeObject<Loop>(*this, stmt, items, depth0, outer);
  Loop& loop = static_cast<Loop&>(loop_value.as_object());
  const LoopEnd end(loop);
  ScopeFrame scope(*this, outer);
  for (size_t i = 0; i < items->items.size(); ++i) {
    runtime_.budget().Step();
    scope.Renew();
    loop.Advance(i);
    Assign(program_.loop, loop_value);
    AssignTarget(stmt.target, items->items[i]);
    if (Execute(stmt.body) == Flow::kBreak) break;
  }
  return Flow::kNormal;
}

Value Interpreter::CallLoop(const ForStmt& loop, const Value& iterable, int depth0, Scope* outer) {
  OutputFrame output(*this);
  RunLoop(loop, iterable, depth0, outer);
  return output.Take();
}

Value Interpreter::CallMacro(const MacroDef& macro, Scope* closure, const CallArguments& arguments) {
  const DepthGuard guard(runtime_.budget());
  const ScopeFrame scope(*this, closure);
  BindMacroArguments(macro, arguments);
  OutputFrame output(*this);
  Execute(macro.body);
  return output.Take();
}

void Interpreter::BindMacroArguments(const MacroDef& macro, const CallArguments& arguments) {
  const size_t given = std::min(arguments.positional.size(), macro.parameters.size());
  const size_t first_default = macro.parameters.size() - macro.defaults.size();
  std::vector<std::pair<TextRef, Value>> surplus = arguments.named;
  // Assigns the named argument, if it was given.
  const auto take = [&](std::string_view name, SymbolId symbol) {
    const auto found = std::find_if(surplus.begin(), surplus.end(), [name](const auto& candidate) {
      return candidate.first->bytes() == name;
    });
    if (found == surplus.end()) return false;
    Assign(symbol, std::move(found->second));
    surplus.erase(found);
    return true;
  };
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const auto& [symbol, name] = macro.parameters[i];
    if (i < given) {
      Assign(symbol, arguments.positional[i]);
    } else if (!take(name->bytes(), symbol)) {
      Assign(symbol, i >= first_default ? Evaluate(*macro.defaults[i - first_default])
                                        : Value(Undefined{name, Undefined::Why::kParameter}));
    }
  }
  if (macro.reads_caller) {
    const bool given_caller = take("caller", program_.caller);
    if (!given_caller) {
      Assign(program_.caller, Value(Undefined{MakeText("No caller defined"), Undefined::Why::kHint}));
    }
  }
  if (macro.reads_kwargs) {
    std::vector<Value::Entry> entries;
    entries.reserve(surplus.size());
    for (auto& [name, value] : surplus) entries.emplace_back(Value(name), std::move(value));
    Assign(program_.kwargs, runtime_.MakeDict(std::move(entries)));
  } else if (!surplus.empty()) {
    Raise(fmt::format("macro '{}' takes no keyword argument '{}'", macro.name->bytes(),
                      surplus[0].first->bytes()));
  }
  if (macro.reads_varargs) {
    Assign(program_.varargs,
           runtime_.MakeList({arguments.positional.begin() + static_cast<std::ptrdiff_t>(given),
                              arguments.positional.end()},
                             Type::kTuple));
  } else if (arguments.positional.size() > given) {
    Raise(fmt::format("macro '{}' takes not more than {} argument(s)", macro.name->bytes(), given));
  }
}

}  // namespace quire::runner::jinja
