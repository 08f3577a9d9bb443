// A model from a registry into the store: its manifest, then each blob that is not there, then the name.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/registry/blob_pull.h"
#include "server/registry/transfer.h"
#include "server/store/layout.h"
#include "server/store/model_manifest.h"

namespace quire::server::registry {
namespace {

constexpr int kRounds = 3;

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
    if (!entered && IsOutOfRoom(entered.error())) job_.store.RemoveUnnamed(NamesOf(needed));
    return entered;
  }

 private:
  // The blobs into the store, then the name.
  StoreResult<void> Enter(const std::vector<BlobSource>& needed, const std::string& text) {
    BlobUsers::Lease lease(job_.store.users());  // whatever else ends meanwhile
    for (const BlobSource& source : needed) lease.Add(source.layer.blob);
    // A blob that was there may go with the last other model that used it, until the name stands.
    for (int round = 1;; ++round) {
      if (auto fetched = PullBlobs(job_, needed, [this] { return NewSession(); }); !fetched) return fetched;
      job_.transfer.SetStatus("verifying sha256 digest");
      job_.transfer.SetStatus("writing manifest");
      auto entered = job_.store.RegisterManifest(job_.name, text);
      if (entered || entered.error().code != api::ErrorCode::kNotFound || round == kRounds) return entered;
    }
  }

  std::unique_ptr<Session> NewSession() const {
    return std::make_unique<Session>(job_.settings, job_.policy, job_.name, job_.insecure, /*push=*/false,
                                     job_.transfer.cancelled());
  }

  api::Result<std::string> FetchManifest() {
    const auto session = NewSession();
    Request request{.url = session->UrlOf("manifests/" + job_.name.tag),
                    .headers = {"Accept: application/vnd.docker.distribution.manifest.v2+json, "
                                "application/vnd.oci.image.manifest.v1+json"}};
    auto reply = session->Send(request);
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
  std::vector<BlobSource> Needed(const Manifest& manifest) const {
    std::vector<Layer> layers = manifest.layers;
    layers.push_back(manifest.config);
    std::set<std::string> seen;
    std::erase_if(layers, [&seen](const Layer& layer) { return !seen.insert(layer.blob).second; });
    std::ranges::stable_sort(layers, std::ranges::greater(), &Layer::size);
    const auto session = NewSession();
    std::vector<BlobSource> sources;
    for (Layer& layer : layers) {
      const std::string digest = DigestOf(layer.blob);
      std::string shown = layer.blob.substr(layer.blob.find('-') + 1, 12);
      sources.push_back({std::move(layer), session->UrlOf("blobs/" + digest), std::move(shown)});
    }
    return sources;
  }

  const TransferJob& job_;
};

}  // namespace

api::Result<void> Pull(const TransferJob& job) { return ModelPull(job).Run(); }

}  // namespace quire::server::registry
