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

constexpr size_t kNamesPerStep = 16;  // of arguments that are searched

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
  if (name == "depth") return Value(recursion_.depth + 1);
  if (name == "depth0") return Value(recursion_.depth);
  return std::nullopt;
}

Value Loop::Call(Runtime&, const CallArguments& arguments) {
  const BoundArguments bound("loop", arguments, {"iterable"}, 1);
  return recursion_.interpreter.CallLoop(*recursion_.stmt, recursion_.closure, *bound[0],
                                         recursion_.depth + 1);
}

std::optional<Value> Loop::Attribute(Runtime& runtime, std::string_view name) {
  if (name == "cycle") return runtime.MakeObject<LoopCycle>(index_);
  if (auto position = Position(name)) return position;
  if (name == "previtem") {
    if (index_ > 0 && index_ <= items_->items.size()) return items_->items[index_ - 1];
    return Value(Undefined{MakeText("there is no previous item"), Undefined::Why::kHint});
  }
  if (name == "nextitem") {
    if (index_ + 1 < items_->items.size()) return items_->items[index_ + 1];
    return Value(Undefined{MakeText("there is no next item"), Undefined::Why::kHint});
  }
  return std::nullopt;
}

std::shared_ptr<const List> Interpreter::Filtered(const ForStmt& stmt, std::shared_ptr<const List> items) {
  if (stmt.condition == nullptr) return items;
  std::vector<Value> kept;
  ScopeFrame scope(*this, scope_);
  for (const Value& item : items->items) {
    scope.Renew();
    AssignTarget(stmt.target, item);
    if (Truthy(Evaluate(*stmt.condition))) kept.push_back(item);
  }
  return runtime_.MakeList(std::move(kept)).list_ref();
}

Interpreter::Flow Interpreter::ExecuteFor(const ForStmt& stmt) {
  const Value iterable = Evaluate(*stmt.iterable);
  return RunLoop(stmt, stmt.recursive ? CaptureScope() : nullptr, iterable, 0);
}

Value Interpreter::CallLoop(const ForStmt& stmt, Scope* closure, const Value& iterable, int64_t depth) {
  const DepthGuard guard(runtime_.budget());
  const ScopeFrame scope(*this, closure);
  OutputFrame output(*this);
  RunLoop(stmt, closure, iterable, depth);
  return output.Take();
}

Interpreter::Flow Interpreter::RunLoop(const ForStmt& stmt, Scope* closure, const Value& iterable,
                                       int64_t depth) {
  const std::shared_ptr<const List> items = Filtered(stmt, Iterate(runtime_, iterable));
  ScopeFrame scope(*this, scope_);
  if (items->items.empty()) return Execute(stmt.otherwise);
  const Value loop_value = runtime_.MakeObject<Loop>(
      items, Loop::Recursion{*this, stmt.recursive ? &stmt : nullptr, closure, depth});
  Loop& loop = static_cast<Loop&>(loop_value.as_object());
  const LoopEnd end(loop);
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
    runtime_.budget().Step(surplus.size() / kNamesPerStep);
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
  if (macro.reads_caller) take("caller", program_.caller);
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
