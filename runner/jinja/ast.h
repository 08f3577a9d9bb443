// A parsed template. Immutable after parsing, shared by all renderings. Its depth is bounded by
// Limits::nesting_max.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "runner/jinja/builtins.h"
#include "runner/jinja/limits.h"
#include "runner/jinja/text.h"
#include "runner/jinja/value.h"

namespace quire::runner::jinja {

using SymbolId = uint32_t;  // index into Program::symbols

enum class ExprKind : uint8_t {
  kConst,
  kName,
  kAttribute,
  kElement,
  kSlice,
  kCall,
  kFilter,
  kTest,
  kUnary,
  kBinary,
  kLogic,
  kConcat,
  kCompare,
  kCondition,
  kSequence,
  kDict,
};

struct Expr {
  Expr(ExprKind kind_of, int at_line) : kind(kind_of), line(at_line) {}
  virtual ~Expr() = default;
  ExprKind kind;
  int line;
  int depth = 1;  // 1 + the deepest operand's
};
using ExprPtr = std::unique_ptr<Expr>;

inline int DepthOf(const ExprPtr& expr) { return expr == nullptr ? 0 : expr->depth; }

struct ConstExpr : Expr {
  explicit ConstExpr(int at_line) : Expr(ExprKind::kConst, at_line) {}
  Value value;
};
struct NameExpr : Expr {
  explicit NameExpr(int at_line) : Expr(ExprKind::kName, at_line) {}
  SymbolId symbol = 0;
};
struct AttributeExpr : Expr {
  explicit AttributeExpr(int at_line) : Expr(ExprKind::kAttribute, at_line) {}
  ExprPtr object;
  TextRef name;
  Methods methods;
};
struct ElementExpr : Expr {
  explicit ElementExpr(int at_line) : Expr(ExprKind::kElement, at_line) {}
  ExprPtr object;
  ExprPtr key;
};
struct SliceExpr : Expr {
  explicit SliceExpr(int at_line) : Expr(ExprKind::kSlice, at_line) {}
  ExprPtr object;
  ExprPtr start, stop, step;  // null when left out
};

struct ArgumentExprs {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<TextRef, ExprPtr>> named;
  ExprPtr spread_positional;  // *args, or null
  ExprPtr spread_named;       // **kwargs, or null
};
struct CallExpr : Expr {
  explicit CallExpr(int at_line) : Expr(ExprKind::kCall, at_line) {}
  ExprPtr callee;
  ArgumentExprs arguments;
};
struct FilterExpr : Expr {
  explicit FilterExpr(int at_line) : Expr(ExprKind::kFilter, at_line) {}
  ExprPtr operand;  // null for the innermost filter of a block: the block's text
  TextRef name;
  Filter filter = nullptr;  // null: there is none of that name, which is an error only when it is reached
  ArgumentExprs arguments;
};
struct TestExpr : Expr {
  explicit TestExpr(int at_line) : Expr(ExprKind::kTest, at_line) {}
  ExprPtr operand;
  TextRef name;
  Test test = nullptr;  // as FilterExpr::filter
  bool negated = false;
  ArgumentExprs arguments;
};

enum class UnaryOp : uint8_t { kNot, kMinus, kPlus };
struct UnaryExpr : Expr {
  explicit UnaryExpr(int at_line) : Expr(ExprKind::kUnary, at_line) {}
  UnaryOp op = UnaryOp::kNot;
  ExprPtr operand;
};
enum class BinaryOp : uint8_t { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
struct BinaryExpr : Expr {
  explicit BinaryExpr(int at_line) : Expr(ExprKind::kBinary, at_line) {}
  BinaryOp op = BinaryOp::kAdd;
  ExprPtr left, right;
};
struct LogicExpr : Expr {  // a and b and ..., or with `or`
  explicit LogicExpr(int at_line) : Expr(ExprKind::kLogic, at_line) {}
  bool all = true;
  std::vector<ExprPtr> operands;
};
struct ConcatExpr : Expr {
  explicit ConcatExpr(int at_line) : Expr(ExprKind::kConcat, at_line) {}
  std::vector<ExprPtr> operands;
};
enum class CompareOp : uint8_t { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };
struct CompareExpr : Expr {
  explicit CompareExpr(int at_line) : Expr(ExprKind::kCompare, at_line) {}
  ExprPtr first;
  std::vector<std::pair<CompareOp, ExprPtr>> rest;
};
struct ConditionExpr : Expr {
  explicit ConditionExpr(int at_line) : Expr(ExprKind::kCondition, at_line) {}
  ExprPtr condition, then, otherwise;  // otherwise may be null
};
struct SequenceExpr : Expr {
  explicit SequenceExpr(int at_line) : Expr(ExprKind::kSequence, at_line) {}
  bool tuple = false;
  std::vector<ExprPtr> items;
};
struct DictExpr : Expr {
  explicit DictExpr(int at_line) : Expr(ExprKind::kDict, at_line) {}
  std::vector<std::pair<ExprPtr, ExprPtr>> entries;
};

// The target of an assignment: a name, name.attribute of a namespace, or a list of those to unpack into.
struct Target {
  SymbolId symbol = 0;
  TextRef attribute;          // null unless name.attribute
  std::vector<Target> parts;  // not empty: unpack
  bool unpacks = false;
};

struct Stmt;
using Block = std::vector<std::unique_ptr<Stmt>>;

enum class StmtKind : uint8_t {
  kData,
  kPrint,
  kIf,
  kFor,
  kSet,
  kSetBlock,
  kMacro,
  kFilterBlock,
  kScope,
  kCallBlock,
  kBreak,
  kContinue,
};

struct Stmt {
  Stmt(StmtKind kind_of, int at_line) : kind(kind_of), line(at_line) {}
  virtual ~Stmt() = default;
  StmtKind kind;
  int line;
};

struct DataStmt : Stmt {
  explicit DataStmt(int at_line) : Stmt(StmtKind::kData, at_line) {}
  std::string data;
};
struct PrintStmt : Stmt {
  explicit PrintStmt(int at_line) : Stmt(StmtKind::kPrint, at_line) {}
  ExprPtr value;
};
struct IfStmt : Stmt {
  explicit IfStmt(int at_line) : Stmt(StmtKind::kIf, at_line) {}
  std::vector<std::pair<ExprPtr, Block>> branches;
  Block otherwise;
};
struct ForStmt : Stmt {
  explicit ForStmt(int at_line) : Stmt(StmtKind::kFor, at_line) {}
  Target target;
  ExprPtr iterable;
  ExprPtr condition;  // null when there is no `if`
  bool recursive = false;
  Block body;
  Block otherwise;
};
struct SetStmt : Stmt {
  explicit SetStmt(int at_line) : Stmt(StmtKind::kSet, at_line) {}
  Target target;
  ExprPtr value;
};
struct SetBlockStmt : Stmt {
  explicit SetBlockStmt(int at_line) : Stmt(StmtKind::kSetBlock, at_line) {}
  Target target;
  ExprPtr filters;  // null when none
  Block body;
};

struct MacroDef {
  TextRef name;
  std::vector<std::pair<SymbolId, TextRef>> parameters;
  std::vector<ExprPtr> defaults;  // of the last parameters
  Block body;
  // Which of these the body reads: only then surplus arguments are taken.
  bool reads_varargs = false;
  bool reads_kwargs = false;
  bool reads_caller = false;
};
struct MacroStmt : Stmt {
  explicit MacroStmt(int at_line) : Stmt(StmtKind::kMacro, at_line) {}
  SymbolId symbol = 0;
  MacroDef macro;
};
struct FilterBlockStmt : Stmt {
  explicit FilterBlockStmt(int at_line) : Stmt(StmtKind::kFilterBlock, at_line) {}
  ExprPtr filters;
  Block body;
};
struct ScopeStmt : Stmt {  // {% generation %}, {% block %}, {% with %}
  explicit ScopeStmt(int at_line) : Stmt(StmtKind::kScope, at_line) {}
  std::vector<std::pair<Target, ExprPtr>> names;  // values are evaluated outside
  Block body;
};
struct CallBlockStmt : Stmt {  // {% call %}: the body is the macro `caller` of the call
  explicit CallBlockStmt(int at_line) : Stmt(StmtKind::kCallBlock, at_line) {}
  MacroDef caller;
  ExprPtr call;  // a CallExpr
};
struct JumpStmt : Stmt {
  JumpStmt(StmtKind kind_of, int at_line) : Stmt(kind_of, at_line) {}
};

struct Program {
  std::vector<TextRef> symbols;
  // Names the interpreter itself defines.
  SymbolId loop = 0, varargs = 0, kwargs = 0, caller = 0;
  Block body;
  Limits limits;
};

}  // namespace quire::runner::jinja
