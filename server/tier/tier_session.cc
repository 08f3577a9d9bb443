#include "server/tier/tier_session.h"

#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "server/tier/prefix_search.h"

namespace quire::server {
namespace {

namespace ipc = api::ipc;
using ipc::SnapshotHeader;
using ipc::SnapshotMessage;

constexpr int64_t kSegmentTokensMax = 1 << 16;

}  // namespace

TierSession::TierSession(api::FileDescriptor socket, std::byte* memory, Settings settings, TierSource tier)
    : socket_(std::move(socket)),
      memory_(memory),
      settings_(std::move(settings)),
      write_rate_(settings_.write_bytes_per_second),
      source_(std::move(tier)),
      thread_([this] {
        pthread_setname_np(pthread_self(), "quire-tier");
        Run();
        // Here: who destroys the session may not wait for a disk.
        reader_.reset();
        writer_.reset();
        ::shutdown(socket_.get(), SHUT_RDWR);
        over_ = true;
      }) {}

TierSession::~TierSession() {
  ::shutdown(socket_.get(), SHUT_RDWR);
  thread_.join();
  ::munmap(memory_, ipc::kSnapshotMemoryBytes);
}

void TierSession::Run() {
  const Opened opened = source_();
  tier_ = opened.tier;
  program_ = opened.program;
  redis_ = opened.redis;
  if (tier_ == nullptr) return;
  std::array<char, sizeof(SnapshotHeader) + ipc::kSnapshotTextMax> message;
  while (true) {
    int timeout_ms = -1;
    if (request_at_) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*request_at_ - Clock::now());
      timeout_ms = static_cast<int>(std::max<int64_t>(left.count(), 0));
    }
    pollfd polled{socket_.get(), POLLIN, 0};
    const int ready = ::poll(&polled, 1, timeout_ms);
    if (ready < 0 && errno != EINTR) return;
    if (request_at_ && Clock::now() >= *request_at_) {
      request_at_.reset();
      if (!RequestPiece()) return;
    }
    if (ready <= 0) continue;
    const ssize_t n = ::recv(socket_.get(), message.data(), message.size(), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n < static_cast<ssize_t>(sizeof(SnapshotHeader))) return;
    SnapshotHeader header;
    std::memcpy(&header, message.data(), sizeof(header));
    const std::string_view text(message.data() + sizeof(header), static_cast<size_t>(n) - sizeof(header));
    if (header.magic != SnapshotHeader::kMagic) return;
    if (!Handle(header, text)) return;
  }
}

// False ends the link.
bool TierSession::Handle(const SnapshotHeader& header, std::string_view text) {
  if (header.type == SnapshotMessage::kHello) return !origin_ && Hello(header, text);
  if (!origin_ || header.generation == 0) return false;
  switch (header.type) {
    case SnapshotMessage::kFind:
      return Find(header, text);
    case SnapshotMessage::kNext:
      return header.generation != fetch_ || SendNext();
    case SnapshotMessage::kCancelFetch:
      if (header.generation != fetch_) return true;
      fetch_ = 0;
      reader_.reset();
      return true;
    case SnapshotMessage::kOffer:
      return Offer(header, text);
    case SnapshotMessage::kPiece:
      return header.generation != store_ || Store(header);
    case SnapshotMessage::kCancelStore:
      if (header.generation != store_) return true;
      store_ = 0;
      writer_.reset();
      request_at_.reset();
      return true;
    default:
      return false;
  }
}

bool TierSession::Send(SnapshotHeader header) {
  return ::send(socket_.get(), &header, sizeof(header), MSG_NOSIGNAL) == sizeof(header);
}

bool TierSession::Hello(const SnapshotHeader& header, std::string_view text) {
  if (header.tokens == 0 || header.tokens > kSegmentTokensMax) return false;
  origin_ = PrefixOrigin{.model = settings_.model,
                         .program = program_,
                         .files = settings_.identity,
                         .byte_class = std::string(text),
                         .segment_tokens = header.tokens,
                         .needs_state = header.state != 0};
  return true;
}

PrefixOrigin TierSession::OriginFor(std::string_view isolation) const {
  PrefixOrigin origin = *origin_;
  origin.isolation = isolation;
  return origin;
}

std::optional<KeyChain> TierSession::ChainOf(const SnapshotHeader& header, size_t area,
                                             std::string_view isolation) const {
  if (header.tokens == 0 || header.tokens > ipc::kSnapshotTokensMax) return std::nullopt;
  std::vector<int32_t> tokens(header.tokens);
  std::memcpy(tokens.data(), memory_ + area, tokens.size() * sizeof(int32_t));
  return KeyChain(tier_->RootOf(OriginFor(isolation)), std::move(tokens), origin_->segment_tokens);
}

// ---- fetching ----

bool TierSession::Find(const SnapshotHeader& header, std::string_view isolation) {
  auto chain = ChainOf(header, ipc::kFindTokensArea, isolation);
  if (!chain || header.from < 0 || header.to < 0 || header.from > chain->tokens() ||
      header.to > chain->tokens()) {
    return false;
  }
  fetch_ = header.generation;
  fetching_.clear();
  fetch_at_ = 0;
  fetch_offset_ = 0;
  reader_.reset();
  fetch_origin_ = OriginFor(isolation);
  fetch_remote_ = redis_ == nullptr ? KeyChain() : chain->WithRoot(redis_->RootOf(fetch_origin_));
  fetch_chain_ = *std::move(chain);
  const bool needs_state = origin_->needs_state;
  PrefixSearch search(*tier_, redis_, fetch_chain_, fetch_remote_, needs_state);
  SnapshotHeader found{.type = SnapshotMessage::kFound, .generation = fetch_};
  found.to = search.Longest(header.from, header.to);
  if (found.to > 0) {
    const int64_t segment_tokens = origin_->segment_tokens;
    const int64_t from = std::min(header.from, found.to - 1) / segment_tokens * segment_tokens;
    fetching_ = fetch_chain_.Pieces(from, found.to, needs_state);
    std::vector<SnapshotKey> keys;
    for (const PrefixPiece& piece : fetch_chain_.Pieces(0, found.to, needs_state)) keys.push_back(piece.key);
    for (const PrefixPiece& piece : fetching_) found.bytes += search.BytesOf(piece.to, piece.state);
    tier_->Touch(keys);
  } else {
    fetch_ = 0;
  }
  return Send(found);
}

// From disk; what is only in Redis goes there first.
std::unique_ptr<DiskTier::Reader> TierSession::OpenPiece(const PrefixPiece& piece) {
  if (redis_ != nullptr && !tier_->Has(piece.key)) {
    const StoredSegment segment{
        piece.key, fetch_chain_.Prefix(piece.begin()), piece.from, piece.to, piece.state, 0};
    redis_->Download(fetch_remote_.Object(piece.to, piece.state), segment,
                     fetch_chain_.Tokens(piece.from, piece.to),
                     segment.begins_prefix() ? &fetch_origin_ : nullptr);
  }
  return tier_->OpenSegment(piece.key);
}

bool TierSession::EndFetch(SnapshotMessage message) {
  SnapshotHeader end{.type = message, .generation = std::exchange(fetch_, 0)};
  reader_.reset();
  return Send(end);
}

// The next piece, or the end. Segments without bytes are none that a runner asks for.
bool TierSession::SendNext() {
  while (fetch_at_ < fetching_.size()) {
    const PrefixPiece& piece = fetching_[fetch_at_];
    if (!reader_) reader_ = OpenPiece(piece);
    if (!reader_) return EndFetch(SnapshotMessage::kFailed);
    if (fetch_offset_ == reader_->bytes()) {
      if (!reader_->Verify()) return EndFetch(SnapshotMessage::kFailed);
      reader_.reset();
      ++fetch_at_;
      fetch_offset_ = 0;
      continue;
    }
    const size_t bytes = std::min<uint64_t>(ipc::kSnapshotPieceBytes, reader_->bytes() - fetch_offset_);
    // Into memory that the runner cannot change, so that what is hashed is what was read.
    buffer_.resize(bytes);
    if (!reader_->Read(buffer_)) return EndFetch(SnapshotMessage::kFailed);
    std::memcpy(memory_ + ipc::kFetchedArea, buffer_.data(), bytes);
    SnapshotHeader header{.type = SnapshotMessage::kBytes, .generation = fetch_};
    header.from = piece.from;
    header.to = piece.to;
    header.state = piece.state ? 1 : 0;
    header.offset = fetch_offset_;
    header.bytes = bytes;
    fetch_offset_ += bytes;
    return Send(header);
  }
  if (!fetching_.empty()) tier_->CountHit(fetching_.back().key);
  return EndFetch(SnapshotMessage::kEnd);
}

// ---- storing ----

bool TierSession::EndStore() {
  writer_.reset();
  request_at_.reset();
  return Send({.type = SnapshotMessage::kStored, .generation = std::exchange(store_, 0)});
}

// The whole prefix is on disk. What of it Redis has already is known there.
void TierSession::SendToRedis() {
  if (redis_ == nullptr) return;
  const KeyChain remote = store_chain_.WithRoot(redis_->RootOf(store_origin_));
  const std::vector<PrefixPiece> pieces = store_chain_.Pieces(0, store_chain_.tokens(), origin_->needs_state);
  std::vector<RedisTier::Upload> uploads;
  uploads.reserve(pieces.size());
  for (const PrefixPiece& piece : pieces) {
    uploads.push_back({piece.key, remote.Object(piece.to, piece.state), remote.Prefix(piece.begin()),
                       piece.to, piece.state});
  }
  redis_->Send(uploads);
}

bool TierSession::Offer(const SnapshotHeader& header, std::string_view isolation) {
  auto chain = ChainOf(header, ipc::kOfferTokensArea, isolation);
  if (!chain) return false;
  store_ = header.generation;
  store_at_ = 0;
  store_offset_ = 0;
  writer_.reset();
  storing_ = chain->Pieces(0, chain->tokens(), origin_->needs_state);
  std::vector<SnapshotKey> keys;
  keys.reserve(storing_.size());
  for (const PrefixPiece& piece : storing_) keys.push_back(piece.key);
  tier_->Touch(keys);
  std::erase_if(storing_, [this](const PrefixPiece& piece) { return tier_->Has(piece.key); });
  store_origin_ = OriginFor(isolation);
  store_chain_ = *std::move(chain);
  return RequestPiece();
}

// Asks for the next piece, once the rate allows it.
bool TierSession::RequestPiece() {
  if (request_at_) return true;
  if (store_at_ == storing_.size()) {
    SendToRedis();
    return EndStore();
  }
  const PrefixPiece& piece = storing_[store_at_];
  SnapshotHeader wanted{.type = SnapshotMessage::kWanted, .generation = store_};
  wanted.from = piece.from;
  wanted.to = piece.to;
  wanted.state = piece.state ? 1 : 0;
  wanted.offset = store_offset_;
  return Send(wanted);
}

bool TierSession::Store(const SnapshotHeader& header) {
  if (store_at_ >= storing_.size() || request_at_) return false;
  const PrefixPiece& piece = storing_[store_at_];
  if (header.bytes > ipc::kSnapshotPieceBytes || header.total < store_offset_ ||
      header.bytes > header.total - store_offset_ || (header.bytes == 0 && header.total > 0)) {
    return false;
  }
  if (!writer_) {
    const StoredSegment segment{
        piece.key, store_chain_.Prefix(piece.begin()), piece.from, piece.to, piece.state, header.total};
    writer_ = tier_->Create(segment, store_chain_.Tokens(piece.from, piece.to),
                            segment.begins_prefix() ? &store_origin_ : nullptr);
    if (!writer_) return EndStore();
  }
  const auto* bytes = reinterpret_cast<const char*>(memory_ + ipc::kStoredArea);
  buffer_.assign(bytes, bytes + header.bytes);
  if (!writer_->Write(buffer_)) return EndStore();
  store_offset_ += header.bytes;
  if (store_offset_ == header.total) {
    if (!writer_->Commit()) return EndStore();
    writer_.reset();
    ++store_at_;
    store_offset_ = 0;
  }
  request_at_ = write_rate_.NextAfter(header.bytes, Clock::now());
  return true;
}

}  // namespace quire::server
