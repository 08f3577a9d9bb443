// The runner's end of the link to the daemon's snapshot tier (api/ipc/snapshot_link.h).
//
// Nothing here blocks: what the socket does not take at once ends the link. Engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "api/base/file_descriptor.h"
#include "api/ipc/snapshot_link.h"
#include "cache/lower_tier.h"

namespace quire::runner::engine {

class TierLink : public cache::LowerTier {
 public:
  // `socket` and `memory` as the daemon made them. `byte_class` names everything that the bytes of a prefix
  // depend on and the daemon does not know. Null: the memory cannot be mapped.
  static std::unique_ptr<TierLink> Open(api::FileDescriptor socket, const api::FileDescriptor& memory,
                                        const cache::Layout& layout, std::string_view byte_class);
  ~TierLink() override;

  bool StartFetch(std::string_view isolation, std::span<const cache::TokenId> tokens, cache::Position matched,
                  cache::Position restorable) override;
  Fetched PollFetch() override;
  void ContinueFetch() override;
  void CancelFetch() override;
  bool StartStore(std::string_view isolation, std::span<const cache::TokenId> tokens) override;
  Wanted PollStore() override;
  void ContinueStore() override;
  void CancelStore() override;

  bool alive() const { return socket_.valid(); }
  uint64_t answers() const { return answers_; }  // so far

 private:
  TierLink(api::FileDescriptor socket, std::byte* memory, const cache::Layout& layout);

  bool Send(const api::ipc::SnapshotHeader& header, std::string_view text = {});
  void Receive();
  void Accept(const api::ipc::SnapshotHeader& header);
  bool PutTokens(size_t area, std::span<const cache::TokenId> tokens, std::string_view isolation);

  api::FileDescriptor socket_;
  std::byte* const memory_;
  const cache::Layout layout_;
  uint64_t generation_ = 0;
  uint64_t answers_ = 0;
  uint64_t fetch_ = 0;  // generation; 0: none
  uint64_t store_ = 0;
  std::optional<api::ipc::SnapshotHeader> fetch_answer_;  // that waits for PollFetch()
  std::optional<api::ipc::SnapshotHeader> store_answer_;
  size_t wanted_bytes_ = 0;  // of the piece that is being filled
  size_t wanted_total_ = 0;
};

}  // namespace quire::runner::engine
