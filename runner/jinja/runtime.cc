#include "runner/jinja/runtime.h"

#include <fmt/format.h>

#include <algorithm>

#include "runner/jinja/compare.h"

namespace quire::runner::jinja {

std::optional<Value> Namespace::Attribute(Runtime& runtime, std::string_view name) {
  runtime.budget().Step(attributes_.size() / 16);
  for (const auto& [key, value] : attributes_) {
    if (key->bytes() == name) return value;
  }
  return std::nullopt;
}

void Namespace::Set(Runtime& runtime, const TextRef& name, Value value) {
  runtime.budget().Step(1 + attributes_.size() / 16);
  for (auto& [key, held] : attributes_) {
    if (key->bytes() == name->bytes()) {
      held = std::move(value);
      return;
    }
  }
  attributes_.emplace_back(name, std::move(value));
}

Runtime::~Runtime() {
  // Emptied before any is freed: a chain of namespaces must not be freed link by link from within.
  for (const auto& name_space : namespaces_) name_space->Clear();
}

std::shared_ptr<Namespace> Runtime::MakeNamespace() {
  // A namespace stays until the end, so that what it takes is never given back.
  budget_.Reserve(sizeof(Namespace) + kObjectOverhead);
  namespaces_.push_back(std::make_shared<Namespace>());
  return namespaces_.back();
}

void Runtime::CheckDepth(int depth) const {
  if (depth > limits().value_depth_max) {
    Raise(fmt::format("a value is nested deeper than {} levels", limits().value_depth_max));
  }
}

Value Runtime::MakeString(std::string_view bytes, Trust trust) {
  TextBuilder text(budget_);
  text.Append(bytes, trust);
  return Value(std::move(text).Finish());
}

Value Runtime::Slice(const Value& string, size_t begin, size_t end) {
  const Text& text = string.as_text();
  if (begin == 0 && end == text.size()) return string;
  TextBuilder part(budget_);
  part.Append(text, begin, end);
  return Value(std::move(part).Finish(text.markup()));
}

Value Runtime::MakeList(std::vector<Value> items, Type type) {
  auto list = std::make_shared<List>();
  int deepest = 0;
  for (const Value& item : items) deepest = std::max(deepest, item.depth());
  CheckDepth(deepest + 1);
  list->depth = deepest + 1;
  list->charge = Charge(budget_, sizeof(List) + kObjectOverhead + items.capacity() * sizeof(Value));
  budget_.Step(1 + items.size());
  list->items = std::move(items);
  list->type = type;
  return Value(std::shared_ptr<const List>(std::move(list)));
}

Value Runtime::MakeDict(std::vector<Value::Entry> entries) {
  budget_.Step(1 + 2 * entries.size());
  Charge charge(budget_, sizeof(Dict) + kObjectOverhead + entries.capacity() * (sizeof(Value::Entry) + 4));
  auto dict = std::make_shared<const Dict>(std::move(entries), std::move(charge));
  CheckDepth(dict->depth());
  return Value(std::move(dict));
}

BoundArguments::BoundArguments(std::string_view function, const CallArguments& arguments,
                               std::initializer_list<std::string_view> parameters, size_t required)
    : function_(function) {
  std::copy(parameters.begin(), parameters.end(), names_);
  if (arguments.positional.size() > parameters.size()) {
    Raise(fmt::format("{}() takes at most {} arguments ({} given)", function, parameters.size(),
                      arguments.positional.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto* found = std::find(parameters.begin(), parameters.end(), name->bytes());
    if (found == parameters.end()) {
      Raise(fmt::format("{}() got an unexpected keyword argument '{}'", function, name->bytes()));
    }
    const Value*& slot = values_[found - parameters.begin()];
    if (slot != nullptr) {
      Raise(fmt::format("{}() got multiple values for argument '{}'", function, name->bytes()));
    }
    slot = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (values_[i] == nullptr) Raise(fmt::format("{}() is missing its argument '{}'", function, names_[i]));
  }
}

int64_t BoundArguments::Int(size_t index, int64_t fallback) const {
  const Value* value = values_[index];
  if (value == nullptr) return fallback;
  if (value->is_undefined()) Raise(value->as_undefined().Message());
  if (!value->is_integral()) {
    Raise(fmt::format("{}(): argument '{}' must be an integer, not {}", function_, names_[index],
                      TypeName(value->type())));
  }
  return value->as_int();
}

bool BoundArguments::Truth(size_t index, bool fallback) const {
  return values_[index] == nullptr ? fallback : Truthy(*values_[index]);
}

const Value& BoundArguments::String(size_t index) const {
  const Value& value = *values_[index];
  if (value.is_undefined()) Raise(value.as_undefined().Message());
  if (!value.is_string()) {
    Raise(fmt::format("{}(): argument '{}' must be str, not {}", function_, names_[index],
                      TypeName(value.type())));
  }
  return value;
}

}  // namespace quire::runner::jinja
