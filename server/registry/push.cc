// A model of the store to a registry: each blob that is not there, then its manifest.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "api/base/parse_integer.h"
#include "server/registry/transfer.h"
#include "server/store/model_manifest.h"

namespace quire::server::registry {
namespace {

constexpr int kPushTries = 4;
constexpr int64_t kPartBytes = int64_t{64} << 20;  // of one request: more is refused by some proxies

std::unexpected<api::Error> PushRefused(const std::string& host, std::string_view what, const Reply& reply) {
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
    job_.transfer.SetStatus("retrieving manifest");
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
    job_.transfer.SetStatus("pushing manifest");
    Request request{.method = "PUT",
                    .url = session_.UrlOf("manifests/" + job_.name.tag),
                    .headers = {"Content-Type: application/vnd.docker.distribution.manifest.v2+json"},
                    .body = *text};
    const auto reply = session_.Send(request);
    if (!reply) return std::unexpected(reply.error());
    if (reply->status / 100 != 2)
      return PushRefused(job_.name.host, "the registry rejected the manifest", *reply);
    return {};
  }

 private:
  // A blob on its way; no url: not begun.
  struct Upload {
    std::string url;  // where the next bytes go
    int64_t sent = 0;
  };

  api::Result<void> PushBlob(const Layer& layer) {
    Upload upload;
    for (int tried = 1;; ++tried) {
      auto pushed = TryBlob(layer, upload);
      const bool again = !pushed && pushed.error().code == api::ErrorCode::kUnavailable &&
                         tried < kPushTries && !job_.transfer.cancelled();
      if (!again) return pushed;
      for (int i = 0; i < 5 * tried && !job_.transfer.cancelled(); ++i) std::this_thread::sleep_for(kPause);
    }
  }

  api::Result<void> TryBlob(const Layer& layer, Upload& upload) {
    const std::string digest = DigestOf(layer.blob);
    ReportProgress(layer, upload.sent);
    const auto there = session_.Send({.method = "HEAD", .url = session_.UrlOf("blobs/" + digest)});
    if (!there) return std::unexpected(there.error());
    if (there->status == 200) {
      ReportProgress(layer, layer.size);
      return {};
    }
    const auto file = job_.store.OpenBlob(layer);
    if (!file) return std::unexpected(file.error());
    if (!upload.url.empty()) QueryUpload(layer, upload);
    if (upload.url.empty()) {
      if (auto begun = StartUpload(upload); !begun) return begun;
    }
    while (upload.sent < layer.size) {
      if (auto sent = SendPart(layer, file->get(), upload); !sent) return sent;
    }
    std::string url = upload.url;
    const std::string hex = layer.blob.substr(layer.blob.find('-') + 1);
    url += fmt::format("{}digest=sha256%3A{}", url.contains('?') ? "&" : "?", hex);
    const auto checked = CheckReply(session_.Send({.method = "PUT", .url = std::move(url)}), upload);
    if (!checked) return std::unexpected(checked.error());
    return {};
  }

  void ReportProgress(const Layer& layer, int64_t sent) {
    const std::string digest = DigestOf(layer.blob);
    const std::string shown = digest.substr(digest.find(':') + 1, 12);
    job_.transfer.Count(fmt::format("pushing {}", shown), digest, layer.size, sent);
  }

  api::Result<void> StartUpload(Upload& upload) {
    const std::string begin = session_.UrlOf("blobs/uploads/");
    const auto begun = session_.Send({.method = "POST", .url = begin});
    if (!begun) return std::unexpected(begun.error());
    if (begun->status != 202)
      return PushRefused(job_.name.host, "the registry rejected the blob upload", *begun);
    auto url = Resolve(begin, begun->Header("location"));
    if (!url) return std::unexpected(url.error());
    upload = {.url = *std::move(url), .sent = 0};
    return {};
  }

  // The bytes of an interrupted upload that arrived; if the registry does not report it, the upload restarts.
  void QueryUpload(const Layer& layer, Upload& upload) {
    const auto reply = session_.Send({.url = upload.url});
    const bool known = reply && (reply->status == 204 || reply->status == 202);
    upload.sent = known ? ArrivedOf(reply->Header("range")) : -1;
    const auto next = known ? Resolve(upload.url, reply->Header("location")) : upload.url;
    if (upload.sent < 0 || upload.sent > layer.size || !next) {
      upload = {};
    } else if (!reply->Header("location").empty()) {
      upload.url = *next;
    }
  }

  // "0-99": a hundred bytes, "0-0": none. -1 when it says nothing of the kind.
  static int64_t ArrivedOf(std::string_view range) {
    if (range.starts_with("bytes=")) range.remove_prefix(6);
    if (!range.starts_with("0-")) return -1;
    range.remove_prefix(2);
    const int64_t last = api::ParseInteger<int64_t>(range).value_or(-1);
    return last < 0 || last == INT64_MAX ? -1 : last == 0 ? 0 : last + 1;
  }

  api::Result<void> SendPart(const Layer& layer, int file, Upload& upload) {
    const int64_t bytes = std::min(layer.size - upload.sent, kPartBytes);
    const Request request{
        .method = "PATCH",
        .url = upload.url,
        .headers = {"Content-Type: application/octet-stream",
                    fmt::format("Content-Range: {}-{}", upload.sent, upload.sent + bytes - 1)},
        .body_fd = file,
        .body_offset = upload.sent,
        .body_bytes = bytes,
        .on_sent = [this, &layer, before = upload.sent](int64_t sent) {
          ReportProgress(layer, before + sent);
        }};
    const auto reply = CheckReply(session_.Send(request), upload);
    if (!reply) return std::unexpected(reply.error());
    auto next = Resolve(request.url, reply->Header("location"));
    if (!next) return std::unexpected(next.error());
    upload = {.url = *std::move(next), .sent = upload.sent + bytes};
    return {};
  }

  // A rejected upload restarts; one whose connection was lost may resume.
  api::Result<Reply> CheckReply(api::Result<Reply> reply, Upload& upload) {
    if (!reply || reply->status / 100 == 2) return reply;
    upload = {};
    return PushRefused(job_.name.host, "the registry rejected a blob", *reply);
  }

  const TransferJob& job_;
  Session session_;
};

}  // namespace

api::Result<void> Push(const TransferJob& job) { return ModelPush(job).Run(); }

}  // namespace quire::server::registry
