#include "server/trace_exporter.h"

#include <fmt/format.h>
#include <pthread.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "server/registry/http.h"

namespace quire::server {
namespace {

constexpr size_t kBatchMax = 256;
constexpr size_t kReplyBytesMax = size_t{64} << 10;
constexpr std::chrono::seconds kBatchTime(1);
constexpr std::chrono::seconds kLastBatch(1);

// The operator names the collector: it may have any address, and speak HTTP.
std::vector<std::string> TrustedHost(const std::string& url) {
  const auto origin = registry::OriginOf(url);
  if (!origin) return {};
  return {origin->host, fmt::format("{}:{}", origin->host, origin->port)};
}

}  // namespace

TraceExporter::TraceExporter(const std::string& endpoint, std::string instance,
                             std::chrono::milliseconds time_max)
    : url_(endpoint + (endpoint.ends_with('/') ? "v1/traces" : "/v1/traces")),
      instance_(std::move(instance)),
      time_max_(time_max),
      thread_([this] {
        pthread_setname_np(pthread_self(), "quire-traces");
        Run();
      }) {}

TraceExporter::~TraceExporter() {
  {
    api::UniqueLock lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
    wake_.wait_for(lock, kLastBatch, [this]() REQUIRES(mutex_) { return ended_; });
  }
  aborted_ = true;
  thread_.join();
}

void TraceExporter::Observe(const RequestLog& log) {
  auto trace = TraceOf(log, std::chrono::steady_clock::now(), std::chrono::system_clock::now());
  if (trace) Export(*std::move(trace));
}

void TraceExporter::Export(RequestTrace trace) {
  const api::MutexLock lock(mutex_);
  if (waiting_.size() >= kTracesMax) {
    ++dropped_;
    return;
  }
  waiting_.push_back(std::move(trace));
  if (waiting_.size() >= kBatchMax) wake_.notify_all();
}

void TraceExporter::Run() {
  api::UniqueLock lock(mutex_);
  while (!stopping_ || !waiting_.empty()) {
    if (!stopping_)
      wake_.wait_for(lock, kBatchTime,
                     [this]() REQUIRES(mutex_) { return stopping_ || waiting_.size() >= kBatchMax; });
    if (waiting_.empty()) continue;
    std::vector<RequestTrace> batch;
    const size_t count = std::min(waiting_.size(), kBatchMax);
    batch.reserve(count);
    std::move(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(count),
              std::back_inserter(batch));
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(count));
    lock.unlock();
    const bool posted = Post(batch);
    (posted ? sent_ : dropped_) += count;
    lock.lock();
    if (stopping_ && !posted) break;
  }
  ended_ = true;
  wake_.notify_all();
}

// One line in the log when it begins to fail, and one when it works again.
bool TraceExporter::Post(const std::vector<RequestTrace>& traces) {
  const registry::AddressPolicy policy(TrustedHost(url_));
  registry::Http http(policy, aborted_);
  const registry::Request request{.method = "POST",
                                  .url = url_,
                                  .headers = {"Content-Type: application/json"},
                                  .body = EncodeTraces(traces, instance_),
                                  .time_max = time_max_,
                                  .reply_bytes_max = kReplyBytesMax};
  const auto reply = http.Exchange(request);
  const bool taken = reply && reply->status >= 200 && reply->status < 300;
  if (!taken && !failed_) {
    spdlog::warn("traces: the collector takes none url={} error=\"{}\"", url_,
                 reply ? fmt::format("HTTP {}", reply->status) : reply.error().message);
  }
  if (taken && failed_) spdlog::info("traces: the collector takes them again");
  failed_ = !taken;
  return taken;
}

}  // namespace quire::server
