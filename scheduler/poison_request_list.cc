#include "scheduler/poison_request_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <concepts>
#include <string_view>
#include <type_traits>
#include <variant>

#include "api/ipc/message_fields.h"

namespace quire::scheduler {
namespace {

namespace ipc = api::ipc;
using ipc::VisitFields;

// Gives the bytes of all fields of a request to `sink`, each list and text behind its size, so that two requests that differ
// give different bytes.
template <class Sink>
class FieldBytes {
 public:
  explicit FieldBytes(Sink& sink) : sink_(sink) {}

  template <class T, class... Bounds>
  void operator()(std::string_view, const T& value, const Bounds&...) {
    Put(value);
  }
  template <class T>
  void IfAny(std::string_view, const T& value) {
    Put(value);
  }

  template <class T>
  void Put(const T& value) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      sink_.Add({reinterpret_cast<const char*>(&value), sizeof value});
    } else if constexpr (ipc::Text<T>) {
      Put(value.size());
      sink_.Add(value);
    } else if constexpr (ipc::Optional<T>) {
      Put(value.has_value());
      if (value) Put(*value);
    } else if constexpr (ipc::Variant<T>) {
      Put(value.index());
      std::visit([this](const auto& alternative) { Put(alternative); }, value);
    } else if constexpr (ipc::NumberList<T>) {
      Put(value.size());
      sink_.Add({reinterpret_cast<const char*>(value.data()), value.size() * sizeof(*value.data())});
    } else if constexpr (ipc::List<T>) {
      Put(value.size());
      for (const auto& element : value) Put(element);
    } else if constexpr (std::same_as<T, api::Client>) {
      Put(value.tenant);
      Put(value.cache_salt);
    } else {
      VisitFields(value, *this);
    }
  }

 private:
  Sink& sink_;
};

struct ByteCount {
  uint64_t count = 0;
  void Add(std::string_view bytes) { count += bytes.size(); }
};

uint64_t SizeOf(const api::Request& request) {
  ByteCount bytes;
  FieldBytes(bytes).Put(request);
  return bytes.count;
}

struct HashedBytes {
  api::Sha256 hash = {};
  void Add(std::string_view bytes) { hash.Update(bytes); }
};

api::Sha256::Digest DigestOf(const api::Request& request) {
  HashedBytes bytes;
  FieldBytes(bytes).Put(request);
  return bytes.hash.FinishBytes();
}

}  // namespace

std::vector<PoisonRequestList::Entry>::iterator PoisonRequestList::Find(const std::string& model_key,
                                                                        const api::Request& request) {
  const auto of_model = [&](const Entry& entry) { return entry.model_key == model_key; };
  if (std::ranges::none_of(entries_, of_model)) return entries_.end();
  const uint64_t size = SizeOf(request);
  const auto alike = [&](const Entry& entry) { return of_model(entry) && entry.size == size; };
  if (std::ranges::none_of(entries_, alike)) return entries_.end();
  const api::Sha256::Digest digest = DigestOf(request);
  return std::ranges::find_if(entries_,
                              [&](const Entry& entry) { return alike(entry) && entry.digest == digest; });
}

void PoisonRequestList::Remember(const std::string& model_key, const api::Request& request, Time now) {
  const Time until = now + kRetention;
  if (const auto found = Find(model_key, request); found != entries_.end()) {
    found->until = until;
    return;
  }
  entries_.push_back({model_key, SizeOf(request), DigestOf(request), until});
  if (entries_.size() > kEntriesMax) entries_.erase(std::ranges::min_element(entries_, {}, &Entry::until));
}

api::Result<void> PoisonRequestList::Check(const std::string& model_key, const api::Request& request,
                                           Time now) {
  std::erase_if(entries_, [now](const Entry& entry) { return entry.until <= now; });
  const auto found = Find(model_key, request);
  if (found == entries_.end()) return {};
  const auto left = std::chrono::ceil<std::chrono::seconds>(found->until - now);
  return api::Fail(
      api::ErrorCode::kRunnerDied,
      fmt::format("this request killed the model runner more than once; it is rejected for another {} s",
                  left.count()));
}

}  // namespace quire::scheduler
