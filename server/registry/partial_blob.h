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
  static StoreResult<std::optional<PartialBlob>> Open(StoreDirectory blobs, const std::string& blob);
  // Takes away what there is of a blob unless somebody is bringing it.
  static void RemoveUnused(const StoreDirectory& blobs, const std::string& blob);
  // Takes away those that nobody is bringing and nobody has written to for a week.
  static void RemoveOld(const StoreDirectory& blobs);

  int64_t size() const { return size_; }  // bytes that are there
  StoreResult<void> Append(std::string_view bytes);
  StoreResult<void> Truncate();  // to nothing
  // Makes it the blob ("sha256-<64 hex>") when its bytes are on disk and have that digest. The file is gone
  // when they cannot be synced, as nobody knows what is on disk then, and when they have another digest:
  // kBadModel "digest mismatch, expected ..., got ...".
  StoreResult<void> Finish(const std::string& blob);

 private:
  PartialBlob(StoreDirectory blobs, std::string name, api::FileDescriptor file, int64_t size)
      : blobs_(std::move(blobs)), name_(std::move(name)), file_(std::move(file)), size_(size) {}
  std::unexpected<StoreError> Failure(int error) const;

  StoreDirectory blobs_;
  std::string name_;
  api::FileDescriptor file_;
  int64_t size_ = 0;
};

}  // namespace quire::server
