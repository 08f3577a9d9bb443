#include "runner/jinja/sequence.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "api/base/parse_integer.h"
#include "runner/jinja/compare.h"
#include "runner/jinja/show.h"
#include "runner/jinja/unicode.h"

namespace quire::runner::jinja {
namespace {

std::shared_ptr<const List> ListOf(Runtime& runtime, std::vector<Value> items) {
  return runtime.MakeList(std::move(items)).list_ref();
}

std::shared_ptr<const List> CodePointsOf(Runtime& runtime, const Value& string) {
  const std::string_view text = string.as_view();
  std::vector<Value> items;
  const Charge charge(runtime.budget(), CountCodePoints(text) * sizeof(Value));
  items.reserve(CountCodePoints(text));
  for (size_t at = 0; at < text.size();) {
    const size_t end = at + CodePointAt(text, at).bytes;
    TextBuilder one = runtime.NewText();  // plain, even of markup
    one.Append(string.as_text(), at, end);
    items.emplace_back(std::move(one).Finish());
    at = end;
  }
  return ListOf(runtime, std::move(items));
}

std::shared_ptr<const List> ConsumeGenerator(Runtime& runtime, const std::shared_ptr<const List>& list) {
  const size_t consumed = std::exchange(list->consumed, list->items.size());
  if (consumed == 0) return list;
  return ListOf(runtime, std::vector<Value>(list->items.begin() + static_cast<std::ptrdiff_t>(consumed),
                                            list->items.end()));
}

bool IsIndexable(Type type) { return type == Type::kList || type == Type::kTuple || type == Type::kRange; }

bool IsHashable(const Value& key) {
  return !key.is_list() && !key.is_dict() && !key.is_object() && !key.is_undefined();
}

// An index as Python counts it, from the end when negative; nothing when out of bounds.
std::optional<size_t> IndexWithin(int64_t index, size_t size) {
  const auto length = static_cast<int64_t>(size);
  if (index < 0) index += length;
  if (index < 0 || index >= length) return std::nullopt;
  return static_cast<size_t>(index);
}

Value MissingElement(Runtime& runtime, const Value& object, const Value& key) {
  if (key.is_string()) return Value(Undefined{key.text_ref(), Undefined::Why::kAttribute, object.type()});
  return Value(Undefined{Repr(runtime, key), Undefined::Why::kElement, object.type()});
}

std::optional<Value> StringElement(Runtime& runtime, const Value& object, const Value& key) {
  if (!key.is_integral()) return std::nullopt;
  const std::string_view text = object.as_view();
  runtime.budget().StepBytes(text.size());
  const auto index = IndexWithin(key.as_int(), CountCodePoints(text));
  if (!index) return std::nullopt;
  const size_t begin = OffsetOfCodePoint(text, *index);
  return runtime.Slice(object, begin, begin + CodePointAt(text, begin).bytes);
}

std::optional<Value> OwnElement(Runtime& runtime, const Value& object, const Value& key) {
  switch (object.kind()) {
    case Kind::kString:
      return StringElement(runtime, object, key);
    case Kind::kDict: {
      if (!IsHashable(key)) return std::nullopt;
      const Value* found = object.as_dict().Find(key);
      if (found == nullptr) return std::nullopt;
      return *found;
    }
    case Kind::kList: {
      if (!key.is_integral() || !IsIndexable(object.type())) return std::nullopt;
      const auto index = IndexWithin(key.as_int(), object.as_list().items.size());
      if (!index) return std::nullopt;
      return object.as_list().items[*index];
    }
    default:
      return std::nullopt;
  }
}

// An attribute before the lookup of keys: a method, or the rejection of one that would change its object.
std::optional<Value> MethodAttribute(Runtime& runtime, const Value& object, const TextRef& name,
                                     const Methods& methods) {
  if ((object.is_dict() && methods.unsafe_dict) || (object.type() == Type::kList && methods.unsafe_list)) {
    return Value(Undefined{name, Undefined::Why::kUnsafe, object.type()});
  }
  if (const Method method = MethodOf(object, methods); method != nullptr) {
    return runtime.MakeObject<BoundMethod>(object, method);
  }
  if (object.is_object()) return object.as_object().Attribute(runtime, name->bytes());
  return std::nullopt;
}

struct SliceBounds {
  int64_t start = 0;
  int64_t step = 1;
  int64_t count = 0;
};

// Python's slice.indices(): bounds clipped to the length.
SliceBounds Clip(const Value& start, const Value& stop, const Value& step, int64_t length) {
  const auto whole = [](const Value& value, int64_t fallback) {
    if (value.is_none()) return fallback;
    RequireDefined(value);
    if (!value.is_integral()) Raise("slice indices must be integers or None");
    return value.as_int();
  };
  SliceBounds bounds;
  bounds.step = whole(step, 1);
  if (bounds.step == 0) Raise("slice step cannot be zero");
  const bool forward = bounds.step > 0;
  const int64_t low = forward ? 0 : -1;
  const int64_t high = forward ? length : length - 1;
  const auto clip = [&](const Value& value, int64_t fallback) {
    int64_t index = whole(value, fallback);
    if (value.is_none()) return index;
    if (index < 0) index = index < -length ? low : index + length;
    return std::clamp(index, low, high);
  };
  bounds.start = clip(start, forward ? low : high);
  const int64_t end = clip(stop, forward ? high : low);
  const int64_t distance = forward ? end - bounds.start : bounds.start - end;
  // The magnitude of the smallest step cannot be said as int64; one less reaches no further element either.
  const int64_t stride = forward ? bounds.step : -std::max(bounds.step, -INT64_MAX);
  bounds.count = distance <= 0 ? 0 : (distance - 1) / stride + 1;
  return bounds;
}

Value SliceString(Runtime& runtime, const Value& string, const SliceBounds& bounds) {
  const std::string_view text = string.as_view();
  if (bounds.count == 0) return runtime.Slice(string, 0, 0);
  if (bounds.step == 1) {
    const size_t begin = OffsetOfCodePoint(text, static_cast<size_t>(bounds.start));
    const size_t end = begin + OffsetOfCodePoint(text.substr(begin), static_cast<size_t>(bounds.count));
    return runtime.Slice(string, begin, end);
  }
  std::vector<size_t> borders;
  const Charge charge(runtime.budget(), text.size() * sizeof(size_t));
  for (size_t at = 0; at < text.size(); at += CodePointAt(text, at).bytes) {
    borders.push_back(at);
  }
  borders.push_back(text.size());
  TextBuilder out = runtime.NewText();
  for (int64_t i = 0; i < bounds.count; ++i) {
    const auto index = static_cast<size_t>(bounds.start + i * bounds.step);
    out.Append(string.as_text(), borders[index], borders[index + 1]);
  }
  return Value(std::move(out).Finish(string.as_text().markup()));
}

}  // namespace

std::shared_ptr<const List> Iterate(Runtime& runtime, const Value& value) {
  switch (value.kind()) {
    case Kind::kList:
      return value.type() == Type::kGenerator ? ConsumeGenerator(runtime, value.list_ref())
                                              : value.list_ref();
    case Kind::kDict: {
      std::vector<Value> keys;
      keys.reserve(value.as_dict().entries().size());
      for (const auto& [key, held] : value.as_dict().entries()) keys.push_back(key);
      return ListOf(runtime, std::move(keys));
    }
    case Kind::kString:
      return CodePointsOf(runtime, value);
    case Kind::kUndefined:
      return std::make_shared<const List>();
    default:
      Raise(fmt::format("'{}' object is not iterable", TypeName(value.type())));
  }
}

std::optional<int64_t> Length(Runtime& runtime, const Value& value) {
  switch (value.kind()) {
    case Kind::kString:
      runtime.budget().StepBytes(value.as_text().size());
      return static_cast<int64_t>(CountCodePoints(value.as_view()));
    case Kind::kList:
      if (value.type() == Type::kGenerator) return std::nullopt;
      return static_cast<int64_t>(value.as_list().items.size());
    case Kind::kDict:
      return static_cast<int64_t>(value.as_dict().entries().size());
    case Kind::kUndefined:
      return 0;
    case Kind::kObject: {
      const auto length = value.as_object().Attribute(runtime, "length");
      if (value.type() == Type::kLoop && length) return length->as_int();
      return std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

Method MethodOf(const Value& object, const Methods& methods) {
  switch (object.kind()) {
    case Kind::kString:
      return methods.of_string;
    case Kind::kDict:
      return methods.of_dict;
    case Kind::kList:
      return IsIndexable(object.type()) ? methods.of_list : nullptr;
    default:
      return nullptr;
  }
}

Value GetAttribute(Runtime& runtime, const Value& object, const TextRef& name, const Methods& methods) {
  RequireDefined(object);
  if (auto attribute = MethodAttribute(runtime, object, name, methods)) return *std::move(attribute);
  if (object.is_dict()) {
    if (const Value* found = object.as_dict().Find(name->bytes()); found != nullptr) return *found;
  }
  return Value(Undefined{name, Undefined::Why::kAttribute, object.type()});
}

Value GetElement(Runtime& runtime, const Value& object, const Value& key) {
  RequireDefined(object);
  if (auto element = OwnElement(runtime, object, key)) return *std::move(element);
  if (key.is_string()) {
    auto attribute = MethodAttribute(runtime, object, key.text_ref(), FindMethods(key.as_view()));
    if (attribute) return *std::move(attribute);
  }
  return MissingElement(runtime, object, key);
}

Value GetSlice(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
               const Value& step) {
  RequireDefined(object);
  const bool list = object.is_list() && IsIndexable(object.type());
  if (!object.is_string() && !list) {
    Raise(fmt::format("'{}' object cannot be sliced", TypeName(object.type())));
  }
  const SliceBounds bounds = Clip(start, stop, step, *Length(runtime, object));
  runtime.budget().Step(1 + static_cast<uint64_t>(bounds.count) / 8);
  if (object.is_string()) return SliceString(runtime, object, bounds);
  const std::vector<Value>& items = object.as_list().items;
  const Charge charge(runtime.budget(), static_cast<size_t>(bounds.count) * sizeof(Value));
  std::vector<Value> part;
  part.reserve(static_cast<size_t>(bounds.count));
  for (int64_t i = 0; i < bounds.count; ++i) {
    part.push_back(items[static_cast<size_t>(bounds.start + i * bounds.step)]);
  }
  return runtime.MakeList(std::move(part), object.type());
}

Value GetPath(Runtime& runtime, const Value& object, const Value& path) {
  if (!path.is_string()) return GetElement(runtime, object, path);
  Value at = object;
  std::string_view rest = path.as_view();
  while (true) {
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    const auto index = part.starts_with('-') ? std::nullopt : api::ParseInteger<int64_t>(part);
    at = GetElement(runtime, at, index ? Value(*index) : runtime.MakeString(part));
    if (dot == std::string_view::npos) return at;
    rest.remove_prefix(dot + 1);
  }
}

}  // namespace quire::runner::jinja
