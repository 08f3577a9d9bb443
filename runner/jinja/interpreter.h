// Walks a Program and writes its text. One per rendering, used by its thread only; must go before its
// Runtime.
//
// Scopes: the template's top level is one table by symbol. Each loop iteration, macro call and captured block
// has its own Scope above it. A scope that a macro was defined in stays until the rendering ends,
// because the macro may outlive it; all others go when left.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "runner/jinja/ast.h"
#include "runner/jinja/runtime.h"
#include "runner/jinja/text.h"
#include "runner/jinja/value.h"

namespace quire::runner::jinja {

struct Scope {
  Scope* parent = nullptr;  // null: only the top level is outside
  std::vector<std::pair<SymbolId, Value>> variables = {};
  bool captured = false;  // a macro sees it
};

class Interpreter {
 public:
  // `variables` is a dict; names it lacks are looked for among the global functions.
  Interpreter(const Program& program, Runtime& runtime, const Value& variables);
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  void Run(TextBuilder& out);
  int line() const { return line_; }  // of what was last under way

  // For the objects that call back: macros.
  Value CallMacro(const MacroDef& macro, Scope* closure, const CallArguments& arguments);
  // And recursive loops: the text of the loop over these items.
  Value CallLoop(const ForStmt& stmt, Scope* closure, const Value& iterable, int64_t depth);

 private:
  enum class Flow : uint8_t { kNormal, kBreak, kContinue };
  class ScopeFrame;
  class OutputFrame;

  // Statements (interpreter.cc).
  Flow Execute(const Block& block);
  Flow ExecuteOne(const Stmt& stmt);
  Flow ExecuteIf(const IfStmt& stmt);
  void ExecuteSetBlock(const SetBlockStmt& stmt);
  void ExecuteMacro(const MacroStmt& stmt);
  void ExecuteFilterBlock(const FilterBlockStmt& stmt);
  Flow ExecuteScope(const ScopeStmt& stmt);
  void ExecuteCallBlock(const CallBlockStmt& stmt);
  Value Capture(const Block& block);  // the block's text, in a scope of its own

  // Names (interpreter.cc).
  Value Lookup(SymbolId symbol) const;
  void Assign(SymbolId symbol, Value value);
  void AssignTarget(const Target& target, const Value& value);
  void CountSearch(const Scope& scope) const;
  Scope* CaptureScope();

  // Loops and macros (interpreter_calls.cc).
  Flow ExecuteFor(const ForStmt& stmt);
  Flow RunLoop(const ForStmt& stmt, Scope* closure, const Value& iterable, int64_t depth);
  std::shared_ptr<const List> Filtered(const ForStmt& stmt, std::shared_ptr<const List> items);
  void BindMacroArguments(const MacroDef& macro, const CallArguments& arguments);

  // Expressions (evaluate.cc).
  Value Evaluate(const Expr& expr);
  Value EvaluateAttribute(const AttributeExpr& expr);
  Value EvaluateElement(const ElementExpr& expr);
  Value EvaluateSlice(const SliceExpr& expr);
  Value EvaluateCall(const CallExpr& expr, const Value* caller = nullptr);
  bool ExtendsList(const CallExpr& expr);
  void Rebind(const Expr& place, Value value);
  Value EvaluateFilter(const FilterExpr& expr, const Value* block_text);
  Value EvaluateTest(const TestExpr& expr);
  Value EvaluateUnary(const UnaryExpr& expr);
  Value EvaluateBinary(const BinaryExpr& expr);
  Value EvaluateLogic(const LogicExpr& expr);
  Value EvaluateConcat(const ConcatExpr& expr);
  Value EvaluateCompare(const CompareExpr& expr);
  Value EvaluateCondition(const ConditionExpr& expr);
  Value EvaluateSequence(const SequenceExpr& expr);
  Value EvaluateDict(const DictExpr& expr);
  CallArguments EvaluateArguments(const ArgumentExprs& exprs);
  void SpreadNamed(const Value& mapping, CallArguments& arguments);
  bool Compare(CompareOp op, const Value& left, const Value& right);

  const Program& program_;
  Runtime& runtime_;
  std::vector<Value> globals_;      // by symbol
  std::vector<bool> global_known_;  // by symbol
  std::vector<std::unique_ptr<Scope>> retired_;
  Scope* scope_ = nullptr;  // innermost; null at the top level
  TextBuilder* out_ = nullptr;
  int line_ = 1;
};

// A scope of its own while it lives.
class Interpreter::ScopeFrame {
 public:
  ScopeFrame(Interpreter& interpreter, Scope* parent)
      : interpreter_(interpreter),
        previous_(interpreter.scope_),
        scope_(std::make_unique<Scope>(Scope{parent})) {
    interpreter_.scope_ = scope_.get();
  }
  ~ScopeFrame() {
    interpreter_.scope_ = previous_;
    Retire();
  }
  ScopeFrame(const ScopeFrame&) = delete;
  ScopeFrame& operator=(const ScopeFrame&) = delete;

  void Renew() {  // empties it for the next iteration
    Scope* const parent = scope_->parent;
    if (Retire()) scope_ = std::make_unique<Scope>(Scope{parent});
    scope_->variables.clear();
    interpreter_.scope_ = scope_.get();
  }

 private:
  bool Retire() {
    if (!scope_->captured) return false;
    interpreter_.retired_.push_back(std::move(scope_));
    return true;
  }

  Interpreter& interpreter_;
  Scope* previous_;
  std::unique_ptr<Scope> scope_;
};

// Output goes to a text of its own while it lives.
class Interpreter::OutputFrame {
 public:
  explicit OutputFrame(Interpreter& interpreter)
      : interpreter_(interpreter), previous_(interpreter.out_), text_(interpreter.runtime_.budget()) {
    interpreter_.out_ = &text_;
  }
  ~OutputFrame() { interpreter_.out_ = previous_; }
  OutputFrame(const OutputFrame&) = delete;
  OutputFrame& operator=(const OutputFrame&) = delete;

  Value Take() { return Value(std::move(text_).Finish()); }

 private:
  Interpreter& interpreter_;
  TextBuilder* previous_;
  TextBuilder text_;
};

}  // namespace quire::runner::jinja
