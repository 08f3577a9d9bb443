#include "server/registry/transfer.h"

#include <algorithm>
#include <exception>
#include <stop_token>
#include <utility>

#include "api/base/exceptions.h"
#include "api/base/stop_request.h"

namespace quire::server::registry {
namespace {

constexpr uint64_t kTransfersMax = 16;  // a thread each; one party has half of them at most

}  // namespace

void Transfer::SetStatus(std::string status) {
  const api::MutexLock lock(mutex_);
  progress_.push_back({.status = std::move(status)});
}

void Transfer::Count(const std::string& status, const std::string& digest, int64_t total, int64_t completed) {
  const api::MutexLock lock(mutex_);
  const auto known = std::ranges::find_if(progress_, [&](const TransferProgress& update) {
    return update.digest == digest && update.status == status;
  });
  if (known != progress_.end()) {
    known->completed = completed;
  } else {
    progress_.push_back({status, digest, total, completed});
  }
}

void Transfer::End(api::Result<void> result) {
  const api::MutexLock lock(mutex_);
  result_ = std::move(result);
}

void Transfer::SetFiles(FetchedFiles files) {
  const api::MutexLock lock(mutex_);
  files_ = std::move(files);
}

FetchedFiles Transfer::ConsumeFiles() {
  const api::MutexLock lock(mutex_);
  return std::exchange(files_, {});
}

std::vector<TransferProgress> Transfer::TakeProgress() {
  const api::MutexLock lock(mutex_);
  return std::exchange(progress_, {});
}

std::optional<api::Result<void>> Transfer::result() const {
  const api::MutexLock lock(mutex_);
  return result_;
}

Transfers::Transfers(Settings settings, StoreTransfer store)
    : settings_(std::move(settings)),
      policy_(settings_.trusted),
      store_(std::move(store)),
      places_(
          {.total = kTransfersMax, .large = kTransfersMax, .party = kTransfersMax / 2, .leaves_room = true}) {
  running_.reserve(kTransfersMax);
}

Transfers::~Transfers() {
  CancelAll();
  running_.clear();
}

void Transfers::CancelAll() {
  for (Running& running : running_) running.transfer->Cancel();
}

// A thread whose owner goes cancels its transfer before it is waited for: registries may take as long as they
// like.
template <class Work>
api::Result<std::shared_ptr<Transfer>> Transfers::Start(const fair::PartyId& party, Work work) {
  std::erase_if(running_, [](const Running& running) { return running.transfer->result().has_value(); });
  fair::Quota::Lease place(places_, party);
  if (place.GrowTo(1)) return api::Fail(api::ErrorCode::kOverloaded, "too many pulls and pushes in progress");
  auto transfer = std::make_shared<Transfer>();
  std::jthread thread([transfer, work = std::move(work)](const std::stop_token& stop) mutable {
    const std::stop_callback cancel(stop, [&transfer] { transfer->Cancel(); });
    const api::StopScope stop_work(transfer->cancelled());
    try {
      transfer->End(work(*transfer));
    } catch (const std::exception& error) {
      transfer->End(std::unexpected(api::ErrorOf(error)));
    }
  });
  running_.push_back({transfer, std::move(place), std::move(thread)});  // there is room
  return transfer;
}

api::Result<std::shared_ptr<Transfer>> Transfers::Pull(api::ModelName name, bool insecure,
                                                       const fair::PartyId& party) {
  return Start(party, [this, name = std::move(name), insecure](Transfer& transfer) {
    return registry::Pull({settings_, policy_, store_, transfer, name, insecure});
  });
}

api::Result<std::shared_ptr<Transfer>> Transfers::PullFiles(api::ModelName name, const HubRequest& request,
                                                            const fair::PartyId& party) {
  auto repository = HubRepository::Of(name, settings_.hubs, request);
  if (!repository) return std::unexpected(repository.error());
  return Start(
      party, [this, name = std::move(name), repository = *std::move(repository), party](Transfer& transfer) {
        return registry::PullFiles({settings_, policy_, store_, transfer, name}, repository, party);
      });
}

api::Result<std::shared_ptr<Transfer>> Transfers::Push(api::ModelName name, bool insecure,
                                                       const fair::PartyId& party) {
  return Start(party, [this, name = std::move(name), insecure](Transfer& transfer) {
    return registry::Push({settings_, policy_, store_, transfer, name, insecure});
  });
}

}  // namespace quire::server::registry
