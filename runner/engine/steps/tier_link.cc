#include "runner/engine/steps/tier_link.h"

#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace quire::runner::engine {
namespace {

namespace ipc = api::ipc;
using ipc::SnapshotHeader;
using ipc::SnapshotMessage;

cache::Segment SegmentOf(const SnapshotHeader& header) { return {header.from, header.to, header.state != 0}; }

}  // namespace

std::unique_ptr<TierLink> TierLink::Open(api::FileDescriptor socket, const api::FileDescriptor& memory,
                                         const cache::Layout& layout, std::string_view byte_class) {
  void* mapped =
      ::mmap(nullptr, ipc::kSnapshotMemoryBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (mapped == MAP_FAILED) return nullptr;
  std::unique_ptr<TierLink> link(new TierLink(std::move(socket), static_cast<std::byte*>(mapped), layout));
  SnapshotHeader hello{.type = SnapshotMessage::kHello};
  hello.state = cache::NeedsState(layout) ? 1 : 0;
  hello.tokens = static_cast<uint32_t>(cache::SegmentTokens(layout));
  link->Send(hello, byte_class);
  return link;
}

TierLink::TierLink(api::FileDescriptor socket, std::byte* memory, const cache::Layout& layout)
    : socket_(std::move(socket)), memory_(memory), layout_(layout) {}

TierLink::~TierLink() { ::munmap(memory_, ipc::kSnapshotMemoryBytes); }

bool TierLink::Send(const SnapshotHeader& header, std::string_view text) {
  if (!alive()) return false;
  std::array<char, sizeof(SnapshotHeader) + ipc::kSnapshotTextMax> message;
  std::memcpy(message.data(), &header, sizeof(header));
  if (!text.empty()) std::memcpy(message.data() + sizeof(header), text.data(), text.size());
  const size_t size = sizeof(header) + text.size();
  const ssize_t sent = ::send(socket_.get(), message.data(), size, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent == static_cast<ssize_t>(size)) return true;
  socket_.Reset();
  return false;
}

void TierLink::Receive() {
  while (alive()) {
    SnapshotHeader header;
    const ssize_t n = ::recv(socket_.get(), &header, sizeof(header), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n != sizeof(header) || header.magic != SnapshotHeader::kMagic) return socket_.Reset();
    Accept(header);
  }
}

void TierLink::Accept(const SnapshotHeader& header) {
  ++answers_;
  const bool store = header.type == SnapshotMessage::kWanted || header.type == SnapshotMessage::kStored;
  const uint64_t current = store ? store_ : fetch_;
  if (header.generation == 0 || header.generation != current) return;  // of what was canceled
  (store ? store_answer_ : fetch_answer_) = header;
}

bool TierLink::PutTokens(size_t area, std::span<const cache::TokenId> tokens, std::string_view isolation) {
  if (!alive() || tokens.size() > ipc::kSnapshotTokensMax || isolation.size() > ipc::kSnapshotTextMax)
    return false;
  std::memcpy(memory_ + area, tokens.data(), tokens.size_bytes());
  return true;
}

bool TierLink::StartFetch(std::string_view isolation, std::span<const cache::TokenId> tokens,
                          cache::Position matched, cache::Position restorable) {
  if (fetch_ != 0 || !PutTokens(ipc::kFindTokensArea, tokens, isolation)) return false;
  SnapshotHeader find{
      .type = SnapshotMessage::kFind, .generation = ++generation_, .from = matched, .to = restorable};
  find.tokens = static_cast<uint32_t>(tokens.size());
  if (!Send(find, isolation)) return false;
  fetch_ = generation_;
  return true;
}

cache::LowerTier::Fetched TierLink::PollFetch() {
  Receive();
  if (!fetch_answer_) {
    if (alive()) return {};
    fetch_ = 0;
    return {.kind = Fetched::Kind::kFailed};
  }
  const SnapshotHeader answer = *fetch_answer_;
  switch (answer.type) {
    case SnapshotMessage::kFound:
      fetch_answer_.reset();
      if (answer.to == 0) fetch_ = 0;
      return {.kind = Fetched::Kind::kOffer, .to = answer.to, .bytes_total = answer.bytes};
    case SnapshotMessage::kBytes:
      if (answer.bytes > ipc::kSnapshotPieceBytes) break;
      return {.kind = Fetched::Kind::kBytes,
              .segment = SegmentOf(answer),
              .offset = answer.offset,
              .bytes = std::span<const std::byte>(memory_ + ipc::kFetchedArea, answer.bytes)};
    case SnapshotMessage::kEnd:
      fetch_answer_.reset();
      fetch_ = 0;
      return {.kind = Fetched::Kind::kEnd};
    default:
      break;
  }
  fetch_answer_.reset();
  fetch_ = 0;
  return {.kind = Fetched::Kind::kFailed};
}

void TierLink::ContinueFetch() {
  fetch_answer_.reset();
  Send({.type = SnapshotMessage::kNext, .generation = fetch_});
}

void TierLink::CancelFetch() {
  if (fetch_ != 0) Send({.type = SnapshotMessage::kCancelFetch, .generation = fetch_});
  fetch_ = 0;
  fetch_answer_.reset();
}

bool TierLink::StartStore(std::string_view isolation, std::span<const cache::TokenId> tokens) {
  if (store_ != 0 || !PutTokens(ipc::kOfferTokensArea, tokens, isolation)) return false;
  SnapshotHeader offer{.type = SnapshotMessage::kOffer, .generation = ++generation_};
  offer.tokens = static_cast<uint32_t>(tokens.size());
  if (!Send(offer, isolation)) return false;
  store_ = generation_;
  return true;
}

cache::LowerTier::Wanted TierLink::PollStore() {
  Receive();
  if (!store_answer_) {
    if (alive()) return {};
    store_ = 0;
    return {.kind = Wanted::Kind::kEnd};
  }
  const SnapshotHeader answer = *store_answer_;
  if (answer.type == SnapshotMessage::kStored) {
    store_answer_.reset();
    store_ = 0;
    return {.kind = Wanted::Kind::kEnd};
  }
  const cache::Segment segment = SegmentOf(answer);
  // Checked before any size is computed of it.
  const bool sound = segment.from >= 0 && segment.from <= segment.to &&
                     segment.to <= static_cast<cache::Position>(ipc::kSnapshotTokensMax);
  wanted_total_ = sound ? cache::SegmentBytes(layout_, segment) : 0;
  const size_t offset = std::min<size_t>(answer.offset, wanted_total_);
  wanted_bytes_ = std::min(ipc::kSnapshotPieceBytes, wanted_total_ - offset);
  return {.kind = Wanted::Kind::kWanted,
          .segment = segment,
          .offset = offset,
          .out = std::span<std::byte>(memory_ + ipc::kStoredArea, wanted_bytes_)};
}

void TierLink::ContinueStore() {
  store_answer_.reset();
  SnapshotHeader piece{.type = SnapshotMessage::kPiece, .generation = store_};
  piece.bytes = wanted_bytes_;
  piece.total = wanted_total_;
  Send(piece);
}

void TierLink::CancelStore() {
  if (store_ != 0) Send({.type = SnapshotMessage::kCancelStore, .generation = store_});
  store_ = 0;
  store_answer_.reset();
}

}  // namespace quire::runner::engine
