// The daemon's store, where it is of this user: files of this machine become blobs of it without being sent.
// No route of the daemon takes a path.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "api/base/error.h"
#include "server/cli/client.h"

namespace quire::cli {

// How a file came into the store.
enum class Arrival { kThere, kLinked, kCloned, kCopied, kSent };
std::string_view PastTense(Arrival placement);  // "linked"

// One thread.
class LocalStore {
 public:
  // The store that this shell's settings name (OLLAMA_MODELS). Nothing: the daemon is on another machine,
  // there is no such folder, or it is another user's.
  static std::optional<LocalStore> Find(const Endpoint& endpoint);

  // Makes the file the blob ("sha256-<64 hex>", its digest): with `may_link` a hard link, else a clone of its
  // extents, else a copy. The daemon says then whether this is its store. Nothing: none of them can be made.
  std::optional<Arrival> Place(const std::filesystem::path& file, const std::string& blob,
                               bool may_link) const;
  // Takes away blobs that are links to this file, but for `blob`, which it is now: they are from before it
  // was rewritten.
  void RemoveStaleLinks(const std::filesystem::path& file, const std::string& blob) const;
  // Takes away what Place() made.
  void Remove(const std::string& blob) const;

 private:
  explicit LocalStore(std::filesystem::path blobs) : blobs_(std::move(blobs)) {}

  std::filesystem::path blobs_;
};

// Whether the daemon is on this machine.
bool IsLocal(const Endpoint& endpoint);

// The daemon has the file as a blob when this returns: as above, or else it is sent. `digest` is "sha256:<64
// hex>".
api::Result<Arrival> BringFile(Client& client, const std::filesystem::path& file, const std::string& digest,
                               bool may_link, const std::function<void(int64_t sent)>& on_sent);

// The SHA-256 of a file as a digest. kNotFound: it cannot be read.
api::Result<std::string> DigestOfFile(const std::filesystem::path& path);

}  // namespace quire::cli
