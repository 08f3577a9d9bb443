#include "server/tier/prefix_archive.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <utility>

#include "api/ipc/snapshot_link.h"
#include "server/tier/isolation_key.h"

namespace quire::server {
namespace {

constexpr std::string_view kArchiveMagic = "QPEXPRT1";
constexpr uint64_t kArchiveOriginBytesMax = uint64_t{64} << 10;
constexpr uint64_t kRowsMax = 1 << 18;
constexpr size_t kPieceBytes = size_t{1} << 20;

// As it lies in the file: little-endian.
struct ArchiveHead {
  std::array<char, 8> magic{};
  uint64_t origin_bytes = 0;
  uint64_t tokens = 0;
  uint64_t rows = 0;
};
static_assert(sizeof(ArchiveHead) == 32);

template <class T>
std::string_view BytesOf(const T* values, size_t count) {
  static_assert(std::is_trivially_copyable_v<T>);
  return {reinterpret_cast<const char*>(values), count * sizeof(T)};
}

// The weights, "sha256-<64 hex>", with which PrefixOrigin::files ends. Nothing: they are not named by their
// content, and no other machine knows them.
std::optional<std::string_view> WeightsOf(const PrefixOrigin& origin) {
  constexpr std::string_view kDigest = "sha256-";
  constexpr size_t kHexCharacters = 64;
  const std::string_view files = origin.files;
  if (files.size() < kDigest.size() + kHexCharacters) return std::nullopt;
  const std::string_view weights = files.substr(files.size() - kDigest.size() - kHexCharacters);
  const bool hex = weights.substr(kDigest.size()).find_first_not_of("0123456789abcdef") == weights.npos;
  if (!weights.starts_with(kDigest) || !hex) return std::nullopt;
  return weights;
}

std::unexpected<api::Error> Damaged(const char* what) {
  return api::Fail(api::ErrorCode::kInvalidArgument, fmt::format("the exported prefix is damaged: {}", what));
}

}  // namespace

// ---- export ----

api::Result<std::unique_ptr<PrefixExport>> PrefixExport::Open(DiskTier& tier, const SnapshotKey& id) {
  const auto prefix = tier.PrefixOf(id);
  if (!prefix) return api::Fail(api::ErrorCode::kNotFound, "no such prefix");
  if (!WeightsOf(prefix->origin)) {
    return api::Fail(api::ErrorCode::kUnsupported,
                     "the model is not a file of the store: no other machine knows it by its content");
  }
  std::unique_ptr<PrefixExport> result(new PrefixExport(tier));
  result->keys_ = tier.SegmentsOf(id);
  std::string tokens;
  std::string rows;
  for (const SnapshotKey& key : result->keys_) {
    const auto reader = tier.OpenSegment(key);
    if (!reader) return api::Fail(api::ErrorCode::kNotFound, "a part of the prefix is gone");
    const StoredSegment& segment = reader->segment();
    tokens += BytesOf(reader->tokens().data(), reader->tokens().size());
    const std::array<uint64_t, 4> row = {static_cast<uint64_t>(segment.from),
                                         static_cast<uint64_t>(segment.to),
                                         segment.state ? uint64_t{1} : uint64_t{0}, segment.bytes};
    rows += BytesOf(row.data(), row.size());
    rows += BytesOf(reader->content().data(), reader->content().size());
    result->contents_.push_back(reader->content());
  }
  const std::string origin = EncodeOrigin(prefix->origin);
  ArchiveHead head{
      .origin_bytes = origin.size(), .tokens = tokens.size() / sizeof(int32_t), .rows = result->keys_.size()};
  kArchiveMagic.copy(head.magic.data(), head.magic.size());
  std::string& bytes = result->head_;
  bytes = BytesOf(&head, 1);
  bytes.append(origin).append(tokens).append(rows);
  const SnapshotKey hash = HashOf(bytes);
  bytes += BytesOf(hash.data(), hash.size());
  return result;
}

api::Result<std::string> PrefixExport::Next() {
  if (!head_.empty()) return std::exchange(head_, {});
  while (at_ < keys_.size()) {
    if (!reader_) {
      reader_ = tier_.OpenSegment(keys_[at_]);
      offset_ = 0;
    }
    if (!reader_ || reader_->content() != contents_[at_])
      return api::Fail(api::ErrorCode::kNotFound, "a part of the prefix is gone");
    if (offset_ == reader_->bytes()) {
      if (!reader_->Verify())
        return api::Fail(api::ErrorCode::kNotFound, "a part of the prefix was damaged on disk");
      reader_.reset();
      ++at_;
      continue;
    }
    std::string bytes(std::min<uint64_t>(kPieceBytes, reader_->bytes() - offset_), '\0');
    if (!reader_->Read(bytes))
      return api::Fail(api::ErrorCode::kNotFound, "a part of the prefix cannot be read");
    offset_ += bytes.size();
    return bytes;
  }
  return std::string();
}

// ---- import ----

// False: more bytes are needed.
api::Result<bool> PrefixImport::ParseHead() {
  ArchiveHead head;
  const size_t known = std::min(pending_.size(), kArchiveMagic.size());
  if (std::string_view(pending_).substr(0, known) != kArchiveMagic.substr(0, known)) {
    return api::Fail(api::ErrorCode::kInvalidArgument,
                     imported_.ids.empty() ? "not an exported prefix of this version of Quire"
                                           : "the exported prefix is damaged: what follows it is none");
  }
  if (pending_.size() < sizeof(head)) return false;
  std::memcpy(&head, pending_.data(), sizeof(head));
  if (head.origin_bytes > kArchiveOriginBytesMax || head.tokens == 0 ||
      head.tokens > api::ipc::kSnapshotTokensMax || head.rows == 0 || head.rows > kRowsMax) {
    return Damaged("its header");
  }
  const size_t hashed =
      sizeof(head) + head.origin_bytes + head.tokens * sizeof(int32_t) + head.rows * sizeof(Row);
  if (pending_.size() < hashed + sizeof(SnapshotKey)) return false;
  const SnapshotKey hash = HashOf(std::string_view(pending_).substr(0, hashed));
  if (std::memcmp(hash.data(), pending_.data() + hashed, hash.size()) != 0) return Damaged("its header");
  if (auto started = StartPrefix(std::string_view(pending_).substr(0, hashed)); !started)
    return std::unexpected(started.error());
  pending_.erase(0, hashed + sizeof(SnapshotKey));
  return true;
}

// REQUIRES: the hash of `bytes` was right.
api::Result<void> PrefixImport::StartPrefix(std::string_view bytes) {
  ArchiveHead head;
  std::memcpy(&head, bytes.data(), sizeof(head));
  bytes.remove_prefix(sizeof(head));
  auto origin = ParseOrigin(bytes.substr(0, head.origin_bytes));
  if (!origin || !WeightsOf(*origin)) return Damaged("what it depends on");
  bytes.remove_prefix(head.origin_bytes);
  if (origin->program != settings_.program) {
    return api::Fail(api::ErrorCode::kUnsupported,
                     fmt::format("the prefix of {} was computed by another version of quire-runner: it would "
                                 "never be used here",
                                 origin->model));
  }
  if (settings_.tenant) {
    auto isolation = WithTenant(origin->isolation, *settings_.tenant);
    if (!isolation) return Damaged("its owner");
    origin->isolation = *std::move(isolation);
  }
  std::vector<int32_t> tokens(head.tokens);
  std::memcpy(tokens.data(), bytes.data(), head.tokens * sizeof(int32_t));
  bytes.remove_prefix(head.tokens * sizeof(int32_t));
  rows_.resize(head.rows);
  std::memcpy(rows_.data(), bytes.data(), head.rows * sizeof(Row));
  origin_ = *std::move(origin);
  chain_.emplace(tier_.RootOf(origin_), std::move(tokens), origin_.segment_tokens);
  pieces_ = chain_->Pieces(0, chain_->tokens(), origin_.needs_state);
  at_ = 0;
  offset_ = 0;
  return CheckRows();
}

api::Result<void> PrefixImport::CheckRows() const {
  if (rows_.size() != pieces_.size()) return Damaged("its segments");
  uint64_t total = 0;
  const uint64_t budget = tier_.RefreshBudget();
  for (size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    const PrefixPiece& piece = pieces_[i];
    if (row.from != piece.from || row.to != piece.to || (row.state != 0) != piece.state)
      return Damaged("its segments");
    if (row.bytes > budget || total > budget - row.bytes) {
      return api::Fail(
          api::ErrorCode::kTooLarge,
          fmt::format("the prefix is larger than the disk space for prefixes, {} bytes", budget));
    }
    total += row.bytes;
  }
  return {};
}

api::Result<void> PrefixImport::OpenWriter() {
  const PrefixPiece& piece = pieces_[at_];
  skipping_ = tier_.Has(piece.key);
  if (skipping_) return {};
  const StoredSegment segment{
      piece.key, chain_->Prefix(piece.begin()), piece.from, piece.to, piece.state, rows_[at_].bytes};
  writer_ = tier_.Create(segment, chain_->Tokens(piece.from, piece.to),
                         segment.begins_prefix() ? &origin_ : nullptr);
  if (writer_) return {};
  return api::Fail(api::ErrorCode::kUnavailable, tier_.stats().writing
                                                     ? "the disk space for prefixes does not hold the prefix"
                                                     : "prefixes cannot be written now; the log says why");
}

// False: more bytes are needed.
api::Result<bool> PrefixImport::WriteSegment() {
  const Row& row = rows_[at_];
  if (!writer_ && !skipping_) {
    if (auto opened = OpenWriter(); !opened) return std::unexpected(opened.error());
  }
  const size_t bytes = std::min<uint64_t>(pending_.size(), row.bytes - offset_);
  if (bytes == 0 && offset_ < row.bytes) return false;
  if (writer_ && bytes > 0 && !writer_->Write(std::span(pending_).first(bytes)))
    return api::Fail(api::ErrorCode::kUnavailable, "prefixes cannot be written now; the log says why");
  pending_.erase(0, bytes);
  offset_ += bytes;
  if (offset_ < row.bytes) return false;
  if (writer_ && !writer_->Commit(&row.content)) {
    if (!tier_.stats().writing)
      return api::Fail(api::ErrorCode::kUnavailable, "prefixes cannot be written now; the log says why");
    return Damaged("the content of a segment");
  }
  ++(writer_ ? imported_.written : imported_.existing);
  writer_.reset();
  skipping_ = false;
  offset_ = 0;
  if (++at_ < pieces_.size()) return true;
  imported_.ids.push_back(pieces_.back().key);
  imported_.tokens += static_cast<uint64_t>(chain_->tokens());
  if (std::ranges::find(imported_.models, origin_.model) == imported_.models.end())
    imported_.models.push_back(origin_.model);
  chain_.reset();
  return true;
}

api::Result<void> PrefixImport::Write(std::string_view bytes) {
  pending_.append(bytes);
  while (!pending_.empty() || chain_) {
    const auto progress = chain_ ? WriteSegment() : ParseHead();
    if (!progress) return std::unexpected(progress.error());
    if (!*progress) return {};
  }
  return {};
}

api::Result<Imported> PrefixImport::Finish() {
  if (chain_ || !pending_.empty()) return Damaged("it ends too early");
  if (imported_.ids.empty()) return Damaged("it is empty");
  return imported_;
}

}  // namespace quire::server
