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
#include "api/base/fair/quota.h"
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

// A file of a hub's repository that is a blob of the store now; the pull's party was promised it.
struct FetchedFile {
  std::string path;
  std::string digest;  // "sha256:<64 hex>"
};
// What a pull from a hub has brought.
struct FetchedFiles {
  std::vector<FetchedFile> files;
  std::string quantize;    // the type that the name asks for; empty: as they are
  Layer source;            // the list of them, which the model keeps
  bool unchanged = false;  // the stored model was made of them: nothing was brought
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

  void SetFiles(FetchedFiles files);
  FetchedFiles ConsumeFiles();  // once it has ended

  // The work ends soon after this, with kCancelled.
  void Cancel() { cancelled_ = true; }
  const std::atomic<bool>& cancelled() const { return cancelled_; }

 private:
  mutable api::Mutex mutex_;
  std::vector<TransferProgress> progress_ GUARDED_BY(mutex_);
  std::optional<api::Result<void>> result_ GUARDED_BY(mutex_);
  FetchedFiles files_ GUARDED_BY(mutex_);
  std::atomic<bool> cancelled_ = false;
};

// Starts transfers and sees to it that none outlives it. I/O thread only.
class Transfers {
 public:
  Transfers(Settings settings, StoreTransfer store);
  ~Transfers();  // cancels all and waits for them
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  // kOverloaded when too many are under way, of the party or of all.
  api::Result<std::shared_ptr<Transfer>> Pull(api::ModelName name, bool insecure, const fair::PartyId& party);
  // The files of a repository, of which a model is still to be made. `party` is promised their blobs
  // (BlobUsers). REQUIRES: IsOfHub(name). kInvalidArgument: a part of the request is ill-formed.
  api::Result<std::shared_ptr<Transfer>> PullFiles(api::ModelName name, const HubRequest& request,
                                                   const fair::PartyId& party);
  api::Result<std::shared_ptr<Transfer>> Push(api::ModelName name, bool insecure, const fair::PartyId& party);
  void CancelAll();

 private:
  struct Running {
    std::shared_ptr<Transfer> transfer;
    fair::Quota::Lease place;
    std::jthread thread;
  };
  template <class Work>
  api::Result<std::shared_ptr<Transfer>> Start(const fair::PartyId& party, Work work);

  const Settings settings_;
  const AddressPolicy policy_;
  const StoreTransfer store_;
  fair::Quota places_;
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
api::Result<void> PullFiles(const TransferJob& job, const HubRepository& repository,
                            const fair::PartyId& party);

}  // namespace quire::server::registry
