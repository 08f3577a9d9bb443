// A parsed template: text and actions in order. Immutable once parsed; nesting is bounded by
// Limits::nesting_max, so that walking and freeing one cannot exhaust the stack.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "runner/gotemplate/functions.h"
#include "runner/jinja/limits.h"
#include "runner/jinja/value.h"

namespace quire::runner::gotemplate {

struct Pipe;

// The operand of a command: the start of a value, and the fields selected from it.
struct Operand {
  enum class Kind : uint8_t { kDot, kVariable, kLiteral, kFunction, kPipe };
  Kind kind = Kind::kDot;
  std::string name;                    // kVariable: with its "$"
  jinja::Value literal;                // kLiteral; None is nil
  const Function* function = nullptr;  // kFunction
  std::unique_ptr<Pipe> pipe;          // kPipe
  std::vector<std::string> fields;     // ".A.B"
};

struct Command {
  std::vector<Operand> operands;  // at least one; more than one only when the first is a function
};

struct Pipe {
  std::vector<std::string> variables;  // what the value goes to: none, one, or two of a range
  bool assigns = false;                // "=" instead of ":="
  std::vector<Command> commands;       // at least one
};

struct Node {
  enum class Kind : uint8_t { kText, kAction, kIf, kRange, kWith, kBreak, kContinue, kTemplate };
  Kind kind = Kind::kText;
  int line = 1;
  std::string text;             // kText; kTemplate: its name
  Pipe pipe;                    // kAction, kIf, kRange, kWith; kTemplate: its dot, no commands = nil
  std::vector<Node> body;       // of kIf, kRange and kWith
  std::vector<Node> otherwise;  // their {{ else }}
};

struct Program {
  std::vector<Node> nodes;
  std::map<std::string, std::vector<Node>, std::less<>> templates;  // by {{ define }} and {{ block }}
  std::set<std::string, std::less<>> fields;                        // ".Messages" stands somewhere
  jinja::Limits limits;
};

}  // namespace quire::runner::gotemplate
