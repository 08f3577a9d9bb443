// A blob that is being brought from elsewhere, beside the blobs under a name of its own. Unlike an upload it
// outlives the process, so that the next try goes on where this one stopped.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "api/base/error.h"
#include "api/base/file_descriptor.h"
#include "server/store/files.h"

namespace quire::server {

// Blocks; one thread at a time. Holds the file's lock: nobody else writes to it.
class PartialBlob {
 public:
  static constexpr std::string_view kPrefix = ".quire-partial-";

  // Creates the file when there is none. Nothing: somebody else has it.
  static api::Result<std::optional<PartialBlob>> Open(StoreDirectory blobs, const std::string& blob);
  // Takes away those that nobody has written to for a week.
  static void RemoveOld(const StoreDirectory& blobs);

  int64_t size() const { return size_; }  // bytes that are there
  api::Result<void> Append(std::string_view bytes);
  // The last Append() failed because the disk, the quota or the file's size limit has no room for more.
  bool out_of_room() const { return out_of_room_; }
  // Takes the file away. What was fetched of the blob is lost.
  api::Result<void> Remove();
  api::Result<void> Truncate();  // to nothing
  // Makes it the blob ("sha256-<64 hex>") when its bytes have that digest. Else the file is gone, and
  // kBadModel "digest mismatch, expected ..., got ...".
  api::Result<void> Finish(const std::string& blob);

 private:
  PartialBlob(StoreDirectory blobs, std::string name, api::FileDescriptor file, int64_t size)
      : blobs_(std::move(blobs)), name_(std::move(name)), file_(std::move(file)), size_(size) {}
  std::unexpected<api::Error> Failure(int error) const;

  StoreDirectory blobs_;
  std::string name_;
  api::FileDescriptor file_;
  int64_t size_ = 0;
  bool out_of_room_ = false;
};

}  // namespace quire::server
