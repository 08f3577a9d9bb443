// The model store for the I/O thread: every call runs on the pool of blocking work.
#pragma once

#include <boost/asio/thread_pool.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "api/error.h"
#include "server/awaitable.h"
#include "server/model_store.h"

namespace quire::server {

class Models {
 public:
  // The pool outlives this, and this outlives every call.
  Models(ModelStore store, boost::asio::thread_pool& pool);

  // A model by the name a client gave. Errors: an ill-formed name, kNotFound, a broken model.
  Awaitable<api::Result<StoredModel>> Find(std::string name);
  Awaitable<api::Result<std::vector<StoredModel>>> List();  // newest first

  boost::asio::thread_pool& pool() { return pool_; }
  const std::filesystem::path& root() const { return store_.root(); }

 private:
  ModelStore store_;
  boost::asio::thread_pool& pool_;
};

}  // namespace quire::server
