// The files of a hub's repository into the store. What is made of them is the caller's.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/base/sha256.h"
#include "server/registry/address_policy.h"
#include "server/registry/blob_pull.h"
#include "server/registry/git_hash.h"
#include "server/registry/hub.h"
#include "server/registry/transfer.h"
#include "server/store/blob_users.h"
#include "server/store/model_manifest.h"

namespace quire::server::registry {
namespace {

constexpr int kPagesMax = 100;
constexpr size_t kSmallBytesMax = size_t{64} << 20;  // of a file without SHA-256, which is read as a whole

class FilesPull {
 public:
  FilesPull(const TransferJob& job, const HubRepository& repository, const fair::PartyId& party)
      : job_(job), repository_(repository), party_(party), lease_(job.store.users()) {}

  api::Result<void> Run() {
    job_.transfer.SetStatus("listing files");
    const auto listed = List();
    if (!listed) return std::unexpected(listed.error());
    auto choice = ChooseFiles(*listed, job_.name.tag);
    if (!choice) {
      choice.error().message = fmt::format("{}: {}", job_.name.Display(), choice.error().message);
      return std::unexpected(choice.error());
    }
    const std::string source = SourceOf(*choice);
    fetched_.source = {.media_type = std::string(kSourceLayer),
                       .blob = "sha256-" + api::Sha256Of(source),
                       .size = static_cast<int64_t>(source.size())};
    if (HasModel()) {
      fetched_.unchanged = true;
      job_.transfer.SetFiles(std::move(fetched_));
      return {};
    }
    lease_.Redeem(fetched_.source.blob, party_);
    if (auto stored = job_.store.StoreBytes(source); !stored) return std::unexpected(stored.error());
    auto fetched = FetchSmall(choice->files);
    if (fetched) fetched = FetchLarge();
    if (!fetched) return std::unexpected(fetched.error());
    // Before the lease ends: whoever makes a model of them has them until then.
    std::vector<std::string> blobs = {fetched_.source.blob};
    for (const FetchedFile& file : fetched_.files) blobs.push_back(*BlobNameOf(file.digest));
    for (const std::string& blob : blobs) job_.store.users().Promise(blob, party_, BlobUsers::Clock::now());
    if (choice->quantize) fetched_.quantize = job_.name.tag;
    job_.transfer.SetFiles(std::move(fetched_));
    return {};
  }

 private:
  // Which files the model is made of, and how.
  std::string SourceOf(const HubChoice& choice) const {
    std::string text = choice.quantize ? fmt::format("quantize {}\n", job_.name.tag) : std::string();
    for (const HubFile& file : choice.files) {
      text += fmt::format("{} {}\n", file.sha256.empty() ? file.git_hash : file.sha256, file.path);
    }
    return text;
  }

  // Whether the store has the model of this name, made of these files.
  bool HasModel() const {
    const auto text = job_.store.ReadManifest(job_.name);
    const auto manifest = text ? ParseManifest(*text) : std::unexpected(text.error());
    const Layer* source = manifest ? manifest->Find(kSourceLayer) : nullptr;
    return source != nullptr && source->blob == fetched_.source.blob &&
           job_.store.HasBlob(manifest->config) &&
           std::ranges::all_of(manifest->layers,
                               [this](const Layer& layer) { return job_.store.HasBlob(layer); });
  }

  std::unique_ptr<Session> NewSession() const {
    std::string denied = repository_.token().empty()
                             ? fmt::format("{}/{} does not exist, or needs a token: set HF_TOKEN",
                                           job_.name.name_space, job_.name.model)
                             : fmt::format("{}/{} does not exist, or the token of HF_TOKEN may not read it",
                                           job_.name.name_space, job_.name.model);
    return std::make_unique<Session>(job_.policy, repository_.endpoint(), repository_.token(),
                                     std::move(denied), job_.transfer.cancelled());
  }

  api::Result<std::vector<HubFile>> List() const {
    const auto session = NewSession();
    std::vector<HubFile> files;
    std::string url = repository_.ListUrl();
    for (int page = 0; page < kPagesMax && !url.empty(); ++page) {
      const auto reply = session->Send({.url = url});
      if (!reply) return std::unexpected(reply.error());
      if (reply->status == 404) {
        return api::Fail(api::ErrorCode::kNotFound, fmt::format("{} has no repository {}/{}", job_.name.host,
                                                                job_.name.name_space, job_.name.model));
      }
      if (reply->status != 200)
        return Refused(job_.name.host, "cannot list the repository's files", reply->status);
      auto more = repository_.ParseList(reply->body);
      if (!more) return std::unexpected(more.error());
      std::ranges::move(*more, std::back_inserter(files));
      const std::string next = NextPage(reply->Header("link"));
      if (next.empty()) return files;
      auto resolved = Resolve(url, next);
      if (!resolved) return std::unexpected(resolved.error());
      url = *std::move(resolved);
    }
    return files;
  }

  // Those of which only git's hash is known; of the others what is to be fetched.
  StoreResult<void> FetchSmall(const std::vector<HubFile>& files) {
    const auto session = NewSession();
    for (const HubFile& file : files) {
      std::string name = file.path.substr(file.path.rfind('/') + 1);
      if (!file.sha256.empty()) {
        Layer layer{.media_type = {}, .blob = "sha256-" + file.sha256, .size = file.size};
        fetched_.files.push_back({file.path, DigestOf(layer.blob)});
        lease_.Redeem(layer.blob, party_);  // its client may have brought it, too
        large_.push_back({std::move(layer), repository_.FileUrl(file.path), std::move(name)});
        continue;
      }
      job_.transfer.SetStatus("pulling " + name);
      const auto reply =
          session->Send({.url = repository_.FileUrl(file.path), .reply_bytes_max = kSmallBytesMax});
      if (!reply) return std::unexpected(reply.error());
      if (reply->status != 200)
        return Refused(job_.name.host, fmt::format("{} cannot be fetched", name), reply->status);
      if (const std::string hash = GitHashOf(reply->body); hash != file.git_hash) {
        return api::Fail(api::ErrorCode::kBadModel,
                         fmt::format("{}: digest mismatch, expected {}, got {}", name, file.git_hash, hash));
      }
      lease_.Redeem("sha256-" + api::Sha256Of(reply->body), party_);
      auto blob = job_.store.StoreBytes(reply->body);
      if (!blob) return std::unexpected(blob.error());
      fetched_.files.push_back({file.path, DigestOf(*blob)});
    }
    return {};
  }

  StoreResult<void> FetchLarge() {
    std::ranges::stable_sort(large_, std::ranges::greater(),
                             [](const BlobSource& source) { return source.layer.size; });
    auto fetched = PullBlobs(job_, large_, [this] { return NewSession(); });
    if (!fetched && IsOutOfRoom(fetched.error())) {
      lease_.Release();
      job_.store.RemoveUnnamed(NamesOf(large_));
    }
    return fetched;
  }

  const TransferJob& job_;
  const HubRepository& repository_;
  const fair::PartyId& party_;
  BlobUsers::Lease lease_;
  FetchedFiles fetched_;
  std::vector<BlobSource> large_;
};

}  // namespace

api::Result<void> PullFiles(const TransferJob& job, const HubRepository& repository,
                            const fair::PartyId& party) {
  return FilesPull(job, repository, party).Run();
}

}  // namespace quire::server::registry
