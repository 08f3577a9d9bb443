// A model from a registry into the store: its manifest, then each blob that is not there, then the name.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/base/mutex.h"
#include "server/registry/partial_blob.h"
#include "server/registry/transfer.h"
#include "server/store/layout.h"
#include "server/store/model_manifest.h"

namespace quire::server::registry {
namespace {

constexpr size_t kBlobsAtOnce = 4;
constexpr int kTries = 5;
constexpr int kRounds = 3;

std::string DigestOf(const Layer& layer) { return "sha256:" + layer.blob.substr(layer.blob.find('-') + 1); }

std::unexpected<api::Error> Refused(const std::string& host, std::string_view what, int status) {
  return api::Fail(status == 404 ? api::ErrorCode::kNotFound : api::ErrorCode::kUnavailable,
                   fmt::format("{}: {} (HTTP {})", host, what, status));
}

bool MayPass(const api::Error& error) { return error.code == api::ErrorCode::kUnavailable; }

// One blob: what is missing of it, checked, and given its name.
class BlobPull {
 public:
  // `given_up`: another blob of the model has failed.
  BlobPull(const TransferJob& job, Session& session, const Layer& layer, const std::atomic<bool>& given_up)
      : job_(job),
        session_(session),
        layer_(layer),
        given_up_(given_up),
        status_(fmt::format("pulling {}", layer.blob.substr(layer.blob.find('-') + 1, 12))) {}

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
    return (*partial)->Finish(layer_.blob);
  }

 private:
  void ReportProgress(int64_t completed) {
    job_.transfer.Count(status_, DigestOf(layer_), layer_.size, completed);
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
    Request request{.url = session_.UrlOf("blobs/" + DigestOf(layer_))};
    const int64_t begin = partial.size();
    if (begin > 0) request.headers.push_back(fmt::format("Range: bytes={}-", begin));
    StoreResult<void> written;
    bool first = true;
    const auto sink = [&](const Reply& reply, std::string_view piece) {
      if (std::exchange(first, false) && !Continues(reply, begin)) written = partial.Truncate();
      if (written && partial.size() + static_cast<int64_t>(piece.size()) > layer_.size) {
        written = api::Fail(api::ErrorCode::kBadModel,
                            fmt::format("{}: larger than the manifest states", DigestOf(layer_)));
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
      return Refused(job_.name.host, fmt::format("blob {} not found", DigestOf(layer_)), reply->status);
    }
    if (partial.size() < layer_.size) {
      return api::Fail(api::ErrorCode::kUnavailable,
                       fmt::format("{}: download incomplete", DigestOf(layer_)));
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
  const std::atomic<bool>& given_up_;
  const std::string status_;
};

class ModelPull {
 public:
  explicit ModelPull(const TransferJob& job) : job_(job) {}

  api::Result<void> Run() {
    job_.transfer.SetStatus("pulling manifest");
    auto text = FetchManifest();
    if (!text) return std::unexpected(text.error());
    const auto manifest = ParseManifest(*text);
    if (!manifest) {
      return api::Fail(api::ErrorCode::kBadModel,
                       fmt::format("{}: invalid manifest: {}", job_.name.host, manifest.error().message));
    }
    const auto needed = Needed(*manifest);
    auto entered = Enter(needed, *text);
    // A model that does not fit leaves the disk as it was: its blobs would be in the way of the next try too.
    if (!entered && IsOutOfRoom(entered.error())) job_.store.RemoveUnnamed(BlobsOf(needed));
    return entered;
  }

 private:
  // The blobs into the store, then the name.
  StoreResult<void> Enter(const std::vector<Layer>& needed, const std::string& text) {
    BlobUsers::Lease lease(job_.store.users());  // whatever else ends meanwhile
    for (const Layer& layer : needed) lease.Add(layer.blob);
    // A blob that was there may go with the last other model that used it, until the name stands.
    for (int round = 1;; ++round) {
      if (auto fetched = FetchAll(needed); !fetched) return fetched;
      job_.transfer.SetStatus("verifying sha256 digest");
      job_.transfer.SetStatus("writing manifest");
      auto entered = job_.store.RegisterManifest(job_.name, text);
      if (entered || entered.error().code != api::ErrorCode::kNotFound || round == kRounds) return entered;
    }
  }

  Session NewSession() const {
    return {job_.settings, job_.policy, job_.name, job_.insecure, false, job_.transfer.cancelled()};
  }

  api::Result<std::string> FetchManifest() {
    Session session = NewSession();
    Request request{.url = session.UrlOf("manifests/" + job_.name.tag),
                    .headers = {"Accept: application/vnd.docker.distribution.manifest.v2+json, "
                                "application/vnd.oci.image.manifest.v1+json"}};
    auto reply = session.Send(request);
    if (!reply) return std::unexpected(reply.error());
    if (reply->status == 404) {
      return api::Fail(api::ErrorCode::kNotFound, "pull model manifest: file does not exist");
    }
    if (reply->status != 200) return Refused(job_.name.host, "pull model manifest", reply->status);
    if (static_cast<int64_t>(reply->body.size()) > kManifestBytesMax) {
      return api::Fail(api::ErrorCode::kBadModel, "pull model manifest: too long");
    }
    return std::move(reply->body);
  }

  // Each blob once, the large ones first.
  static std::vector<Layer> Needed(const Manifest& manifest) {
    std::vector<Layer> layers = manifest.layers;
    layers.push_back(manifest.config);
    std::set<std::string> seen;
    std::erase_if(layers, [&seen](const Layer& layer) { return !seen.insert(layer.blob).second; });
    std::ranges::stable_sort(layers, std::ranges::greater(), &Layer::size);
    return layers;
  }

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

  StoreResult<void> FetchAll(const std::vector<Layer>& layers) const {
    std::atomic<size_t> next = 0;
    std::atomic<bool> given_up = false;
    Outcome outcome;
    const auto fail = [&](StoreResult<void> failure) {
      outcome.Add(std::move(failure));
      next = layers.size();  // after the reason: whoever ends for this one has another
      given_up = true;
    };
    const auto work = [&] {
      try {
        Session session = NewSession();
        for (size_t i = next++; i < layers.size(); i = next++) {
          auto fetched = BlobPull(job_, session, layers[i], given_up).Run();
          if (!fetched) fail(std::move(fetched));
        }
      } catch (const std::exception& error) {
        fail(api::Fail(api::ErrorCode::kInternal, error.what()));
      }
    };
    std::vector<std::jthread> threads;
    try {
      for (size_t i = 1; i < std::min(kBlobsAtOnce, layers.size()); ++i) threads.emplace_back(work);
    } catch (const std::exception& error) {  // fewer do it too
      spdlog::warn("pulling with {} threads: {}", threads.size() + 1, error.what());
    }
    work();
    threads.clear();
    return outcome.Take();
  }

  static std::vector<std::string> BlobsOf(const std::vector<Layer>& layers) {
    std::vector<std::string> blobs;
    blobs.reserve(layers.size());
    for (const Layer& layer : layers) blobs.push_back(layer.blob);
    return blobs;
  }

  const TransferJob& job_;
};

}  // namespace

api::Result<void> Pull(const TransferJob& job) { return ModelPull(job).Run(); }

}  // namespace quire::server::registry
