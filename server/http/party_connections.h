// How many connections each party has (PartyOf without a key: an address). I/O thread only.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>

namespace quire::server {

class PartyConnections {
 public:
  // Counts a connection while it lives.
  class Lease {
   public:
    // The counts outlive the lease. Throws std::bad_alloc.
    Lease(PartyConnections& all, std::string party)
        : all_(all), own_(all.counts_.try_emplace(std::move(party), 0).first) {
      ++own_->second;
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease() {
      if (--own_->second == 0) all_.counts_.erase(own_);
    }
    // All connections of the same party.
    size_t count() const { return own_->second; }
    const std::string& party() const { return own_->first; }

   private:
    PartyConnections& all_;
    std::map<std::string, size_t>::iterator own_;
  };

  size_t CountOf(const std::string& party) const {
    const auto found = counts_.find(party);
    return found == counts_.end() ? 0 : found->second;
  }

 private:
  std::map<std::string, size_t> counts_;  // no zeros
};

}  // namespace quire::server
