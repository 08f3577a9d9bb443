// Who may still need a blob that no model names: creates in progress, and clients that asked for it and got a yes.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace quire::server {

// I/O thread only; outlives its leases.
class BlobUsers {
 public:
  using Clock = std::chrono::steady_clock;

  // Keeps blobs for a request in progress until it goes.
  class Lease {
   public:
    explicit Lease(BlobUsers& users) : users_(users) {}
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease() { Release(); }

    void Add(const std::string& blob) {
      blobs_.push_back(blob);
      ++users_.held_[blob];
    }
    void Release() {
      for (const std::string& blob : std::exchange(blobs_, {})) {
        const auto held = users_.held_.find(blob);
        if (--held->second == 0) users_.held_.erase(held);
      }
    }

   private:
    BlobUsers& users_;
    std::vector<std::string> blobs_;
  };

  // A client asked for the blob, and it was there.
  void Promise(const std::string& blob, Clock::time_point now) {
    constexpr size_t kManyPromises = 4096;
    if (promised_.size() >= kManyPromises) {
      std::erase_if(promised_, [now](const auto& entry) { return now - entry.second > kForgetAfter; });
    }
    promised_[blob] = now;
  }
  // Whether nobody holds it, and nobody was promised it after `since`. A client that looked before may still be at work on its
  // other files.
  bool Free(const std::string& blob, Clock::time_point since) const {
    if (held_.contains(blob)) return false;
    const auto promised = promised_.find(blob);
    return promised == promised_.end() || promised->second <= since;
  }

 private:
  static constexpr std::chrono::hours kForgetAfter{24};

  std::map<std::string, int> held_;
  std::map<std::string, Clock::time_point> promised_;
};

}  // namespace quire::server
