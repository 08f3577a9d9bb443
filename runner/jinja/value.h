// Values of the template language, with Python's kinds and Python's names for them.
//
// A Value is cheap to copy: big ones are shared. Strings, lists and dicts never change once made (Jinja's
// immutable sandbox), so values made outside a rendering may be shared between threads. Objects (namespaces,
// macros, loops) exist only inside one rendering. Lists and dicts know how deep they nest, and nesting is
// bounded, so that walking or freeing a value cannot exhaust the stack.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "api/base/error.h"
#include "runner/jinja/budget.h"
#include "runner/jinja/text.h"

namespace quire::runner::jinja {

class Value;
class Dict;
class Runtime;
struct List;
struct CallArguments;

enum class Kind : uint8_t { kNone, kBool, kInt, kDouble, kString, kList, kDict, kObject, kUndefined };

// Python's types, as error messages name them.
enum class Type : uint8_t {
  kNone,
  kBool,
  kInt,
  kFloat,
  kStr,
  kMarkup,
  kList,
  kTuple,
  kRange,
  kDictKeys,
  kDictValues,
  kDictItems,
  kGenerator,
  kDict,
  kUndefined,
  kNamespace,
  kMacro,
  kLoop,
  kFunction,
  kMethod,
};
const char* TypeName(Type type);

// The value of a missing name, attribute or element: prints as nothing, is false, and any use of it
// fails with a message that says what was missing.
struct Undefined {
  enum class Why : uint8_t { kName, kAttribute, kElement, kParameter, kUnsafe, kHint };
  TextRef name;  // the name; for kElement the key's repr; for kHint the whole message
  Why why = Why::kName;
  Type owner = Type::kNone;  // whose attribute or element
  std::string Message() const;
};

class Object {
 public:
  explicit Object(Type type, int depth = 0) : type_(type), depth_(depth) {}
  virtual ~Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  Type type() const { return type_; }
  int depth() const { return depth_; }
  virtual std::optional<Value> Attribute(Runtime& runtime, std::string_view name);
  virtual bool callable() const { return false; }
  virtual Value Call(Runtime& runtime, const CallArguments& arguments);

 private:
  friend class Runtime;
  Charge charge_;
  Type type_;
  int depth_;  // as List::depth; 0 for what the rendering itself owns
};

class Value {
 public:
  using Entry = std::pair<Value, Value>;

  Value() = default;  // None
  explicit Value(bool value) : data_(value) {}
  explicit Value(int64_t value) : data_(value) {}
  explicit Value(double value) : data_(value) {}
  explicit Value(TextRef text) : data_(std::move(text)) {}
  explicit Value(std::shared_ptr<const List> list) : data_(std::move(list)) {}
  explicit Value(std::shared_ptr<const Dict> dict) : data_(std::move(dict)) {}
  explicit Value(std::shared_ptr<Object> object) : data_(std::move(object)) {}
  explicit Value(Undefined undefined) : data_(std::move(undefined)) {}

  // Values made outside a rendering.
  static Value String(std::string bytes, Trust trust = Trust::kTemplate) {  // REQUIRES: valid UTF-8
    return Value(MakeText(std::move(bytes), trust));
  }
  static Value MakeList(std::vector<Value> items);
  static Value MakeDict(
      std::vector<std::pair<std::string, Value>> entries);  // a later key wins, its place is kept

  Kind kind() const { return static_cast<Kind>(data_.index()); }
  Type type() const;
  bool is_none() const { return kind() == Kind::kNone; }
  bool is_undefined() const { return kind() == Kind::kUndefined; }
  bool is_string() const { return kind() == Kind::kString; }
  bool is_list() const { return kind() == Kind::kList; }  // any sequence or view, see List::type
  bool is_dict() const { return kind() == Kind::kDict; }
  bool is_object() const { return kind() == Kind::kObject; }
  bool is_integral() const { return kind() == Kind::kInt || kind() == Kind::kBool; }
  bool is_number() const { return is_integral() || kind() == Kind::kDouble; }

  // REQUIRES: of that kind.
  bool as_bool() const { return std::get<bool>(data_); }
  int64_t as_int() const {  // also of a bool
    return kind() == Kind::kBool ? static_cast<int64_t>(as_bool()) : std::get<int64_t>(data_);
  }
  double as_double() const {  // of any number
    return kind() == Kind::kDouble ? std::get<double>(data_) : static_cast<double>(as_int());
  }
  const Text& as_text() const { return *std::get<TextRef>(data_); }
  const TextRef& text_ref() const { return std::get<TextRef>(data_); }
  std::string_view as_view() const { return as_text().bytes(); }
  const List& as_list() const { return *std::get<std::shared_ptr<const List>>(data_); }
  const std::shared_ptr<const List>& list_ref() const { return std::get<std::shared_ptr<const List>>(data_); }
  const Dict& as_dict() const { return *std::get<std::shared_ptr<const Dict>>(data_); }
  Object& as_object() const { return *std::get<std::shared_ptr<Object>>(data_); }
  const Undefined& as_undefined() const { return std::get<Undefined>(data_); }

  int depth() const;  // of nesting; 0 for scalars

 private:
  std::variant<std::monostate, bool, int64_t, double, TextRef, std::shared_ptr<const List>,
               std::shared_ptr<const Dict>, std::shared_ptr<Object>, Undefined>
      data_;
};

// Everything that holds values in order: list, tuple, range, the views of a dict, and the one-shot results of
// filters such as `map` (generators).
struct List {
  std::vector<Value> items;
  Type type = Type::kList;
  int depth = 1;  // 1 + the deepest item's
  Charge charge = {};
  mutable size_t consumed = 0;  // kGenerator only, which lives in one rendering: items already handed out
};

inline bool IsTuple(const Value& value) { return value.type() == Type::kTuple; }

// Insertion-ordered. Keys are None, bools, numbers or strings; 1, 1.0 and true are one key, as in Python.
class Dict {
 public:
  using Entry = Value::Entry;

  // A later equal key replaces the value and keeps the place. Unhashable keys raise RenderError. Sorts the
  // keys, which counts as work.
  Dict(std::vector<Entry> entries, Charge charge);

  const std::vector<Entry>& entries() const { return entries_; }
  const Value* Find(const Value& key) const;  // null when absent; raises on unhashable keys
  const Value* Find(std::string_view key) const;
  int depth() const { return depth_; }

 private:
  std::vector<Entry> entries_;
  std::vector<uint32_t> sorted_;  // entries in key order; empty for the few entries that a scan finds faster
  int depth_ = 1;
  Charge charge_;
};

}  // namespace quire::runner::jinja
