// One rendering: its budget, its clock, and how it makes values. Used by the rendering thread only.
#pragma once

#include <ctime>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runner/jinja/budget.h"
#include "runner/jinja/text.h"
#include "runner/jinja/value.h"

namespace quire::runner::jinja {

class Namespace final : public Object {
 public:
  Namespace() : Object(Type::kNamespace) {}
  std::optional<Value> Attribute(Runtime& runtime, std::string_view name) override;
  void Set(Runtime& runtime, const TextRef& name, Value value);
  void Clear() { attributes_.clear(); }
  const std::vector<std::pair<TextRef, Value>>& attributes() const { return attributes_; }

 private:
  std::vector<std::pair<TextRef, Value>> attributes_;
};

class Runtime {
 public:
  Runtime(const Limits& limits, const std::tm& now) : budget_(limits), now_(now) {}
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  Budget& budget() { return budget_; }
  const Limits& limits() const { return budget_.limits(); }
  const std::tm& now() const { return now_; }

  TextBuilder NewText() { return TextBuilder(budget_); }
  // These raise when over the budget or nested too deeply.
  Value MakeString(std::string_view bytes, Trust trust = Trust::kTemplate);
  Value Slice(const Value& string, size_t begin, size_t end);  // bytes; the same text when that is all of it
  Value MakeList(std::vector<Value> items, Type type = Type::kList);
  Value MakeDict(std::vector<Value::Entry> entries);
  template <class T, class... Arguments>
  Value MakeObject(Arguments&&... arguments) {
    auto object = std::make_shared<T>(std::forward<Arguments>(arguments)...);
    object->charge_ = Charge(budget_, sizeof(T) + kObjectOverhead);
    CheckDepth(object->depth());
    return Value(std::shared_ptr<Object>(std::move(object)));
  }
  // The one object that can be changed, and so can come to hold itself: kept, and emptied when the rendering
  // ends.
  std::shared_ptr<Namespace> MakeNamespace();
  void CheckDepth(int depth) const;

 private:
  static constexpr size_t kObjectOverhead = 64;

  Budget budget_;
  std::tm now_;
  std::vector<std::shared_ptr<Namespace>> namespaces_;  // after budget_: what they hold is given back to it
};

struct CallArguments {
  std::vector<Value> positional;
  std::vector<std::pair<TextRef, Value>> named;
};

// Arguments by the names of a built-in's parameters.
class BoundArguments {
 public:
  // Raises when there are too many arguments, unknown names, or fewer than `required` leading parameters are
  // given.
  BoundArguments(std::string_view function, const CallArguments& arguments,
                 std::initializer_list<std::string_view> parameters, size_t required = 0);

  const Value* operator[](size_t index) const { return values_[index]; }  // null when not given
  // The parameter as that type, or the fallback when it was not given; raises when it is something else.
  int64_t Int(size_t index, int64_t fallback) const;
  bool Truth(size_t index, bool fallback) const;
  const Value& String(size_t index) const;  // REQUIRES: given

 private:
  static constexpr size_t kParametersMax = 6;
  std::string_view function_;
  std::string_view names_[kParametersMax];
  const Value* values_[kParametersMax] = {};
};

}  // namespace quire::runner::jinja
