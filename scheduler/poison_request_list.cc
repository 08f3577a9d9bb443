#include "scheduler/poison_request_list.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <concepts>
#include <memory>
#include <new>
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

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    if (context_ == nullptr || EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) != 1)
      throw std::bad_alloc();
  }
  // Short pieces are collected: a call of the library costs more than they do.
  void Add(std::string_view bytes) {
    if (bytes.size() > buffer_.size() - used_) Flush();
    if (bytes.size() > buffer_.size()) {
      EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size());
    } else {
      std::ranges::copy(bytes, buffer_.begin() + static_cast<std::ptrdiff_t>(used_));
      used_ += bytes.size();
    }
  }
  void Finish(unsigned char* digest) {
    Flush();
    EVP_DigestFinal_ex(context_.get(), digest, nullptr);
  }

 private:
  void Flush() {
    EVP_DigestUpdate(context_.get(), buffer_.data(), used_);
    used_ = 0;
  }

  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
  std::array<char, 4096> buffer_;
  size_t used_ = 0;
};

}  // namespace

PoisonRequestList::Digest PoisonRequestList::DigestOf(const api::Request& request) {
  Sha256 hash;
  FieldBytes(hash).Put(request);
  Digest digest;
  hash.Finish(digest.data());
  return digest;
}

std::vector<PoisonRequestList::Entry>::iterator PoisonRequestList::Find(const std::string& model_key,
                                                                        const api::Request& request) {
  const auto of_model = [&](const Entry& entry) { return entry.model_key == model_key; };
  if (std::ranges::none_of(entries_, of_model)) return entries_.end();
  const uint64_t size = SizeOf(request);
  const auto alike = [&](const Entry& entry) { return of_model(entry) && entry.size == size; };
  if (std::ranges::none_of(entries_, alike)) return entries_.end();
  const Digest digest = DigestOf(request);
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
