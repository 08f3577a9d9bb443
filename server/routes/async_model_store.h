// The model store for the I/O thread: every call is work of its kind, of the party that asks (Executor). What
// takes a disk long holds up the party with much of it, and not the others.
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

  // A model by the name a client gave. One that is in memory waits for no file but the look whether it
  // changed. Errors: an ill-formed name, kNotFound, a broken model, one that cannot be used
  // (StoredModel::refusal).
  Awaitable<api::Result<SharedModel>> Find(std::string name, fair::PartyId party);
  // Newest first; has every change that was made before the call. 500 models that are in memory take
  // milliseconds.
  Awaitable<api::Result<std::vector<SharedModel>>> List(fair::PartyId party);

  // As the store's; names are as a client gave them.
  Awaitable<api::Result<void>> Copy(std::string from, std::string to, fair::PartyId party);
  Awaitable<api::Result<DeletedModel>> Delete(std::string name, fair::PartyId party);
  Awaitable<api::Result<SharedModel>> Register(NewModel model, std::vector<BlobUse>& uses,
                                               fair::PartyId party);
  Awaitable<bool> HasBlob(std::string blob, fair::PartyId party);
  Awaitable<int64_t> BlobSize(std::string blob, fair::PartyId party);  // bytes; 0 when there is none
  // What these give is taken away on a pool, wherever its last owner goes.
  Awaitable<api::Result<std::shared_ptr<BlobUpload>>> StartUpload(fair::PartyId party);
  Awaitable<api::Result<std::shared_ptr<const Staging>>> MakeStaging(fair::PartyId party);
  // Returns when it was taken away. REQUIRES: no other owner.
  Awaitable<void> Discard(std::shared_ptr<BlobUpload> upload, fair::PartyId party);
  Awaitable<api::Result<void>> Append(BlobUpload& upload, std::string bytes, fair::PartyId party);
  Awaitable<api::Result<void>> FinishUpload(BlobUpload& upload, std::string blob, fair::PartyId party);
  Awaitable<api::Result<std::string>> Adopt(const Staging& staging, std::string file, BlobUsers::Lease& lease,
                                            fair::PartyId party);
  Awaitable<api::Result<void>> Lend(std::string blob, const Staging& staging, std::string file,
                                    fair::PartyId party);
  // Bytes; 0 when there is none.
  Awaitable<int64_t> StagedSize(const Staging& staging, std::string file, fair::PartyId party);
  // Those of these blobs that no model names and no user needs.
  Awaitable<void> RemoveUnnamed(std::vector<std::string> blobs, fair::PartyId party);
  // The same without waiting for it.
  void StartRemovingUnnamed(std::vector<std::string> blobs, const fair::PartyId& party);

  BlobUsers& users() { return store_.users(); }
  std::filesystem::path BlobPath(const std::string& blob) const { return store_.BlobPath(blob); }
  const std::filesystem::path& root() const { return store_.root(); }
  const ModelStore& store() const { return store_; }

 private:
  ModelStore store_;
  WorkPools& pools_;
};

}  // namespace quire::server
