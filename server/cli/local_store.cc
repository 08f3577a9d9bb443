#include "server/cli/local_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string_view>
#include <utility>
#include <vector>

#include "api/base/file_descriptor.h"
#include "api/base/sha256.h"
#include "server/options.h"
#include "server/registry/partial_blob.h"
#include "server/store/files.h"

namespace quire::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPieceBytes = size_t{1} << 20;

// A second file with the same extents, where the file system can share them.
bool Clone(const fs::path& file, const fs::path& blobs, const std::string& blob) {
  const api::FileDescriptor from(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  const std::string name = fmt::format("{}clone-{}", server::PartialBlob::kPrefix, ::getpid());
  const fs::path path = blobs / name;
  const api::FileDescriptor to(
      ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (!from.valid() || !to.valid()) return false;
  const bool cloned = ::ioctl(to.get(), FICLONE, from.get()) == 0 && ::fsync(to.get()) == 0 &&
                      ::rename(path.c_str(), (blobs / blob).c_str()) == 0;
  if (!cloned) ::unlink(path.c_str());
  return cloned;
}

bool CopyInto(const fs::path& file, const fs::path& blobs, const std::string& blob) {
  auto folder = server::StoreDirectory::OpenRoot(blobs);
  if (!folder) return false;
  auto partial = server::PartialBlob::Open(*std::move(folder), blob);
  if (!partial || !*partial || !(*partial)->Truncate()) return false;
  std::ifstream in(file, std::ios::binary);
  std::vector<char> bytes(kPieceBytes);
  while (in.read(bytes.data(), static_cast<std::streamsize>(bytes.size())), in.gcount() > 0) {
    if (!(*partial)->Append({bytes.data(), static_cast<size_t>(in.gcount())})) {
      static_cast<void>((*partial)->Truncate());  // no room: what is there is in the way
      return false;
    }
  }
  return in.eof() && (*partial)->Finish(blob).has_value();
}

}  // namespace

std::string_view PastTense(Arrival placement) {
  switch (placement) {
    case Arrival::kThere:
      return "already stored";
    case Arrival::kLinked:
      return "linked";
    case Arrival::kCloned:
      return "cloned";
    case Arrival::kCopied:
      return "copied";
    case Arrival::kSent:
      break;
  }
  return "sent";
}

bool IsLocal(const Endpoint& endpoint) {
  return !endpoint.unix_socket.empty() || endpoint.host == "localhost" || endpoint.host == "::1" ||
         endpoint.host.starts_with("127.");
}

std::optional<LocalStore> LocalStore::Find(const Endpoint& endpoint) {
  if (!IsLocal(endpoint)) return std::nullopt;
  const server::OptionTable table;
  const auto settings = table.Resolve(server::ProcessEnvironment());
  if (!settings) return std::nullopt;
  fs::path blobs = settings->models / "blobs";
  struct stat entry {};
  // A file of another user would be one that the daemon cannot read.
  if (::stat(blobs.c_str(), &entry) != 0 || !S_ISDIR(entry.st_mode) || entry.st_uid != ::geteuid())
    return std::nullopt;
  return LocalStore(std::move(blobs));
}

std::optional<Arrival> LocalStore::Place(const fs::path& file, const std::string& blob, bool may_link) const {
  std::error_code unknown;
  const fs::path real = fs::canonical(file, unknown);  // a link to a link is none to the file
  if (unknown || fs::exists(blobs_ / blob, unknown)) return std::nullopt;  // the daemon has another store
  if (may_link && ::link(real.c_str(), (blobs_ / blob).c_str()) == 0) return Arrival::kLinked;
  if (Clone(real, blobs_, blob)) return Arrival::kCloned;
  if (CopyInto(real, blobs_, blob)) return Arrival::kCopied;
  return std::nullopt;
}

void LocalStore::RemoveStaleLinks(const fs::path& file, const std::string& blob) const {
  struct stat ours {};
  if (::stat(file.c_str(), &ours) != 0 || ours.st_nlink < 2) return;
  std::error_code unknown;
  for (const fs::directory_entry& entry : fs::directory_iterator(blobs_, unknown)) {
    struct stat theirs {};
    if (::lstat(entry.path().c_str(), &theirs) == 0 && theirs.st_dev == ours.st_dev &&
        theirs.st_ino == ours.st_ino && entry.path().filename() != blob)
      ::unlink(entry.path().c_str());
  }
}

void LocalStore::Remove(const std::string& blob) const { ::unlink((blobs_ / blob).c_str()); }

api::Result<Arrival> BringFile(Client& client, const fs::path& file, const std::string& digest, bool may_link,
                               const std::function<void(int64_t)>& on_sent) {
  const std::string path = "/api/blobs/" + digest;
  const std::string blob = "sha256-" + digest.substr(digest.find(':') + 1);
  const auto store = LocalStore::Find(client.endpoint());
  if (store) store->RemoveStaleLinks(file, blob);
  const auto there = client.Has(path);
  if (!there) return std::unexpected(there.error());
  if (*there) return Arrival::kThere;
  if (store) {
    if (const auto placed = store->Place(file, blob, may_link)) {
      const auto seen = client.Has(path);
      if (seen && *seen) return *placed;
      store->Remove(blob);  // of another daemon
      if (!seen) return std::unexpected(seen.error());
    }
  }
  const auto sent = client.PostFile(path, file, on_sent);
  if (!sent) return std::unexpected(sent.error());
  return Arrival::kSent;
}

api::Result<std::string> DigestOfFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  api::Sha256 hash;
  std::vector<char> bytes(kPieceBytes);
  while (file.read(bytes.data(), static_cast<std::streamsize>(bytes.size())), file.gcount() > 0) {
    hash.Update({bytes.data(), static_cast<size_t>(file.gcount())});
  }
  if (!file.eof())
    return api::Fail(api::ErrorCode::kNotFound, fmt::format("{}: cannot be read", path.string()));
  return "sha256:" + hash.Finish();
}

}  // namespace quire::cli
