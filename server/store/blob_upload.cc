#include "server/store/blob_upload.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "api/base/io_thread.h"

namespace quire::server {
namespace {

constexpr const char* kFile = "blob";

std::unexpected<api::Error> Failure(int error) {
  return api::Fail(api::ErrorCode::kInternal,
                   fmt::format("cannot write the blob: {}", std::generic_category().message(error)));
}

}  // namespace

api::Result<BlobUpload> BlobUpload::Start(const StoreDirectory& blobs) {
  auto staging = Staging::Make(blobs);
  if (!staging) return std::unexpected(staging.error());
  auto file = staging->directory().Create(kFile);
  if (!file) return std::unexpected(file.error());
  return BlobUpload(std::move(*staging), std::move(*file));
}

api::Result<void> BlobUpload::Append(std::string_view bytes) {
  api::AssertMayBlock();
  hash_->Update(bytes);
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) return Failure(errno);
    if (written > 0) bytes.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

api::Result<void> BlobUpload::Finish(const StoreDirectory& blobs, const std::string& blob) {
  const std::string got = "sha256-" + hash_->Finish();
  if (got != blob) {
    auto digest = [](std::string name) { return name.replace(name.find('-'), 1, ":"); };
    return api::Fail(api::ErrorCode::kInvalidArgument,
                     fmt::format("digest mismatch, expected {}, got {}", digest(blob), digest(got)));
  }
  if (::fsync(file_.get()) != 0) return Failure(errno);
  return staging_.directory().Move(kFile, blobs, blob);
}

}  // namespace quire::server
