// A blob on its way into the store: bytes in order, then a check against the digest that the client named.
// An incomplete upload leaves no file. Blocks; one thread at a time.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "api/base/error.h"
#include "api/base/file_descriptor.h"
#include "api/base/sha256.h"
#include "server/store/files.h"
#include "server/store/staging.h"

namespace quire::server {

class BlobUpload {
 public:
  static api::Result<BlobUpload> Start(const StoreDirectory& blobs);

  api::Result<void> Append(std::string_view bytes);
  // `blob` is "sha256-<64 hex>". kInvalidArgument "digest mismatch, expected ..., got ...".
  api::Result<void> Finish(const StoreDirectory& blobs, const std::string& blob);

 private:
  BlobUpload(Staging staging, api::FileDescriptor file)
      : staging_(std::move(staging)), file_(std::move(file)) {}

  Staging staging_;
  api::FileDescriptor file_;
  std::unique_ptr<api::Sha256> hash_ = std::make_unique<api::Sha256>();
};

}  // namespace quire::server
