// The model store for the I/O thread: every call runs as work of its kind.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "api/base/error.h"
#include "server/http/awaitable.h"
#include "server/routes/executor.h"
#include "server/store/model_store.h"

namespace quire::server {

// I/O thread only.
class AsyncModelStore {
 public:
  // The pools outlive this, and this outlives every call.
  AsyncModelStore(ModelStore store, WorkPools& pools);

  // A model by the name a client gave, in the turn of its party (Executor): a file system on which looks take
  // long holds up a party with many of them, and not the others. One that is in memory waits for no file but
  // the look whether it changed. Errors: an ill-formed name, kNotFound, a broken model, one that cannot be
  // used (StoredModel::refusal).
  Awaitable<api::Result<SharedModel>> Find(std::string name, fair::PartyId party = {});
  // Newest first; has every change that was made before the call. In the party's turn, too: a list of 500
  // models that are in memory takes milliseconds.
  Awaitable<api::Result<std::vector<SharedModel>>> List(fair::PartyId party);

  // As the store's; names are as a client gave them.
  Awaitable<api::Result<void>> Copy(std::string from, std::string to);
  Awaitable<api::Result<DeletedModel>> Delete(std::string name);
  Awaitable<api::Result<SharedModel>> Register(NewModel model, std::vector<BlobUse>& uses);
  Awaitable<bool> HasBlob(std::string blob, fair::PartyId party);  // in the party's turn
  Awaitable<int64_t> BlobSize(std::string blob);                   // bytes; 0 when there is none
  // What these give is taken away on a pool, wherever its last owner goes.
  Awaitable<api::Result<std::shared_ptr<BlobUpload>>> StartUpload();
  Awaitable<api::Result<std::shared_ptr<const Staging>>> MakeStaging();
  // Returns when it was taken away. REQUIRES: no other owner.
  Awaitable<void> Discard(std::shared_ptr<BlobUpload> upload);
  Awaitable<api::Result<void>> Append(BlobUpload& upload, std::string bytes);
  Awaitable<api::Result<void>> FinishUpload(BlobUpload& upload, std::string blob);
  Awaitable<api::Result<std::string>> Adopt(const Staging& staging, std::string file,
                                            BlobUsers::Lease& lease);
  Awaitable<api::Result<void>> Lend(std::string blob, const Staging& staging, std::string file);
  Awaitable<int64_t> StagedSize(const Staging& staging, std::string file);  // bytes; 0 when there is none
  // Those of these blobs that no model names and no user needs.
  Awaitable<void> RemoveUnnamed(std::vector<std::string> blobs);
  // The same without waiting for it.
  void StartRemovingUnnamed(std::vector<std::string> blobs);

  BlobUsers& users() { return store_.users(); }
  std::filesystem::path BlobPath(const std::string& blob) const { return store_.BlobPath(blob); }
  const std::filesystem::path& root() const { return store_.root(); }
  const ModelStore& store() const { return store_; }

 private:
  ModelStore store_;
  WorkPools& pools_;
};

}  // namespace quire::server
