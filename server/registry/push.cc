// A model of the store to a registry: each blob that is not there, then its manifest.
#include <fmt/format.h>

#include <chrono>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "server/model_manifest.h"
#include "server/registry/transfer.h"

namespace quire::server::registry {
namespace {

constexpr int kTries = 4;
constexpr auto kPause = std::chrono::milliseconds(100);

std::string HexOf(const Layer& layer) { return layer.blob.substr(layer.blob.find('-') + 1); }

std::unexpected<api::Error> Refused(const std::string& host, std::string_view what, const Reply& reply) {
  const bool denied = reply.status == 401 || reply.status == 403;
  return api::Fail(denied ? api::ErrorCode::kForbidden : api::ErrorCode::kUnavailable,
                   fmt::format("{}: {} (HTTP {})", host, what, reply.status));
}

class ModelPush {
 public:
  explicit ModelPush(const TransferJob& job)
      : job_(job),
        session_(job.settings, job.policy, job.name, job.insecure, true, job.transfer.cancelled()) {}

  api::Result<void> Run() {
    job_.transfer.Say("retrieving manifest");
    const auto text = job_.store.ReadManifest(job_.name);
    if (!text) return std::unexpected(text.error());
    const auto manifest = ParseManifest(*text);
    if (!manifest) return std::unexpected(manifest.error());
    std::set<std::string> done;
    for (const Layer& layer : manifest->layers) {
      if (!done.insert(layer.blob).second) continue;
      if (auto pushed = PushBlob(layer); !pushed) return pushed;
    }
    if (done.insert(manifest->config.blob).second) {
      if (auto pushed = PushBlob(manifest->config); !pushed) return pushed;
    }
    job_.transfer.Say("pushing manifest");
    Request request{.method = "PUT",
                    .url = session_.UrlOf("manifests/" + job_.name.tag),
                    .headers = {"Content-Type: application/vnd.docker.distribution.manifest.v2+json"},
                    .body = *text};
    const auto reply = session_.Send(request);
    if (!reply) return std::unexpected(reply.error());
    if (reply->status / 100 != 2) return Refused(job_.name.host, "the manifest is not taken", *reply);
    return {};
  }

 private:
  api::Result<void> PushBlob(const Layer& layer) {
    for (int tried = 1;; ++tried) {
      auto pushed = TryBlob(layer);
      const bool again = !pushed && pushed.error().code == api::ErrorCode::kUnavailable && tried < kTries &&
                         !job_.transfer.cancelled();
      if (!again) return pushed;
      for (int i = 0; i < 5 * tried && !job_.transfer.cancelled(); ++i) std::this_thread::sleep_for(kPause);
    }
  }

  api::Result<void> TryBlob(const Layer& layer) {
    const std::string status = fmt::format("pushing {}", HexOf(layer).substr(0, 12));
    const std::string digest = "sha256:" + HexOf(layer);
    const auto tell = [&](int64_t sent) { job_.transfer.Count(status, digest, layer.size, sent); };
    tell(0);
    const auto there = session_.Send({.method = "HEAD", .url = session_.UrlOf("blobs/" + digest)});
    if (!there) return std::unexpected(there.error());
    if (there->status == 200) {
      tell(layer.size);
      return {};
    }
    const auto file = job_.store.OpenBlob(layer);
    if (!file) return std::unexpected(file.error());
    const std::string begin = session_.UrlOf("blobs/uploads/");
    const auto begun = session_.Send({.method = "POST", .url = begin});
    if (!begun) return std::unexpected(begun.error());
    if (begun->status != 202) return Refused(job_.name.host, "the registry takes no blobs", *begun);
    auto url = Resolve(begin, begun->Header("location"));
    if (!url) return std::unexpected(url.error());
    *url += fmt::format("{}digest=sha256%3A{}", url->contains('?') ? "&" : "?", HexOf(layer));
    Request request{.method = "PUT",
                    .url = *std::move(url),
                    .headers = {"Content-Type: application/octet-stream"},
                    .body_fd = file->get(),
                    .body_bytes = layer.size,
                    .on_sent = tell};
    const auto sent = session_.Send(request);
    if (!sent) return std::unexpected(sent.error());
    if (sent->status != 201 && sent->status != 204)
      return Refused(job_.name.host, "a blob is not taken", *sent);
    return {};
  }

  const TransferJob& job_;
  Session session_;
};

}  // namespace

api::Result<void> Push(const TransferJob& job) { return ModelPush(job).Run(); }

}  // namespace quire::server::registry
