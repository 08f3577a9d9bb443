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

// Gives the bytes of all fields of a request to `sink`, each list and text behind its size, so that two
// requests that differ give different bytes. A sink of outlines gets no text, and of a list its ends only;
// one that is full gets no more elements.
template <class Sink>
class FieldBytes {
 public:
  explicit FieldBytes(Sink& sink) : sink_(sink) {}

  template <class T, class... Bounds>
  void operator()(std::string_view name, const T& value, const Bounds&...) {
    if (name != "now_s") Put(value);  // the same request at another time
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
      if constexpr (!Sink::kOutline) sink_.Add(value);
    } else if constexpr (ipc::Optional<T>) {
      Put(value.has_value());
      if (value) Put(*value);
    } else if constexpr (ipc::Variant<T>) {
      Put(value.index());
      std::visit([this](const auto& alternative) { Put(alternative); }, value);
    } else if constexpr (ipc::NumberList<T>) {
      Put(value.size());
      if constexpr (!Sink::kOutline)
        sink_.Add({reinterpret_cast<const char*>(value.data()), value.size() * sizeof(*value.data())});
    } else if constexpr (ipc::List<T>) {
      Put(value.size());
      PutElements(value);
    } else if constexpr (std::same_as<T, api::Client>) {
      Put(value.tenant);
      Put(value.cache_salt);
    } else {
      VisitFields(value, *this);
    }
  }

 private:
  template <class T>
  void PutElements(const T& list) {
    if constexpr (Sink::kOutline) {
      if (list.empty()) return;
      Put(list.front());
      Put(list.back());
    } else {
      for (const auto& element : list) {
        if (sink_.full()) return;
        Put(element);
      }
    }
  }

  Sink& sink_;
};

struct ByteCount {
  static constexpr bool kOutline = false;
  static constexpr uint64_t kEnough = uint64_t{64} << 10;  // take 0.2 ms to hash
  uint64_t count = 0;
  void Add(std::string_view bytes) { count += bytes.size(); }
  bool full() const { return count > kEnough; }
};

struct HashedBytes {
  static constexpr bool kOutline = false;
  api::Sha256 hash = {};
  void Add(std::string_view bytes) { hash.Update(bytes); }
  static bool full() { return false; }
};

// FNV-1a.
struct OutlineHash {
  static constexpr bool kOutline = true;
  uint64_t hash = 0xcbf29ce484222325;
  void Add(std::string_view bytes) {
    for (const char byte : bytes) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  }
};

uint64_t OutlineOf(const api::Request& request) {
  OutlineHash outline;
  FieldBytes(outline).Put(request);
  return outline.hash;
}

}  // namespace

RequestFingerprint FingerprintOf(const api::Request& request) {
  HashedBytes bytes;
  FieldBytes(bytes).Put(request);
  return {OutlineOf(request), bytes.hash.FinishBytes()};
}

bool IsSlowToHash(const api::Request& request) {
  ByteCount bytes;
  FieldBytes(bytes).Put(request);
  return bytes.full();
}

std::vector<PoisonRequestList::Entry>::iterator PoisonRequestList::Find(
    const std::string& model_key, const RequestFingerprint& fingerprint) {
  return std::ranges::find_if(entries_, [&](const Entry& entry) {
    return entry.fingerprint == fingerprint && entry.model_key == model_key;
  });
}

void PoisonRequestList::Remember(const std::string& model_key, const RequestFingerprint& fingerprint,
                                 Time now) {
  const Time until = now + kRetention;
  if (const auto found = Find(model_key, fingerprint); found != entries_.end()) {
    found->until = until;
    return;
  }
  const RequestFingerprint announced{fingerprint.outline, {}};
  if (const auto found = Find(model_key, announced); found != entries_.end()) entries_.erase(found);
  entries_.push_back({model_key, fingerprint, until});
  if (entries_.size() > kEntriesMax) entries_.erase(std::ranges::min_element(entries_, {}, &Entry::until));
}

// An entry without a digest: it matches no request.
void PoisonRequestList::Announce(const std::string& model_key, const api::Request& request, Time now) {
  Remember(model_key, {OutlineOf(request), {}}, now);
}

bool PoisonRequestList::MayHave(const std::string& model_key, const api::Request& request) const {
  if (std::ranges::find(entries_, model_key, &Entry::model_key) == entries_.end()) return false;
  const uint64_t outline = OutlineOf(request);
  return std::ranges::any_of(entries_, [&](const Entry& entry) {
    return entry.fingerprint.outline == outline && entry.model_key == model_key;
  });
}

api::Result<void> PoisonRequestList::Check(const std::string& model_key,
                                           const RequestFingerprint& fingerprint, Time now) {
  std::erase_if(entries_, [now](const Entry& entry) { return entry.until <= now; });
  const auto found = Find(model_key, fingerprint);
  if (found == entries_.end()) return {};
  const auto left = std::chrono::ceil<std::chrono::seconds>(found->until - now);
  return api::Fail(
      api::ErrorCode::kRunnerDied,
      fmt::format("this request killed the model runner more than once; it is rejected for another {} s",
                  left.count()));
}

}  // namespace quire::scheduler
