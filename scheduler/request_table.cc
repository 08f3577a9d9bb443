#include "scheduler/request_table.h"

#include <algorithm>

#include "api/base/request_memory.h"
#include "api/base/text_bounds.h"
#include "scheduler/clock.h"

namespace quire::scheduler {

RequestSize SizeOf(const api::Request& request) {
  constexpr size_t kRequestBytes = 1024;  // beside its texts
  const size_t format = request.format ? request.format->text.size() : 0;
  const size_t texts = api::TextBytes(request.prompt);
  return {
      .texts = texts,
      .frame = kRequestBytes + texts + api::ImageBytes(request.prompt) + request.go_template.size() + format};
}

void PendingRequest::Answer(api::Result<std::unique_ptr<TokenStream>> result) {
  waited = Clock::now() - arrived;
  answer = std::move(result);
  answered.Notify();
}

PendingRequest* RequestTable::FindPending(api::RequestId id) const {
  const auto found = pending.find(id);
  return found == pending.end() ? nullptr : found->second.get();
}

RunningRequest* RequestTable::FindRunning(api::RequestId id) {
  const auto found = running.find(id);
  return found == running.end() ? nullptr : &found->second;
}

const ModelSpec* RequestTable::SpecOf(api::RequestId id) {
  if (const PendingRequest* waiter = FindPending(id)) return &waiter->spec;
  const RunningRequest* request = FindRunning(id);
  return request == nullptr ? nullptr : &request->spec;
}

int32_t RequestTable::ContextNeeded(const std::string& key) const {
  int32_t needed = 0;
  for (const auto& [id, request] : running) {
    if (request.spec.key == key && request.stream->times.spent()) needed = std::max(needed, request.context);
  }
  return needed;
}

void RequestTable::Refuse(api::RequestId id, const api::Error& error) {
  if (auto entry = pending.extract(id)) entry.mapped()->Answer(std::unexpected(error));
}

std::string RequestTable::CheckInvariants() const {
  for (const auto& [id, waiter] : pending) {
    if (running.contains(id)) return "a request is pending and running";
    if (waiter->answer) return "a request has its answer and is still pending";
  }
  return "";
}

}  // namespace quire::scheduler
