// Executes a Program. One rendering, one thread; raises RenderError.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runner/gotemplate/ast.h"
#include "runner/jinja/runtime.h"

namespace quire::runner::gotemplate {

class Interpreter {
 public:
  Interpreter(const Program& program, jinja::Runtime& runtime, jinja::TextBuilder& out)
      : program_(program), runtime_(runtime), out_(out) {}

  // Appends the output of the template for `data`. With `stop_at_response` it ends behind the action that
  // first uses .Response: where the model's answer goes.
  void Run(const jinja::Value& data, bool stop_at_response);

  int line() const { return line_; }  // of the action under evaluation

 private:
  enum class Flow : uint8_t { kOn, kBreak, kContinue, kStop };

  Flow Walk(const std::vector<Node>& nodes, const jinja::Value& dot);
  Flow Execute(const Node& node, const jinja::Value& dot);
  Flow Branch(const Node& node, const jinja::Value& dot);
  Flow CallTemplate(const Node& node, const jinja::Value& dot);
  Flow Range(const Node& node, const jinja::Value& dot);
  Flow RangeOver(const Node& node, const jinja::Value& over, const jinja::Value& dot);
  Flow Iterate(const Node& node, jinja::Value key, const jinja::Value& element);

  jinja::Value Evaluate(const Pipe& pipe, const jinja::Value& dot);
  jinja::Value Evaluate(const Command& command, const jinja::Value& dot, const jinja::Value* piped);
  jinja::Value Evaluate(const Operand& operand, const jinja::Value& dot);
  jinja::Value Call(const Function& function, const Command& command, const jinja::Value& dot,
                    const jinja::Value* piped);
  jinja::Value Field(const jinja::Value& value, const std::string& name);
  jinja::Value& Variable(const std::string& name);

  const Program& program_;
  jinja::Runtime& runtime_;
  jinja::TextBuilder& out_;
  std::vector<std::pair<std::string, jinja::Value>> variables_;  // the innermost last
  bool stop_at_response_ = false;
  bool response_used_ = false;
  int line_ = 1;
};

}  // namespace quire::runner::gotemplate
