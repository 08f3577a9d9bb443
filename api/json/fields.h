// Typed access to the members of a JSON object. The first error is kept and every later call does nothing, so
// that a parser reads straight through and looks at the error once at its end.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "api/json/type.h"

namespace quire::api {

// The first error of one parse; shared by all its Fields.
using FirstError = std::optional<Error>;

// The name of a member in error messages: `field "a.b" must be ...` or `option "b" must be ...`.
enum class Noun : uint8_t { kField, kOption };

// Whether an absent (or null) member is fine or an error.
enum class Absent : uint8_t { kAllowed, kError };

// A number without a fraction that fits 64 bits: 3, 3.0, 3e2. nullopt for everything else.
std::optional<int64_t> AsInteger(const Json& value);

class Fields {
 public:
  // `object` and `error` must outlive this. `path` names the object in messages ("options", "messages[3]"; ""
  // = the body). A value that is not an object is an error at once.
  Fields(const Json& object, std::string path, FirstError& error, Noun noun = Noun::kField,
         Absent absent = Absent::kAllowed);

  // The member, matched exactly or else without regard to case; nullptr when absent, null, or after an error.
  const Json* Find(std::string_view name);
  // Whether Find() would find it; an absent member is no error.
  bool Has(std::string_view name) const { return Search(name) != nullptr; }
  // As Find(), for a member that must be an array (an object).
  const Json* FindArray(std::string_view name);
  const Json* FindObject(std::string_view name);

  // Each leaves `out` alone and gives false when the member is absent or an error was met.
  bool Get(std::string_view name, bool& out);
  bool Get(std::string_view name, std::string& out);
  // The same with the text moved out of the value (TakeText): it can be had once.
  bool Take(std::string_view name, std::string& out);
  bool Get(std::string_view name, int32_t& out, int32_t min = std::numeric_limits<int32_t>::min(),
           int32_t max = std::numeric_limits<int32_t>::max());
  bool Get(std::string_view name, int64_t& out, int64_t min = std::numeric_limits<int64_t>::min(),
           int64_t max = std::numeric_limits<int64_t>::max());
  bool Get(std::string_view name, uint64_t& out);
  // Within float's range, and finite unless a bound is infinite.
  bool Get(std::string_view name, float& out, float min = std::numeric_limits<float>::lowest(),
           float max = std::numeric_limits<float>::max());
  template <class T, class... Range>
  bool Get(std::string_view name, std::optional<T>& out, Range... range) {
    T value{};
    if (!Get(name, value, range...)) return false;
    out = std::move(value);
    return true;
  }

  // Visits the names of the members that nothing above looked up, until `visit` gives false.
  void VisitUnread(const std::function<bool(std::string_view name)>& visit) const;
  // Adds these names, up to 16 in all, for the log; without `harmless`, which are known to change no answer.
  // REQUIRES: all other members were read.
  void AddUnread(std::span<const std::string_view> harmless, std::vector<std::string>& unknown) const;

  // Full path of a member: "options.num_ctx", "messages[3].content".
  std::string PathOf(std::string_view name) const;
  bool ok() const { return !error_.has_value(); }
  FirstError& error() { return error_; }

  // Records the error unless there is one; `message` starts after the member's name: "must be of type
  // integer".
  void Reject(std::string_view name, std::string_view message, ErrorCode code = ErrorCode::kInvalidArgument);

 private:
  const Json* Search(std::string_view name) const;
  size_t PositionOf(std::string_view name) const;  // of the member; their number: there is none
  void BuildIndex() const;
  const Json* FindAs(std::string_view name, bool array);
  const Json* FindText(std::string_view name);
  std::optional<int64_t> Integer(std::string_view name, int64_t min, int64_t max);

  const Json* object_ = nullptr;    // nullptr when the value is not an object
  mutable std::vector<bool> read_;  // of each member, in their order; empty: none
  // For an object with many members: where each bucket of names begins, then all positions, bucket after
  // bucket. Empty: it is not needed, or not yet. Requests look up many names that they do not have.
  mutable std::vector<uint32_t> index_;
  std::string path_;
  FirstError& error_;
  Noun noun_;
  Absent absent_;
};

}  // namespace quire::api
