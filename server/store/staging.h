// A directory of our own below blobs/ for files that are not blobs yet: what is being uploaded or converted.
// It is gone with its owner, and its lock goes with the process, so that leftovers of a dead process are
// distinguished from what is in use.
//
// Blocks; one thread at a time.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "api/base/error.h"
#include "server/store/files.h"

namespace quire::server {

class Staging {
 public:
  // The folder of all of them, as blobs/ may have thousands of files.
  static constexpr std::string_view kFolder = ".quire-staging";
  static constexpr std::string_view kPrefix = ".quire-staging-";

  // Takes a few abandoned ones in the folder away first.
  static api::Result<Staging> Make(const StoreDirectory& blobs);
  // Takes away what processes that ended have left, also directly in blobs/. A runner of a killed daemon may
  // hold the lock a little longer: what it has is taken away by the next call.
  static void RemoveAbandoned(const StoreDirectory& blobs);

  Staging(Staging&& other) noexcept
      : folder_(std::move(other.folder_)),
        name_(std::exchange(other.name_, {})),
        directory_(std::move(other.directory_)) {}
  Staging& operator=(Staging&&) = delete;
  ~Staging();

  const StoreDirectory& directory() const { return directory_; }

 private:
  Staging(StoreDirectory folder, std::string name, StoreDirectory directory)
      : folder_(std::move(folder)), name_(std::move(name)), directory_(std::move(directory)) {}

  StoreDirectory folder_;
  std::string name_;  // empty once moved from
  StoreDirectory directory_;
};

}  // namespace quire::server
