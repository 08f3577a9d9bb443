// The model store for the I/O thread: every call runs on the pool of blocking work.
#pragma once

#include <boost/asio/thread_pool.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "api/base/error.h"
#include "server/http/awaitable.h"
#include "server/store/model_store.h"

namespace quire::server {

class AsyncModelStore {
 public:
  // The pool outlives this, and this outlives every call.
  AsyncModelStore(ModelStore store, boost::asio::thread_pool& pool);

  // A model by the name a client gave. Errors: an ill-formed name, kNotFound, a broken model.
  Awaitable<api::Result<StoredModel>> Find(std::string name);
  Awaitable<api::Result<std::vector<StoredModel>>> List();  // newest first

  // As the store's; names are as a client gave them.
  Awaitable<api::Result<void>> Copy(std::string from, std::string to);
  Awaitable<api::Result<DeletedModel>> Delete(std::string name);
  Awaitable<api::Result<StoredModel>> Register(NewModel model, std::vector<BlobUse>& uses);
  Awaitable<bool> HasBlob(std::string blob);
  Awaitable<int64_t> BlobSize(std::string blob);  // bytes; 0 when there is none
  Awaitable<api::Result<BlobUpload>> StartUpload();
  Awaitable<api::Result<void>> Append(BlobUpload& upload, std::string bytes);
  Awaitable<api::Result<void>> FinishUpload(BlobUpload& upload, std::string blob);
  Awaitable<api::Result<Staging>> MakeStaging();
  Awaitable<api::Result<std::string>> Adopt(const Staging& staging, std::string file);
  Awaitable<api::Result<void>> Lend(std::string blob, const Staging& staging, std::string file);

  std::filesystem::path BlobPath(const std::string& blob) const { return store_.BlobPath(blob); }
  boost::asio::thread_pool& pool() { return pool_; }
  const std::filesystem::path& root() const { return store_.root(); }

 private:
  ModelStore store_;
  boost::asio::thread_pool& pool_;
};

}  // namespace quire::server
