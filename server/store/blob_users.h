// Who may still need a blob that no model names: creates and pulls in progress, and clients that asked and
// heard that it is there. Whatever takes blobs away asks here first. The governor shares what is scarce; this
// says which files must stay.
//
// A removal looks and unlinks as one step against AwaitRemoval(): whoever holds a blob, or was promised it,
// and then awaits the removal under way, finds the blob in place for as long as it needs it, or already gone.
//
// Any thread. Only Remove() and AwaitRemoval() may block.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "api/base/fair/party.h"
#include "api/base/mutex.h"

namespace quire::server {

class BlobUsers {
 public:
  using Clock = std::chrono::steady_clock;
  // How long a client may take from its first file to its create.
  static constexpr std::chrono::hours kPromiseTime{24};

  // Keeps blobs for a request in progress until it goes. One thread at a time; the users outlive it.
  class Lease {
   public:
    explicit Lease(BlobUsers& users) : users_(users) {}
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease() { Release(); }

    void Add(const std::string& blob) noexcept;
    // The same for a client of this party: the oldest promise that it has of the blob is kept with this, or,
    // where it has none, the oldest of anybody, as a client may upload and create from two addresses.
    void Redeem(const std::string& blob, const fair::PartyId& party);
    void Release();

   private:
    BlobUsers& users_;
    std::vector<std::string> blobs_;
  };

  // A client of this party asks whether the blob is there. Before the look, so that what is
  // found stays. There are at most 64 for one blob, 8,192 for one party and 32,768 in all: the oldest goes.
  void Promise(const std::string& blob, const fair::PartyId& party, Clock::time_point now);
  // It was not there: takes back the oldest promise of the party's.
  void Withdraw(const std::string& blob, const fair::PartyId& party);

  // Calls `unlink` unless somebody holds the blob or was promised it.
  void Remove(const std::string& blob, Clock::time_point now, const std::function<void()>& unlink);
  // Waits for a removal that may have begun before a lease or a promise was made.
  void AwaitRemoval();

 private:
  struct Given;
  using Promises = std::list<Given>;
  using Ages = std::list<Promises::iterator>;
  struct Given {
    std::string blob;
    fair::PartyId party;
    Clock::time_point at;
    Ages::iterator in_blob = {}, in_party = {};
  };

  bool Free(const std::string& blob, Clock::time_point now);
  // The oldest promise of the blob that the party has, or, if there is none and `or_other`, of anybody.
  void BreakOne(const std::string& blob, const fair::PartyId& party, bool or_other);
  void Break(Promises::iterator promise) REQUIRES(mutex_);

  api::Mutex removal_;  // held by a removal from its look to its end; before mutex_
  api::Mutex mutex_;
  std::map<std::string, int> held_ GUARDED_BY(mutex_);
  Promises promises_ GUARDED_BY(mutex_);                    // oldest first, as all lists of them
  std::map<std::string, Ages> of_blob_ GUARDED_BY(mutex_);  // an empty one is as none
  std::map<uint64_t, Ages> of_party_ GUARDED_BY(mutex_);    // by number; likewise
};

}  // namespace quire::server
