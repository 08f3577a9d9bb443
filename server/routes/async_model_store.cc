#include "server/routes/async_model_store.h"

#include <utility>

#include "api/base/model_name.h"
#include "server/routes/blocking.h"

namespace quire::server {

AsyncModelStore::AsyncModelStore(ModelStore store, boost::asio::thread_pool& pool)
    : store_(std::move(store)), pool_(pool) {}

Awaitable<api::Result<StoredModel>> AsyncModelStore::Find(std::string name) {
  auto parsed = api::ParseModelName(name);
  if (!parsed) co_return std::unexpected(std::move(parsed.error()));
  auto find = [this, wanted = *std::move(parsed)] { return store_.Find(wanted); };
  auto found = co_await RunBlocking(pool_, std::move(find));
  co_return found;
}

Awaitable<api::Result<std::vector<StoredModel>>> AsyncModelStore::List() {
  auto list = [this] { return store_.List(); };
  auto listed = co_await RunBlocking(pool_, std::move(list));
  co_return listed;
}

Awaitable<api::Result<void>> AsyncModelStore::Copy(std::string from, std::string to) {
  auto source = api::ParseModelName(from);
  auto target = api::ParseModelName(to);
  if (!source) co_return std::unexpected(std::move(source.error()));
  if (!target) co_return std::unexpected(std::move(target.error()));
  auto copy = [this, source = *std::move(source), target = *std::move(target)] {
    return store_.Copy(source, target);
  };
  auto copied = co_await RunBlocking(pool_, std::move(copy));
  co_return copied;
}

Awaitable<api::Result<DeletedModel>> AsyncModelStore::Delete(std::string name) {
  auto parsed = api::ParseModelName(name);
  if (!parsed) co_return std::unexpected(std::move(parsed.error()));
  auto remove = [this, wanted = *std::move(parsed)] { return store_.Delete(wanted); };
  auto removed = co_await RunBlocking(pool_, std::move(remove));
  co_return removed;
}

Awaitable<api::Result<StoredModel>> AsyncModelStore::Register(NewModel model, std::vector<BlobUse>& uses) {
  auto enter = [this, made = std::move(model), &uses] { return store_.Register(made, &uses); };
  auto entered = co_await RunBlocking(pool_, std::move(enter));
  co_return entered;
}

Awaitable<bool> AsyncModelStore::HasBlob(std::string blob) {
  auto look = [this, name = std::move(blob)] { return store_.HasBlob(name); };
  const bool there = co_await RunBlocking(pool_, std::move(look));
  co_return there;
}

Awaitable<int64_t> AsyncModelStore::BlobSize(std::string blob) {
  auto look = [this, name = std::move(blob)] { return store_.BlobSize(name); };
  const int64_t size = co_await RunBlocking(pool_, std::move(look));
  co_return size;
}

Awaitable<api::Result<BlobUpload>> AsyncModelStore::StartUpload() {
  auto begin = [this] { return store_.StartUpload(); };
  auto begun = co_await RunBlocking(pool_, std::move(begin));
  co_return begun;
}

Awaitable<api::Result<void>> AsyncModelStore::Append(BlobUpload& upload, std::string bytes) {
  auto append = [&upload, piece = std::move(bytes)] { return upload.Append(piece); };
  auto appended = co_await RunBlocking(pool_, std::move(append));
  co_return appended;
}

Awaitable<api::Result<void>> AsyncModelStore::FinishUpload(BlobUpload& upload, std::string blob) {
  auto finish = [this, &upload, name = std::move(blob)] { return store_.FinishUpload(upload, name); };
  auto finished = co_await RunBlocking(pool_, std::move(finish));
  co_return finished;
}

Awaitable<api::Result<Staging>> AsyncModelStore::MakeStaging() {
  auto make = [this] { return store_.MakeStaging(); };
  auto made = co_await RunBlocking(pool_, std::move(make));
  co_return made;
}

Awaitable<api::Result<std::string>> AsyncModelStore::Adopt(const Staging& staging, std::string file) {
  auto adopt = [this, &staging, name = std::move(file)] { return store_.Adopt(staging, name); };
  auto adopted = co_await RunBlocking(pool_, std::move(adopt));
  co_return adopted;
}

Awaitable<api::Result<void>> AsyncModelStore::Lend(std::string blob, const Staging& staging,
                                                   std::string file) {
  auto lend = [this, &staging, from = std::move(blob), to = std::move(file)] {
    return store_.Lend(from, staging, to);
  };
  auto lent = co_await RunBlocking(pool_, std::move(lend));
  co_return lent;
}

}  // namespace quire::server
