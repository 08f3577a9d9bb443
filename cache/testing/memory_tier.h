// Test only. A lower tier in memory that can be late, silent or wrong.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cache/lower_tier.h"

namespace quire::cache {

class MemoryTier : public LowerTier {
 public:
  explicit MemoryTier(Layout layout) : layout_(std::move(layout)) {}

  enum class Fault : uint8_t { kNone, kFails, kTooFar, kWrongSegment, kTooManyBytes, kEndsEarly, kFaults };
  Fault fault = Fault::kNone;
  int late = 0;        // polls that every answer takes
  bool never = false;  // no answer at all
  size_t piece = 100;  // bytes of an answer
  size_t bytes_requested = 0;

  bool StartFetch(std::string_view isolation, std::span<const TokenId> tokens, Position matched,
                  Position restorable) override;
  Fetched PollFetch() override;
  void ContinueFetch() override;
  void CancelFetch() override { fetch_.reset(); }
  bool StartStore(std::string_view isolation, std::span<const TokenId> tokens) override;
  Wanted PollStore() override;
  void ContinueStore() override;
  void CancelStore() override { store_.reset(); }

  bool idle() const { return !fetch_ && !store_; }
  size_t segments() const { return segments_.size(); }

 private:
  using Tokens = std::vector<TokenId>;
  using Key = std::tuple<std::string, Tokens, bool>;
  struct Transfer {
    std::string isolation;
    Tokens tokens;
    std::vector<Segment> segments;
    size_t segment = 0;
    size_t offset = 0;
    bool accepted = false;
    int waits = 0;
    std::vector<std::byte> bytes = {};
    Position to = 0;
  };

  Key KeyOf(const Transfer& transfer, const Segment& segment) const {
    const auto end = transfer.tokens.begin() + segment.to;
    return {transfer.isolation, Tokens(transfer.tokens.begin(), end), segment.state};
  }
  bool Has(const Transfer& transfer, const std::vector<Segment>& segments) const;
  bool Waits(Transfer& transfer);
  void Skip(Transfer& transfer) const;

  Layout layout_;
  std::map<Key, std::vector<std::byte>> segments_;
  std::optional<Transfer> fetch_, store_;
};

}  // namespace quire::cache
