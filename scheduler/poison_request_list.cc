#include "scheduler/poison_request_list.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/base/ids.h"
#include "api/ipc/messages.h"

namespace quire::scheduler {
namespace {

// Whole, not a hash: another request must never be refused for it.
std::string FingerprintOf(const std::string& model_key, const api::Request& request) {
  return model_key + api::ipc::Encode(api::ipc::ToRunner(api::ipc::Submit{api::RequestId{0}, request}));
}

}  // namespace

void PoisonRequestList::Remember(const std::string& model_key, const api::Request& request, Time now) {
  until_[FingerprintOf(model_key, request)] = now + kRetention;
  if (until_.size() <= kEntriesMax) return;
  until_.erase(std::ranges::min_element(until_, {}, [](const auto& entry) { return entry.second; }));
}

api::Result<void> PoisonRequestList::Check(const std::string& model_key, const api::Request& request,
                                           Time now) {
  std::erase_if(until_, [now](const auto& entry) { return entry.second <= now; });
  if (until_.empty()) return {};
  const auto found = until_.find(FingerprintOf(model_key, request));
  if (found == until_.end()) return {};
  const auto left = std::chrono::ceil<std::chrono::seconds>(found->second - now);
  return api::Fail(
      api::ErrorCode::kRunnerDied,
      fmt::format("this request killed the model runner more than once; it is rejected for another {} s",
                  left.count()));
}

}  // namespace quire::scheduler
