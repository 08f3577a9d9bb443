#include "runner/jinja/json_reader.h"

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "runner/jinja/limits.h"
#include "runner/work/work_budget.h"

namespace quire::runner::jinja {
namespace {

constexpr size_t kBytesPerUnit = 4;  // of text that is read

// SAX receiver. nlohmann::ordered_json would compare each key with all before it, and none of that would be
// counted.
class ValueBuilder {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  ValueBuilder(Trust trust, size_t& values_left) : trust_(trust), values_left_(values_left) {}

  bool null() { return Count() && Put(Value()); }
  bool boolean(bool value) { return Count() && Put(Value(value)); }
  bool number_integer(number_integer_t value) { return Count() && Put(Value(static_cast<int64_t>(value))); }
  bool number_unsigned(number_unsigned_t value) {
    const bool fits = value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    return Count() && Put(fits ? Value(static_cast<int64_t>(value)) : Value(static_cast<double>(value)));
  }
  bool number_float(number_float_t value, const string_t&) { return Count() && Put(Value(value)); }
  bool string(string_t& value) { return Count() && Put(Value::String(std::move(value), trust_)); }
  bool binary(binary_t&) { return Fail(api::ErrorCode::kInvalidArgument, kNotJson); }
  bool start_object(size_t) { return Open(); }
  bool start_array(size_t) { return Open(); }
  bool key(string_t& name) {
    open_.back().key = Value::String(std::move(name), trust_);
    return Count();
  }
  bool end_array() {
    std::vector<Value> items = std::move(open_.back().items);
    open_.pop_back();
    return Put(Value::MakeList(std::move(items)));
  }
  bool end_object() {
    std::vector<Value::Entry> entries = std::move(open_.back().entries);
    open_.pop_back();
    return Put(Value(std::make_shared<const Dict>(std::move(entries), Charge())));
  }
  template <class Exception>
  bool parse_error(size_t, const std::string&, const Exception&) {
    return Fail(api::ErrorCode::kInvalidArgument, kNotJson);
  }

  Value TakeRoot() { return std::move(root_); }
  api::Error TakeError() { return std::move(error_); }

  static constexpr const char* kNotJson = "is not JSON";

 private:
  struct Container {
    std::vector<Value> items = {};           // of an array
    std::vector<Value::Entry> entries = {};  // of an object
    Value key = {};                          // of the object's next entry; None: an array
  };

  bool Fail(api::ErrorCode code, std::string message) {
    error_ = {code, std::move(message)};
    return false;
  }
  bool Count() {
    CountWork(1);
    if (values_left_ == 0) return Fail(api::ErrorCode::kTooLarge, "has too many values");
    --values_left_;
    return true;
  }
  bool Open() {
    if (open_.size() >= static_cast<size_t>(Limits{}.value_depth_max)) {
      return Fail(api::ErrorCode::kInvalidArgument,
                  fmt::format("is nested deeper than {} levels", Limits{}.value_depth_max));
    }
    if (!Count()) return false;
    open_.emplace_back();
    return true;
  }
  bool Put(Value value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (Container& container = open_.back(); container.key.is_none()) {
      container.items.push_back(std::move(value));
    } else {
      container.entries.emplace_back(std::exchange(container.key, Value()), std::move(value));
    }
    return true;
  }

  const Trust trust_;
  size_t& values_left_;
  Value root_;
  std::vector<Container> open_;
  api::Error error_{api::ErrorCode::kInvalidArgument, kNotJson};
};

}  // namespace

api::Result<Value> JsonReader::Read(std::string_view text) {
  CountWork(1 + text.size() / kBytesPerUnit);
  // The library takes a NUL for the end of the text.
  if (text.find('\0') != std::string_view::npos) {
    return api::Fail(api::ErrorCode::kInvalidArgument, ValueBuilder::kNotJson);
  }
  ValueBuilder builder(trust_, values_left_);
  if (!nlohmann::json::sax_parse(text, &builder)) return std::unexpected(builder.TakeError());
  return builder.TakeRoot();
}

}  // namespace quire::runner::jinja
