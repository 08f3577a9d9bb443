#include "runner/gotemplate/interpreter.h"

#include <fmt/format.h>

#include <ranges>
#include <utility>

namespace quire::runner::gotemplate {
namespace {

using jinja::DepthGuard;
using jinja::Kind;
using jinja::Raise;
using jinja::Value;

constexpr size_t kVariablesPerStep = 16;  // that are searched

// Templates use ToolCallID; the JSON of the values has tool_call_id.
std::string SnakeCase(std::string_view name) {
  const auto upper = [&](size_t i) { return i < name.size() && name[i] >= 'A' && name[i] <= 'Z'; };
  std::string snake;
  for (size_t i = 0; i < name.size(); ++i) {
    const bool begins_word = upper(i) && i > 0 && (!upper(i - 1) || (i + 1 < name.size() && !upper(i + 1)));
    if (begins_word && name[i - 1] != '_') snake += '_';
    snake += upper(i) ? static_cast<char>(name[i] - 'A' + 'a') : name[i];
  }
  return snake;
}

}  // namespace

void Interpreter::Run(const Value& data, bool stop_at_response) {
  stop_at_response_ = stop_at_response;
  response_used_ = false;
  variables_.clear();
  variables_.emplace_back("$", data);
  Walk(program_.nodes, data);
}

Interpreter::Flow Interpreter::Walk(const std::vector<Node>& nodes, const Value& dot) {
  const DepthGuard guard(runtime_.budget());
  for (const Node& node : nodes) {
    const Flow flow = Execute(node, dot);
    if (flow != Flow::kOn) return flow;
    if (stop_at_response_ && response_used_) return Flow::kStop;
  }
  return Flow::kOn;
}

Interpreter::Flow Interpreter::Execute(const Node& node, const Value& dot) {
  runtime_.budget().Step();
  line_ = node.line;
  switch (node.kind) {
    case Node::Kind::kText:
      runtime_.budget().StepBytes(node.text.size());
      out_.Append(node.text);
      return Flow::kOn;
    case Node::Kind::kAction: {
      const Value value = Evaluate(node.pipe, dot);
      if (node.pipe.variables.empty()) AppendValue(runtime_, out_, value);
      return Flow::kOn;
    }
    case Node::Kind::kBreak:
      return Flow::kBreak;
    case Node::Kind::kContinue:
      return Flow::kContinue;
    case Node::Kind::kRange:
      return Range(node, dot);
    case Node::Kind::kTemplate:
      return CallTemplate(node, dot);
    default:
      return Branch(node, dot);
  }
}

// The parser has seen to it that the template is there.
Interpreter::Flow Interpreter::CallTemplate(const Node& node, const Value& dot) {
  const Value inner = node.pipe.commands.empty() ? Value() : Evaluate(node.pipe, dot);
  auto outer = std::exchange(variables_, {{"$", inner}});
  const Flow flow = Walk(program_.templates.find(node.text)->second, inner);
  variables_ = std::move(outer);
  return flow;
}

Interpreter::Flow Interpreter::Branch(const Node& node, const Value& dot) {
  const size_t outer = variables_.size();
  const Value value = Evaluate(node.pipe, dot);
  if (stop_at_response_ && response_used_) return Flow::kStop;
  const bool is_with = node.kind == Node::Kind::kWith;
  const Flow flow = IsTrue(value) ? Walk(node.body, is_with ? value : dot) : Walk(node.otherwise, dot);
  variables_.resize(outer);
  return flow;
}

Interpreter::Flow Interpreter::Range(const Node& node, const Value& dot) {
  const size_t outer = variables_.size();
  const Pipe& pipe = node.pipe;
  Value over;
  for (size_t i = 0; i < pipe.commands.size(); ++i)
    over = Evaluate(pipe.commands[i], dot, i > 0 ? &over : nullptr);
  if (!pipe.assigns) {
    for (const std::string& name : pipe.variables) variables_.emplace_back(name, Value());
  }
  const Flow flow = RangeOver(node, over, dot);
  variables_.resize(outer);
  return flow;
}

Interpreter::Flow Interpreter::RangeOver(const Node& node, const Value& over, const Value& dot) {
  if (!IsTrue(over) && (over.is_none() || over.is_list() || over.is_dict() || over.kind() == Kind::kInt)) {
    return Walk(node.otherwise, dot);
  }
  const auto ends = [](Flow flow) { return flow == Flow::kBreak || flow == Flow::kStop; };
  Flow flow = Flow::kOn;
  if (over.is_list()) {
    int64_t index = 0;
    for (const Value& item : over.as_list().items) {
      flow = Iterate(node, Value(index++), item);
      if (ends(flow)) break;
    }
  } else if (over.is_dict()) {
    for (const auto& [key, value] : over.as_dict().entries()) {
      flow = Iterate(node, key, value);
      if (ends(flow)) break;
    }
  } else if (over.kind() == Kind::kInt) {
    for (int64_t i = 0; i < over.as_int() && !ends(flow); ++i) flow = Iterate(node, Value(i), Value(i));
  } else {
    Raise(fmt::format("range cannot iterate over a {}", KindName(over)));
  }
  return flow == Flow::kStop ? flow : Flow::kOn;
}

Interpreter::Flow Interpreter::Iterate(const Node& node, Value key, const Value& element) {
  runtime_.budget().Step();
  const size_t inner = variables_.size();
  const auto& names = node.pipe.variables;
  if (names.size() == 2) Variable(names[0]) = std::move(key);
  if (!names.empty()) Variable(names.back()) = element;
  const Flow flow = Walk(node.body, element);
  variables_.resize(inner);
  return flow;
}

Value Interpreter::Evaluate(const Pipe& pipe, const Value& dot) {
  const DepthGuard guard(runtime_.budget());
  Value value;
  for (size_t i = 0; i < pipe.commands.size(); ++i) {
    value = Evaluate(pipe.commands[i], dot, i > 0 ? &value : nullptr);
  }
  if (!pipe.variables.empty()) {
    if (pipe.assigns) {
      Variable(pipe.variables.front()) = value;
    } else {
      variables_.emplace_back(pipe.variables.front(), value);
    }
  }
  return value;
}

Value Interpreter::Evaluate(const Command& command, const Value& dot, const Value* piped) {
  runtime_.budget().Step();
  const Operand& first = command.operands.front();
  if (first.kind == Operand::Kind::kFunction) return Call(*first.function, command, dot, piped);
  return Evaluate(first, dot);
}

Value Interpreter::Call(const Function& function, const Command& command, const Value& dot,
                        const Value* piped) {
  const size_t given = command.operands.size() - 1 + (piped != nullptr ? 1 : 0);
  if (given < function.arguments_min || given > function.arguments_max) {
    Raise(fmt::format("wrong number of arguments for {}: {}", function.name, given));
  }
  std::vector<Value> arguments;
  arguments.reserve(given);
  for (size_t i = 0; i < given; ++i) {
    arguments.push_back(i + 1 < command.operands.size() ? Evaluate(command.operands[i + 1], dot) : *piped);
    if (function.lazy == Function::Lazy::kNo) continue;
    if (IsTrue(arguments.back()) == (function.lazy == Function::Lazy::kOr)) return arguments.back();
  }
  if (function.lazy != Function::Lazy::kNo) return arguments.back();
  return function.call(runtime_, arguments);
}

Value Interpreter::Evaluate(const Operand& operand, const Value& dot) {
  Value value;
  switch (operand.kind) {
    case Operand::Kind::kDot:
      value = dot;
      break;
    case Operand::Kind::kVariable:
      value = Variable(operand.name);
      break;
    case Operand::Kind::kLiteral:
      return operand.literal;
    case Operand::Kind::kFunction:
      if (operand.function->arguments_min > 0) {
        Raise(fmt::format("wrong number of arguments for {}: 0", operand.function->name));
      }
      return operand.function->call(runtime_, {});
    case Operand::Kind::kPipe: {
      const size_t outer = variables_.size();
      value = Evaluate(*operand.pipe, dot);
      variables_.resize(outer);
      break;
    }
  }
  for (const std::string& field : operand.fields) value = Field(value, field);
  return value;
}

Value Interpreter::Field(const Value& value, const std::string& name) {
  runtime_.budget().Step();
  response_used_ = response_used_ || name == "Response";
  // Fields of Go's structs that JSON omits are empty.
  if (value.is_none()) return value;
  if (!value.is_dict()) Raise(fmt::format("can't evaluate field {} in type {}", name, KindName(value)));
  const Value* found = value.as_dict().Find(std::string_view(name));
  if (found == nullptr) found = value.as_dict().Find(std::string_view(SnakeCase(name)));
  return found == nullptr ? Value() : *found;
}

// The parser has seen to it that the name is known; which value it has is decided here.
Value& Interpreter::Variable(const std::string& name) {
  size_t searched = 0;
  for (auto& [known, value] : std::views::reverse(variables_)) {
    if (++searched % kVariablesPerStep == 0) runtime_.budget().Step();
    if (known == name) return value;
  }
  Raise(fmt::format("undefined variable {}", name));
}

}  // namespace quire::runner::gotemplate
