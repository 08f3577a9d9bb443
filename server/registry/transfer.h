// A pull or push in progress: it runs on its own thread and reports its progress on request.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "api/base/error.h"
#include "api/base/model_name.h"
#include "api/base/mutex.h"
#include "server/registry/session.h"
#include "server/registry/store_transfer.h"

namespace quire::server::registry {

// Between looks at whether a transfer was canceled.
inline constexpr auto kPause = std::chrono::milliseconds(100);

// Progress since the last TakeProgress().
struct TransferProgress {
  std::string status;
  std::string digest = {};  // empty: no bytes are counted
  int64_t total = 0;
  int64_t completed = 0;
};

// Shared by the working thread and the client's handler; any thread.
class Transfer {
 public:
  void SetStatus(std::string status);
  // Bytes of a blob; only the latest count of one is kept.
  void Count(const std::string& status, const std::string& digest, int64_t total, int64_t completed);
  void End(api::Result<void> result);

  std::vector<TransferProgress> TakeProgress();
  // Nothing while it works.
  std::optional<api::Result<void>> result() const;

  // The work ends soon after this, with kCancelled.
  void Cancel() { cancelled_ = true; }
  const std::atomic<bool>& cancelled() const { return cancelled_; }

 private:
  mutable api::Mutex mutex_;
  std::vector<TransferProgress> progress_ GUARDED_BY(mutex_);
  std::optional<api::Result<void>> result_ GUARDED_BY(mutex_);
  std::atomic<bool> cancelled_ = false;
};

// Starts transfers and sees to it that none outlives it. I/O thread only.
class Transfers {
 public:
  Transfers(Settings settings, StoreTransfer store);
  ~Transfers();  // cancels all and waits for them
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  // kOverloaded when too many are under way.
  api::Result<std::shared_ptr<Transfer>> Pull(api::ModelName name, bool insecure);
  api::Result<std::shared_ptr<Transfer>> Push(api::ModelName name, bool insecure);
  void CancelAll();

 private:
  struct Running {
    std::shared_ptr<Transfer> transfer;
    std::jthread thread;
  };
  template <class Work>
  api::Result<std::shared_ptr<Transfer>> Start(Work work);

  const Settings settings_;
  const AddressPolicy policy_;
  const StoreTransfer store_;
  std::vector<Running> running_;
};

// The work of the threads. They block until it is done or canceled.
struct TransferJob {
  const Settings& settings;
  const AddressPolicy& policy;
  const StoreTransfer& store;
  Transfer& transfer;
  api::ModelName name;
  bool insecure = false;
};
api::Result<void> Pull(const TransferJob& job);
api::Result<void> Push(const TransferJob& job);

}  // namespace quire::server::registry
