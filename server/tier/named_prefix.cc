#include "server/tier/named_prefix.h"

#include <memory>

namespace quire::server {
namespace {

// Never the end of a prefix that can be restored, as those lack their state: lists of prefixes leave it out.
PrefixOrigin OriginOf(const PrefixName& name) {
  return {.files = name.model,
          .byte_class = "named",
          .isolation = name.isolation,
          .segment_tokens = 1,
          .needs_state = true};
}

}  // namespace

api::Result<void> SaveNamedPrefix(DiskTier& tier, const PrefixName& name, std::span<const int32_t> tokens,
                                  std::string_view text) {
  const PrefixOrigin origin = OriginOf(name);
  StoredSegment segment{.parent = HmacOf(tier.RootOf(origin), name.name),
                        .to = static_cast<int64_t>(tokens.size()),
                        .bytes = text.size()};
  segment.key = ObjectKey(segment.parent, false);
  tier.Prune(std::span(&segment.key, 1));
  const auto writer = tier.Create(segment, tokens, &origin);
  if (writer && writer->Write(text) && writer->Commit()) return {};
  return api::Fail(api::ErrorCode::kUnavailable, "the folder of prefixes takes no file now");
}

std::optional<NamedPrefix> ReadNamedPrefix(DiskTier& tier, const PrefixName& name) {
  const SnapshotKey key = ObjectKey(HmacOf(tier.RootOf(OriginOf(name)), name.name), false);
  const auto reader = tier.OpenSegment(key);
  if (!reader) return std::nullopt;
  NamedPrefix found{{reader->tokens().begin(), reader->tokens().end()}, std::string(reader->bytes(), '\0')};
  if (!reader->Read(found.text) || !reader->Verify()) return std::nullopt;
  tier.Touch(std::span(&key, 1));
  return found;
}

}  // namespace quire::server
