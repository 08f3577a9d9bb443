#include "server/registry/blob_pull.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "api/base/exceptions.h"
#include "api/base/mutex.h"
#include "server/registry/partial_blob.h"
#include "server/store/model_manifest.h"

namespace quire::server::registry {
namespace {

constexpr size_t kBlobsAtOnce = 4;
constexpr int kTries = 5;

bool MayPass(const api::Error& error) { return error.code == api::ErrorCode::kUnavailable; }

// One blob: what is missing of it, checked, and given its name.
class BlobPull {
 public:
  // `given_up`: another blob of the model has failed.
  BlobPull(const TransferJob& job, Session& session, const BlobSource& source,
           const std::atomic<bool>& given_up)
      : job_(job),
        session_(session),
        layer_(source.layer),
        source_(source),
        given_up_(given_up),
        status_("pulling " + source.name) {}

  StoreResult<void> Run() {
    ReportProgress(0);
    auto partial = Open();
    if (!partial) return std::unexpected(partial.error());
    if (!*partial) {  // somebody else has brought it meanwhile
      ReportProgress(layer_.size);
      return {};
    }
    for (int tried = 1;; ++tried) {
      auto fetched = Fetch(**partial);
      if (fetched) break;
      if (!MayPass(fetched.error()) || tried == kTries || ended()) return fetched;
      for (int i = 0; i < 5 * tried && !ended(); ++i) std::this_thread::sleep_for(kPause);
    }
    auto finished = (*partial)->Finish(layer_.blob);
    if (!finished) finished.error().message = fmt::format("{}: {}", source_.name, finished.error().message);
    return finished;
  }

 private:
  void ReportProgress(int64_t completed) {
    job_.transfer.Count(status_, DigestOf(layer_.blob), layer_.size, completed);
  }

  bool ended() const { return given_up_ || job_.transfer.cancelled(); }
  static std::unexpected<api::Error> Cancelled() {
    return api::Fail(api::ErrorCode::kCancelled, "cancelled");
  }

  // Nothing: the blob is there. Waits while another transfer brings it.
  StoreResult<std::optional<PartialBlob>> Open() {
    while (!ended()) {
      if (job_.store.HasBlob(layer_)) return std::nullopt;
      auto partial = job_.store.OpenPartial(layer_.blob);
      if (!partial) return std::unexpected(partial.error());
      if (*partial) return std::move(*partial);
      std::this_thread::sleep_for(kPause);
    }
    return Cancelled();
  }

  StoreResult<void> Fetch(PartialBlob& partial) {
    if (partial.size() > layer_.size) {
      if (auto emptied = partial.Truncate(); !emptied) return emptied;
    }
    if (partial.size() == layer_.size && layer_.size > 0) return {};
    Request request{.url = source_.url};
    const int64_t begin = partial.size();
    if (begin > 0) request.headers.push_back(fmt::format("Range: bytes={}-", begin));
    StoreResult<void> written;
    bool first = true;
    const auto sink = [&](const Reply& reply, std::string_view piece) {
      if (std::exchange(first, false) && !Continues(reply, begin)) written = partial.Truncate();
      if (written && partial.size() + static_cast<int64_t>(piece.size()) > layer_.size) {
        written = api::Fail(api::ErrorCode::kBadModel,
                            fmt::format("{}: larger than the manifest states", source_.name));
      }
      if (written && given_up_) written = Cancelled();
      if (written) written = partial.Append(piece);
      ReportProgress(partial.size());
      return written.has_value();
    };
    const auto reply = session_.Send(request, sink);
    if (!written) return written;
    if (!reply) return std::unexpected(reply.error());
    if (reply->status == 416) {
      if (auto emptied = partial.Truncate(); !emptied) return emptied;
      return Refused(job_.name.host, "the registry cannot resume the download", 416);
    }
    if (reply->status != 200 && reply->status != 206) {
      return Refused(job_.name.host, fmt::format("{} cannot be fetched", source_.name), reply->status);
    }
    if (partial.size() < layer_.size) {
      return api::Fail(api::ErrorCode::kUnavailable, fmt::format("{}: download incomplete", source_.name));
    }
    return {};
  }

  // Whether the answer begins where we stopped.
  static bool Continues(const Reply& reply, int64_t begin) {
    return begin == 0 || (reply.status == 206 &&
                          reply.Header("content-range").starts_with(fmt::format("bytes {}-", begin)));
  }

  const TransferJob& job_;
  Session& session_;
  const Layer& layer_;
  const BlobSource& source_;
  const std::atomic<bool>& given_up_;
  const std::string status_;
};

// Why the threads of a pull failed.
class Outcome {
 public:
  // That there is no room counts most: what was brought is in the way.
  void Add(StoreResult<void> failure) {
    const api::MutexLock lock(mutex_);
    if (result_ || IsOutOfRoom(failure.error())) result_ = std::move(failure);
  }
  StoreResult<void> Take() {
    const api::MutexLock lock(mutex_);
    return std::move(result_);
  }

 private:
  api::Mutex mutex_;
  StoreResult<void> result_ GUARDED_BY(mutex_);
};

}  // namespace

std::unexpected<api::Error> Refused(const std::string& host, std::string_view what, int status) {
  return api::Fail(status == 404 ? api::ErrorCode::kNotFound : api::ErrorCode::kUnavailable,
                   fmt::format("{}: {} (HTTP {})", host, what, status));
}

StoreResult<void> PullBlobs(const TransferJob& job, const std::vector<BlobSource>& blobs,
                            const std::function<std::unique_ptr<Session>()>& new_session) {
  std::atomic<size_t> next = 0;
  std::atomic<bool> given_up = false;
  Outcome outcome;
  const auto fail = [&](StoreResult<void> failure) {
    outcome.Add(std::move(failure));
    next = blobs.size();  // after the reason: whoever ends for this one has another
    given_up = true;
  };
  const auto work = [&] {
    try {
      const auto session = new_session();
      for (size_t i = next++; i < blobs.size(); i = next++) {
        auto fetched = BlobPull(job, *session, blobs[i], given_up).Run();
        if (!fetched) fail(std::move(fetched));
      }
    } catch (const std::exception& error) {
      fail(std::unexpected(api::ErrorOf(error)));
    }
  };
  std::vector<std::jthread> threads;
  try {
    for (size_t i = 1; i < std::min(kBlobsAtOnce, blobs.size()); ++i) threads.emplace_back(work);
  } catch (const std::system_error& error) {  // fewer do it too
    spdlog::warn("pulling with {} threads: {}", threads.size() + 1, error.what());
  }
  work();
  threads.clear();
  return outcome.Take();
}

std::vector<std::string> NamesOf(const std::vector<BlobSource>& sources) {
  std::vector<std::string> blobs;
  blobs.reserve(sources.size());
  for (const BlobSource& source : sources) blobs.push_back(source.layer.blob);
  return blobs;
}

}  // namespace quire::server::registry
