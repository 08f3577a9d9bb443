#include "runner/jinja/interpreter.h"

#include <fmt/format.h>

#include "runner/jinja/compare.h"
#include "runner/jinja/interpreter_objects.h"
#include "runner/jinja/sequence.h"
#include "runner/jinja/show.h"

namespace quire::runner::jinja {
namespace {

constexpr size_t kVariablesPerStep = 16;  // of a scope that is searched

}  // namespace

Interpreter::Interpreter(const Program& program, Runtime& runtime, const Value& variables)
    : program_(program), runtime_(runtime) {
  globals_.resize(program.symbols.size());
  global_known_.resize(program.symbols.size());
  for (size_t symbol = 0; symbol < program.symbols.size(); ++symbol) {
    CountWork(1);
    const std::string& name = program.symbols[symbol]->bytes();
    if (const Value* given = variables.is_dict() ? variables.as_dict().Find(name) : nullptr;
        given != nullptr) {
      globals_[symbol] = *given;
    } else if (auto global = FindGlobal(runtime, name)) {
      globals_[symbol] = *std::move(global);
    } else {
      continue;
    }
    global_known_[symbol] = true;
  }
}

void Interpreter::Run(TextBuilder& out) {
  out_ = &out;
  Execute(program_.body);
}

void Interpreter::CountSearch(const Scope& scope) const {
  runtime_.budget().Step(scope.variables.size() / kVariablesPerStep);
}

Value Interpreter::Lookup(SymbolId symbol) const {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    CountSearch(*scope);
    for (const auto& [name, value] : scope->variables) {
      if (name == symbol) return value;
    }
  }
  if (global_known_[symbol]) return globals_[symbol];
  return Value(Undefined{program_.symbols[symbol], Undefined::Why::kName});
}

void Interpreter::Assign(SymbolId symbol, Value value) {
  if (scope_ == nullptr) {
    globals_[symbol] = std::move(value);
    global_known_[symbol] = true;
    return;
  }
  CountSearch(*scope_);
  for (auto& [name, held] : scope_->variables) {
    if (name != symbol) continue;
    held = std::move(value);
    return;
  }
  scope_->variables.emplace_back(symbol, std::move(value));
}

void Interpreter::AssignTarget(const Target& target, const Value& value) {
  if (target.unpacks) {
    const auto items = Iterate(runtime_, value);
    if (items->items.size() != target.parts.size()) {
      Raise(fmt::format("{} values to unpack (expected {}, got {})",
                        items->items.size() < target.parts.size() ? "not enough" : "too many",
                        target.parts.size(), items->items.size()));
    }
    for (size_t i = 0; i < target.parts.size(); ++i) AssignTarget(target.parts[i], items->items[i]);
    return;
  }
  if (target.attribute == nullptr) return Assign(target.symbol, value);
  const Value holder = Lookup(target.symbol);
  RequireDefined(holder);
  if (holder.type() != Type::kNamespace) Raise("cannot assign attribute on non-namespace object");
  static_cast<Namespace&>(holder.as_object()).Set(runtime_, target.attribute, value);
}

Scope* Interpreter::CaptureScope() {
  for (Scope* scope = scope_; scope != nullptr && !scope->captured; scope = scope->parent) {
    scope->captured = true;
    runtime_.budget().Reserve(sizeof(Scope) + 64);  // until the end
  }
  return scope_;
}

Interpreter::Flow Interpreter::Execute(const Block& block) {
  for (const auto& stmt : block) {
    if (const Flow flow = ExecuteOne(*stmt); flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::ExecuteOne(const Stmt& stmt) {
  const DepthGuard guard(runtime_.budget());
  runtime_.budget().Step();
  line_ = stmt.line;
  switch (stmt.kind) {
    case StmtKind::kData:
      out_->Append(static_cast<const DataStmt&>(stmt).data);
      break;
    case StmtKind::kPrint:
      AppendStr(*out_, Evaluate(*static_cast<const PrintStmt&>(stmt).value));
      break;
    case StmtKind::kIf:
      return ExecuteIf(static_cast<const IfStmt&>(stmt));
    case StmtKind::kFor:
      return ExecuteFor(static_cast<const ForStmt&>(stmt));
    case StmtKind::kSet: {
      const auto& set = static_cast<const SetStmt&>(stmt);
      AssignTarget(set.target, Evaluate(*set.value));
      break;
    }
    case StmtKind::kSetBlock:
      ExecuteSetBlock(static_cast<const SetBlockStmt&>(stmt));
      break;
    case StmtKind::kMacro:
      ExecuteMacro(static_cast<const MacroStmt&>(stmt));
      break;
    case StmtKind::kFilterBlock:
      ExecuteFilterBlock(static_cast<const FilterBlockStmt&>(stmt));
      break;
    case StmtKind::kScope:
      return ExecuteScope(static_cast<const ScopeStmt&>(stmt));
    case StmtKind::kCallBlock:
      ExecuteCallBlock(static_cast<const CallBlockStmt&>(stmt));
      break;
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::ExecuteIf(const IfStmt& stmt) {
  for (const auto& [condition, body] : stmt.branches) {
    if (Truthy(Evaluate(*condition))) return Execute(body);
  }
  return Execute(stmt.otherwise);
}

Value Interpreter::Capture(const Block& block) {
  const ScopeFrame scope(*this, scope_);
  OutputFrame output(*this);
  Execute(block);
  return output.Take();
}

void Interpreter::ExecuteSetBlock(const SetBlockStmt& stmt) {
  Value text = Capture(stmt.body);
  if (stmt.filters != nullptr) text = EvaluateFilter(static_cast<const FilterExpr&>(*stmt.filters), &text);
  AssignTarget(stmt.target, text);
}

void Interpreter::ExecuteMacro(const MacroStmt& stmt) {
  Assign(stmt.symbol, runtime_.MakeObject<Macro>(*this, stmt.macro, CaptureScope()));
}

void Interpreter::ExecuteFilterBlock(const FilterBlockStmt& stmt) {
  const Value text = Capture(stmt.body);
  AppendStr(*out_, EvaluateFilter(static_cast<const FilterExpr&>(*stmt.filters), &text));
}

Interpreter::Flow Interpreter::ExecuteScope(const ScopeStmt& stmt) {
  std::vector<Value> values;
  values.reserve(stmt.names.size());
  for (const auto& [target, value] : stmt.names) values.push_back(Evaluate(*value));
  const ScopeFrame scope(*this, scope_);
  for (size_t i = 0; i < values.size(); ++i) AssignTarget(stmt.names[i].first, values[i]);
  return Execute(stmt.body);
}

void Interpreter::ExecuteCallBlock(const CallBlockStmt& stmt) {
  const Value caller = runtime_.MakeObject<Macro>(*this, stmt.caller, CaptureScope());
  AppendStr(*out_, EvaluateCall(static_cast<const CallExpr&>(*stmt.call), &caller));
}

// The list that a name or an attribute of a namespace holds becomes another one.
void Interpreter::Rebind(const Expr& place, Value value) {
  if (place.kind == ExprKind::kAttribute) {
    const auto& attribute = static_cast<const AttributeExpr&>(place);
    const Value holder = Evaluate(*attribute.object);
    if (holder.type() != Type::kNamespace) Raise("only lists in variables and namespaces can be extended");
    static_cast<Namespace&>(holder.as_object()).Set(runtime_, attribute.name, std::move(value));
    return;
  }
  if (place.kind != ExprKind::kName) Raise("only lists in variables and namespaces can be extended");
  const SymbolId symbol = static_cast<const NameExpr&>(place).symbol;
  for (Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    CountSearch(*scope);
    for (auto& [name, held] : scope->variables) {
      if (name != symbol) continue;
      held = std::move(value);
      return;
    }
  }
  globals_[symbol] = std::move(value);
}

// list.append(item) and list.extend(items). Lists do not change: the variable gets a longer one, and whatever
// else holds the old list keeps it.
bool Interpreter::ExtendsList(const CallExpr& expr) {
  if (expr.callee->kind != ExprKind::kAttribute) return false;
  const auto& attribute = static_cast<const AttributeExpr&>(*expr.callee);
  const bool append = attribute.name->bytes() == "append";
  if (!append && attribute.name->bytes() != "extend") return false;
  const Value list = Evaluate(*attribute.object);
  if (list.type() != Type::kList) return false;
  const CallArguments arguments = EvaluateArguments(expr.arguments);
  const BoundArguments bound(append ? "append" : "extend", arguments, {"object"}, 1);
  const Charge charge(runtime_.budget(), (list.as_list().items.size() + 1) * sizeof(Value));
  std::vector<Value> items = list.as_list().items;
  runtime_.budget().Step(items.size());
  if (append) {
    items.push_back(*bound[0]);
  } else {
    const auto more = Iterate(runtime_, *bound[0]);
    items.insert(items.end(), more->items.begin(), more->items.end());
  }
  Rebind(*attribute.object, runtime_.MakeList(std::move(items)));
  return true;
}

}  // namespace quire::runner::jinja
