#include "server/tier/named_prefix.h"

#include <fmt/format.h>

#include <span>
#include <string_view>
#include <utility>

#include "api/base/parse_integer.h"
#include "api/base/request.h"

namespace quire::server {
namespace {

// Never the end of a prefix that can be restored, as those lack their state: lists of prefixes leave it out.
// The prefix has the salt.
PrefixOrigin OriginOf(const SlotOwner& owner) {
  return {.files = owner.model,
          .byte_class = "named",
          .isolation = api::Client{.tenant = owner.tenant, .cache_salt = {}}.IsolationKey(),
          .segment_tokens = 1,
          .needs_state = true};
}

}  // namespace

api::Result<void> SaveNamedPrefix(DiskTier& tier, const SlotOwner& owner, const std::string& name,
                                  const SlotPrefix& prefix) {
  const PrefixOrigin origin = OriginOf(owner);
  const std::string text = fmt::format("{} {}", prefix.num_ctx, prefix.cache_salt);
  StoredSegment segment{.parent = HmacOf(tier.RootOf(origin), name),
                        .to = static_cast<int64_t>(prefix.tokens.size()),
                        .bytes = text.size()};
  segment.key = ObjectKey(segment.parent, false);
  tier.Prune(std::span(&segment.key, 1));
  const auto writer = tier.Create(segment, prefix.tokens, &origin);
  if (writer && writer->Write(text) && writer->Commit()) return {};
  return api::Fail(api::ErrorCode::kUnavailable, "the folder of prefixes takes no file now");
}

std::optional<SlotPrefix> ReadNamedPrefix(DiskTier& tier, const SlotOwner& owner, const std::string& name) {
  const SnapshotKey key = ObjectKey(HmacOf(tier.RootOf(OriginOf(owner)), name), false);
  const auto reader = tier.OpenSegment(key);
  if (!reader) return std::nullopt;
  std::string text(reader->bytes(), '\0');
  if (!reader->Read(text) || !reader->Verify()) return std::nullopt;
  tier.Touch(std::span(&key, 1));
  const size_t blank = text.find(' ');
  const auto num_ctx = api::ParseInteger<int32_t>(std::string_view(text).substr(0, blank));
  if (!num_ctx) return std::nullopt;
  return SlotPrefix{{reader->tokens().begin(), reader->tokens().end()}, text.substr(blank + 1), *num_ctx};
}

SlotFiles SlotFilesOf(std::function<bool()> ready,
                      std::function<api::Result<std::shared_ptr<DiskTier>>()> find_tier) {
  auto read = [find_tier](const SlotOwner& owner,
                          const std::string& name) -> api::Result<std::optional<SlotPrefix>> {
    const auto tier = find_tier();
    if (!tier) return std::unexpected(tier.error());
    return ReadNamedPrefix(**tier, owner, name);
  };
  auto write = [find_tier = std::move(find_tier)](const SlotOwner& owner, const std::string& name,
                                                  const SlotPrefix& prefix) -> api::Result<void> {
    const auto tier = find_tier();
    if (!tier) return std::unexpected(tier.error());
    return SaveNamedPrefix(**tier, owner, name, prefix);
  };
  return {std::move(ready), std::move(read), std::move(write)};
}

}  // namespace quire::server
