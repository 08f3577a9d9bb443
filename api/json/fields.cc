#include "api/json/fields.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/base/ascii.h"
#include "api/json/text.h"

namespace quire::api {
namespace {

constexpr double kTwoTo63 = 9223372036854775808.0;
constexpr size_t kScannedMax = 32;  // members: a few are searched faster than an index is made
constexpr size_t kBuckets = 256;

// The same for names that differ in case only. What a client can put into one bucket is of use against the
// few names that we look up there.
size_t BucketOf(std::string_view name) {
  if (name.empty()) return 0;
  const auto letter = [](char c) { return static_cast<size_t>(static_cast<unsigned char>(AsciiLower(c))); };
  return (name.size() * 37 + letter(name.front()) * 5 + letter(name.back()) * 11) % kBuckets;
}

// Where an integral number that no int64_t holds lies.
bool IsIntegral(const Json& value) {
  if (value.is_number_integer()) return true;
  if (!value.is_number_float()) return false;
  const double number = value.get<double>();
  return std::isfinite(number) && std::trunc(number) == number;
}

}  // namespace

std::optional<int64_t> AsInteger(const Json& value) {
  if (const auto* number = value.get_ptr<const Json::number_unsigned_t*>()) {
    if (*number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(*number);
  }
  if (const auto* number = value.get_ptr<const Json::number_integer_t*>()) return *number;
  if (const auto* number = value.get_ptr<const Json::number_float_t*>()) {
    if (!IsIntegral(value) || *number < -kTwoTo63 || *number >= kTwoTo63) return std::nullopt;
    return static_cast<int64_t>(*number);
  }
  return std::nullopt;
}

Fields::Fields(const Json& object, std::string path, FirstError& error, Noun noun, Absent absent)
    : path_(std::move(path)), error_(error), noun_(noun), absent_(absent) {
  if (object.is_object()) {
    object_ = &object;
  } else if (path_.empty()) {
    if (!error_) error_ = Error{ErrorCode::kInvalidArgument, "request body must be a JSON object"};
  } else if (!error_) {
    error_ =
        Error{ErrorCode::kInvalidArgument, fmt::format("field \"{}\" must be of type object", path_), path_};
  }
}

const Json* Fields::Search(std::string_view name) const {
  if (!ok() || object_ == nullptr) return nullptr;
  const auto& members = object_->get_ref<const Json::object_t&>();
  const size_t found = PositionOf(name);
  if (found == members.size()) return nullptr;
  if (read_.empty()) read_.resize(members.size());
  read_[found] = true;
  const Json& value = members.data()[found].second;
  return value.is_null() ? nullptr : &value;
}

size_t Fields::PositionOf(std::string_view name) const {
  const auto& members = object_->get_ref<const Json::object_t&>();
  size_t found = members.size();
  const auto is_it = [&](size_t at) {                      // the exact name; else the last of the others
    const std::string& member = members.data()[at].first;  // not [at], which takes a name
    if (EqualIgnoringCase(member, name)) found = at;
    return member == name;
  };
  if (members.size() <= kScannedMax) {
    for (size_t at = 0; at < members.size() && !is_it(at); ++at) {
    }
    return found;
  }
  if (index_.empty()) BuildIndex();
  const size_t bucket = BucketOf(name);
  for (size_t i = index_[bucket]; i < index_[bucket + 1] && !is_it(index_[i]); ++i) {
  }
  return found;
}

void Fields::BuildIndex() const {
  const auto& members = object_->get_ref<const Json::object_t&>();
  index_.assign(kBuckets + 1 + members.size(), 0);
  for (const auto& member : members) ++index_[BucketOf(member.first) + 1];
  index_[0] = kBuckets + 1;
  for (size_t bucket = 0; bucket < kBuckets; ++bucket) index_[bucket + 1] += index_[bucket];
  std::vector<uint32_t> next(index_.begin(), index_.begin() + kBuckets);
  uint32_t at = 0;
  for (const auto& member : members) index_[next[BucketOf(member.first)]++] = at++;
}

void Fields::VisitUnread(const std::function<bool(std::string_view name)>& visit) const {
  if (object_ == nullptr) return;
  size_t at = 0;
  for (const auto& [name, unused] : object_->get_ref<const Json::object_t&>()) {
    const bool read = !read_.empty() && read_[at];
    if (!read && !visit(name)) return;
    ++at;
  }
}

void Fields::AddUnread(std::span<const std::string_view> harmless, std::vector<std::string>& unknown) const {
  constexpr size_t kUnreadMax = 16;
  VisitUnread([&](std::string_view name) {
    if (unknown.size() >= kUnreadMax) return false;
    if (std::ranges::find(harmless, name) == harmless.end()) unknown.emplace_back(name);
    return true;
  });
}

const Json* Fields::Find(std::string_view name) {
  const Json* found = Search(name);
  if (found == nullptr && object_ != nullptr && absent_ == Absent::kError) Reject(name, "is missing");
  return found;
}

const Json* Fields::FindAs(std::string_view name, bool array) {
  const Json* value = Find(name);
  if (value == nullptr || (array ? value->is_array() : value->is_object())) return value;
  Reject(name, array ? "must be of type array" : "must be of type object");
  return nullptr;
}

const Json* Fields::FindArray(std::string_view name) { return FindAs(name, true); }

const Json* Fields::FindObject(std::string_view name) { return FindAs(name, false); }

bool Fields::Get(std::string_view name, bool& out) {
  const Json* value = Find(name);
  if (value == nullptr) return false;
  if (!value->is_boolean()) {
    Reject(name, "must be of type boolean");
    return false;
  }
  out = value->get<bool>();
  return true;
}

const Json* Fields::FindText(std::string_view name) {
  const Json* value = Find(name);
  if (value == nullptr || value->is_string()) return value;
  Reject(name, "must be of type string");
  return nullptr;
}

bool Fields::Get(std::string_view name, std::string& out) {
  const Json* value = FindText(name);
  if (value != nullptr) out = value->get_ref<const std::string&>();
  return value != nullptr;
}

bool Fields::Take(std::string_view name, std::string& out) {
  const Json* value = FindText(name);
  if (value != nullptr) out = TakeText(*value);
  return value != nullptr;
}

std::optional<int64_t> Fields::Integer(std::string_view name, int64_t min, int64_t max) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (!IsIntegral(*value)) {
    Reject(name, "must be of type integer");
    return std::nullopt;
  }
  const auto number = AsInteger(*value);
  if (!number || *number < min || *number > max) {
    Reject(name, fmt::format("must be from {} to {}", min, max));
    return std::nullopt;
  }
  return number;
}

bool Fields::Get(std::string_view name, int32_t& out, int32_t min, int32_t max) {
  const auto number = Integer(name, min, max);
  if (number) out = static_cast<int32_t>(*number);
  return number.has_value();
}

bool Fields::Get(std::string_view name, int64_t& out, int64_t min, int64_t max) {
  const auto number = Integer(name, min, max);
  if (number) out = *number;
  return number.has_value();
}

bool Fields::Get(std::string_view name, uint64_t& out) {
  const Json* value = Find(name);
  if (value == nullptr) return false;
  if (!value->is_number_unsigned()) {
    Reject(name, "must be a non-negative integer");
    return false;
  }
  out = value->get<uint64_t>();
  return true;
}

bool Fields::Get(std::string_view name, float& out, float min, float max) {
  const Json* value = Find(name);
  if (value == nullptr) return false;
  if (!value->is_number()) {
    Reject(name, "must be of type number");
    return false;
  }
  const double number = value->get<double>();
  // Written so that NaN, which MessagePack can carry, is refused too.
  const bool is_float = std::isinf(number) || std::abs(number) <= double{std::numeric_limits<float>::max()};
  if (!(is_float && number >= static_cast<double>(min) && number <= static_cast<double>(max))) {
    Reject(name, fmt::format("must be from {:g} to {:g}", min, max));
    return false;
  }
  out = static_cast<float>(number);
  return true;
}

std::string Fields::PathOf(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

void Fields::Reject(std::string_view name, std::string_view message, ErrorCode code) {
  if (error_) return;
  const std::string path = PathOf(name);
  error_ = Error{code,
                 noun_ == Noun::kOption ? fmt::format("option \"{}\" {}", name, message)
                                        : fmt::format("field \"{}\" {}", path, message),
                 path};
}

}  // namespace quire::api
