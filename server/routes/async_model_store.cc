#include "server/routes/async_model_store.h"

#include <fmt/format.h>

#include <utility>

#include "api/base/model_name.h"
#include "server/routes/blocking.h"

namespace quire::server {
namespace {

// An object whose destructor blocks: it runs on the pool, also when the last owner is on the I/O thread.
template <class T>
api::Result<std::shared_ptr<T>> DestroyedOn(WorkKind& pool, api::Result<T> object,
                                            const fair::PartyId& party) {
  if (!object) return std::unexpected(std::move(object.error()));
  const auto destroy = [&pool, party](T* last) {
    pool.Post([owned = std::unique_ptr<T>(last)]() mutable { owned.reset(); }, party);
  };
  return std::shared_ptr<T>(new T(*std::move(object)), destroy);
}

// Errors about a model that is not there name it as the client did.
template <class T>
api::Result<T> Named(api::Result<T> result, const std::string& name) {
  if (!result && result.error().code == api::ErrorCode::kNotFound) {
    result.error().message = fmt::format("model '{}' not found", name);
  }
  return result;
}

api::Result<SharedModel> Usable(SharedModel model) {
  if (model->refusal.empty()) return model;
  return api::Fail(api::ErrorCode::kUnsupported, model->refusal, "model");
}

}  // namespace

AsyncModelStore::AsyncModelStore(ModelStore store, WorkPools& pools)
    : store_(std::move(store)), pools_(pools) {}

Awaitable<api::Result<std::vector<SharedModel>>> AsyncModelStore::List(fair::PartyId party) {
  auto list = [this] { return store_.List(); };
  auto models = co_await RunBlocking(pools_.reads, std::move(list), party);
  co_return models;
}

Awaitable<api::Result<SharedModel>> AsyncModelStore::Find(std::string name, fair::PartyId party) {
  auto parsed = api::ParseModelName(name);
  if (!parsed) co_return std::unexpected(std::move(parsed.error()));
  auto recall = [this, wanted = *parsed] { return store_.FindCached(wanted); };
  auto cached = co_await RunBlocking(pools_.lookups, std::move(recall), party);
  if (cached) co_return Usable(std::move(cached));
  auto find = [this, wanted = *std::move(parsed)] { return store_.Find(wanted); };
  auto found = co_await RunBlocking(pools_.reads, std::move(find), party);
  if (found) co_return Usable(*std::move(found));
  co_return Named(std::move(found), name);
}

Awaitable<api::Result<void>> AsyncModelStore::Copy(std::string from, std::string to, fair::PartyId party) {
  auto source = api::ParseModelName(from);
  auto target = api::ParseModelName(to);
  if (!source) co_return std::unexpected(std::move(source.error()));
  if (!target) co_return std::unexpected(std::move(target.error()));
  auto copy = [this, source = *std::move(source), target = *std::move(target)] {
    return store_.Copy(source, target);
  };
  auto copied = co_await RunBlocking(pools_.edits, std::move(copy), party);
  co_return Named(std::move(copied), from);
}

Awaitable<api::Result<DeletedModel>> AsyncModelStore::Delete(std::string name, fair::PartyId party) {
  auto parsed = api::ParseModelName(name);
  if (!parsed) co_return std::unexpected(std::move(parsed.error()));
  auto remove = [this, wanted = *std::move(parsed)] { return store_.Delete(wanted); };
  auto removed = co_await RunBlocking(pools_.edits, std::move(remove), party);
  co_return Named(std::move(removed), name);
}

Awaitable<api::Result<SharedModel>> AsyncModelStore::Register(NewModel model, std::vector<BlobUse>& uses,
                                                              fair::PartyId party) {
  auto enter = [this, made = std::move(model), &uses] { return store_.Register(made, &uses); };
  auto entered = co_await RunBlocking(pools_.edits, std::move(enter), party);
  co_return entered;
}

Awaitable<bool> AsyncModelStore::HasBlob(std::string blob, fair::PartyId party) {
  auto look = [this, name = std::move(blob)] { return store_.HasBlob(name); };
  const bool there = co_await RunBlocking(pools_.reads, std::move(look), party);
  co_return there;
}

Awaitable<int64_t> AsyncModelStore::BlobSize(std::string blob, fair::PartyId party) {
  auto look = [this, name = std::move(blob)] { return store_.BlobSize(name); };
  const int64_t size = co_await RunBlocking(pools_.reads, std::move(look), party);
  co_return size;
}

Awaitable<api::Result<std::shared_ptr<BlobUpload>>> AsyncModelStore::StartUpload(fair::PartyId party) {
  auto begin = [this, &party] { return DestroyedOn(pools_.blobs, store_.StartUpload(), party); };
  auto begun = co_await RunBlocking(pools_.blobs, std::move(begin), party);
  co_return begun;
}

Awaitable<api::Result<std::shared_ptr<const Staging>>> AsyncModelStore::MakeStaging(fair::PartyId party) {
  auto make = [this, &party] { return DestroyedOn(pools_.blobs, store_.MakeStaging(), party); };
  auto made = co_await RunBlocking(pools_.blobs, std::move(make), party);
  if (!made) co_return std::unexpected(std::move(made.error()));
  co_return std::shared_ptr<const Staging>(*std::move(made));
}

Awaitable<void> AsyncModelStore::Discard(std::shared_ptr<BlobUpload> upload, fair::PartyId party) {
  auto discard = [owned = std::make_unique<BlobUpload>(std::move(*upload))]() mutable {
    owned.reset();
    return true;
  };
  co_await RunBlocking(pools_.blobs, std::move(discard), party);
}

Awaitable<api::Result<void>> AsyncModelStore::Append(BlobUpload& upload, std::string bytes,
                                                     fair::PartyId party) {
  auto append = [&upload, piece = std::move(bytes)] { return upload.Append(piece); };
  auto appended = co_await RunBlocking(pools_.blobs, std::move(append), party);
  co_return appended;
}

Awaitable<api::Result<void>> AsyncModelStore::FinishUpload(BlobUpload& upload, std::string blob,
                                                           fair::PartyId party) {
  auto finish = [this, &upload, name = std::move(blob)] { return store_.FinishUpload(upload, name); };
  auto finished = co_await RunBlocking(pools_.blobs, std::move(finish), party);
  co_return finished;
}

Awaitable<api::Result<std::string>> AsyncModelStore::Adopt(const Staging& staging, std::string file,
                                                           BlobUsers::Lease& lease, fair::PartyId party) {
  auto adopt = [this, &staging, &lease, name = std::move(file)] {
    return store_.Adopt(staging, name, lease);
  };
  auto adopted = co_await RunBlocking(pools_.blobs, std::move(adopt), party);
  co_return adopted;
}

Awaitable<api::Result<void>> AsyncModelStore::Lend(std::string blob, const Staging& staging, std::string file,
                                                   fair::PartyId party) {
  auto lend = [this, &staging, from = std::move(blob), to = std::move(file)] {
    return store_.Lend(from, staging, to);
  };
  auto lent = co_await RunBlocking(pools_.blobs, std::move(lend), party);
  co_return lent;
}

Awaitable<int64_t> AsyncModelStore::StagedSize(const Staging& staging, std::string file,
                                               fair::PartyId party) {
  auto look = [&staging, name = std::move(file)] {
    const auto status = staging.directory().Status(name);
    return status ? status->size : int64_t{0};
  };
  const int64_t size = co_await RunBlocking(pools_.reads, std::move(look), party);
  co_return size;
}

Awaitable<void> AsyncModelStore::RemoveUnnamed(std::vector<std::string> blobs, fair::PartyId party) {
  if (blobs.empty()) co_return;
  auto remove = [this, unused = std::move(blobs)] {
    store_.RemoveUnnamed(unused);
    return true;
  };
  co_await RunBlocking(pools_.edits, std::move(remove), party);
}

void AsyncModelStore::StartRemovingUnnamed(std::vector<std::string> blobs, const fair::PartyId& party) {
  if (blobs.empty()) return;
  pools_.edits.Post([store = store_, unused = std::move(blobs)] { store.RemoveUnnamed(unused); }, party);
}

}  // namespace quire::server
