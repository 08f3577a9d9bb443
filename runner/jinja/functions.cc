// The global functions: range, dict, namespace, and those of the chat-template environment.
#include <fmt/format.h>

#include <ctime>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "runner/jinja/builtins.h"
#include "runner/jinja/sequence.h"
#include "runner/jinja/show.h"

namespace quire::runner::jinja {
namespace {

Value Range(Runtime& runtime, const CallArguments& arguments) {
  const BoundArguments bound("range", arguments, {"start", "stop", "step"}, 1);
  const int64_t start = bound[1] == nullptr ? 0 : bound.Int(0, 0);
  const int64_t stop = bound[1] == nullptr ? bound.Int(0, 0) : bound.Int(1, 0);
  const int64_t step = bound.Int(2, 1);
  if (step == 0) Raise("range() arg 3 must not be zero");
  const bool forward = step > 0;
  uint64_t count = 0;
  if (forward ? start < stop : start > stop) {
    const uint64_t distance = forward ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start)
                                      : static_cast<uint64_t>(start) - static_cast<uint64_t>(stop);
    const uint64_t stride = forward ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
    count = (distance - 1) / stride + 1;
  }
  if (count > static_cast<uint64_t>(runtime.limits().range_max)) {
    Raise(
        fmt::format("Range too big. The sandbox blocks ranges larger than {}.", runtime.limits().range_max));
  }
  std::vector<Value> items;
  const Charge charge(runtime.budget(), count * sizeof(Value));
  items.reserve(count);
  for (uint64_t i = 0; i < count; ++i) items.emplace_back(start + static_cast<int64_t>(i) * step);
  return runtime.MakeList(std::move(items), Type::kRange);
}

std::vector<Value::Entry> DictEntries(Runtime& runtime, const CallArguments& arguments) {
  std::vector<Value::Entry> entries;
  if (arguments.positional.size() > 1) Raise("dict expected at most 1 argument");
  if (!arguments.positional.empty()) {
    const Value& from = arguments.positional[0];
    if (from.is_dict()) {
      entries = from.as_dict().entries();
    } else {
      const auto items = Iterate(runtime, from);
      for (const Value& item : items->items) {
        const auto pair = Iterate(runtime, item);
        if (pair->items.size() != 2) Raise("dict() wants pairs");
        entries.emplace_back(pair->items[0], pair->items[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) entries.emplace_back(Value(name), value);
  return entries;
}

Value MakeDict(Runtime& runtime, const CallArguments& arguments) {
  return runtime.MakeDict(DictEntries(runtime, arguments));
}

Value MakeNamespace(Runtime& runtime, const CallArguments& arguments) {
  const Value initial = runtime.MakeDict(DictEntries(runtime, arguments));
  const std::shared_ptr<Namespace> name_space = runtime.MakeNamespace();
  for (const auto& [key, value] : initial.as_dict().entries()) {
    if (key.is_string()) name_space->Set(runtime, key.text_ref(), value);
  }
  return Value(std::shared_ptr<Object>(name_space));
}

Value RaiseException(Runtime& runtime, const CallArguments& arguments) {
  const BoundArguments bound("raise_exception", arguments, {"message"}, 1);
  throw RenderError{Str(runtime, *bound[0])->bytes(), true};
}

// One directive at a time: what strftime() does with widths and unknown letters differs between C libraries.
Value StrftimeNow(Runtime& runtime, const CallArguments& arguments) {
  const BoundArguments bound("strftime_now", arguments, {"format"}, 1);
  static constexpr std::string_view kFlags = "-_0^#";
  static constexpr std::string_view kLetters = "aAbBcCdDeFgGhHIjmMnprRSStTuUVwWxXyYzZ%";
  const std::string_view format = bound.String(0).as_view();
  TextBuilder out = runtime.NewText();
  for (size_t at = 0; at < format.size(); ++at) {
    if (format[at] != '%') {
      out.Append(format.substr(at, 1));
      continue;
    }
    size_t letter = at + 1;
    if (letter < format.size() && kFlags.find(format[letter]) != std::string_view::npos) ++letter;
    if (letter >= format.size()) {
      out.Append(format.substr(at));
      break;
    }
    const std::string directive(format.substr(at, letter - at + 1));
    if (format[letter] == 'f') {
      out.Append("000000");
    } else if (format[letter] != 'z' && format[letter] != 'Z') {  // the clock says no zone
      if (kLetters.find(format[letter]) == std::string_view::npos) {
        Raise(fmt::format("strftime_now: unknown directive '{}'", directive));
      }
      char buffer[128];
      out.Append(
          std::string_view(buffer, std::strftime(buffer, sizeof buffer, directive.c_str(), &runtime.now())));
    }
    at = letter;
  }
  return Value(std::move(out).Finish());
}

// cycler(...): current, next() and reset().
class Cycler final : public Object {
 public:
  struct State {
    std::vector<Value> items;
    size_t at = 0;
  };
  class Step final : public Object {
   public:
    Step(std::shared_ptr<State> state, int depth, bool resets)
        : Object(Type::kMethod, depth), state_(std::move(state)), resets_(resets) {}
    bool callable() const override { return true; }
    Value Call(Runtime&, const CallArguments&) override {
      const size_t at = state_->at;
      state_->at = resets_ ? 0 : (at + 1) % state_->items.size();
      return resets_ ? Value() : state_->items[at];
    }

   private:
    const std::shared_ptr<State> state_;
    const bool resets_;
  };

  Cycler(std::vector<Value> items, int depth)
      : Object(Type::kFunction, depth), state_(std::make_shared<State>(State{std::move(items)})) {}
  std::optional<Value> Attribute(Runtime& runtime, std::string_view name) override {
    if (name == "current") return state_->items[state_->at];
    if (name != "next" && name != "reset") return std::nullopt;
    return runtime.MakeObject<Step>(state_, depth() + 1, name == "reset");
  }

 private:
  const std::shared_ptr<State> state_;
};

Value MakeCycler(Runtime& runtime, const CallArguments& arguments) {
  if (arguments.positional.empty()) Raise("at least one item has to be provided");
  const Value list = runtime.MakeList(arguments.positional);
  return runtime.MakeObject<Cycler>(arguments.positional, list.depth());
}

struct NamedFunction {
  std::string_view name;
  Function::Body body;
};
constexpr NamedFunction kFunctions[] = {
    {"range", Range},
    {"cycler", MakeCycler},
    {"dict", MakeDict},
    {"namespace", MakeNamespace},
    {"raise_exception", RaiseException},
    {"strftime_now", StrftimeNow},
};

}  // namespace

std::optional<Value> FindGlobal(Runtime& runtime, std::string_view name) {
  for (const NamedFunction& function : kFunctions) {
    if (function.name == name) return runtime.MakeObject<Function>(function.body);
  }
  return std::nullopt;
}

}  // namespace quire::runner::jinja
