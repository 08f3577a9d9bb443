#include "server/tier/kv_publisher.h"

#include <poll.h>
#include <pthread.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>
#include <variant>

namespace quire::server {
namespace {

constexpr std::chrono::milliseconds kBindPause(5000);
constexpr size_t kEventsMax = 64;  // of a batch

double SecondsNow() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

KvPublisher::KvPublisher(Options options, std::shared_ptr<SegmentChanges> changes,
                         std::shared_ptr<DiskTier> tier)
    : options_(std::move(options)), changes_(std::move(changes)), tier_(std::move(tier)), thread_([this] {
        pthread_setname_np(pthread_self(), "quire-kv-events");
        try {
          Run();
        } catch (const std::exception& error) {
          spdlog::error("KV events: no more are published error=\"{}\"", error.what());
        }
      }) {}

KvPublisher::~KvPublisher() {
  stopping_ = true;
  changes_->Wake();
  thread_.join();
}

void KvPublisher::Run() {
  while (!stopping_) {
    if (!socket_) Bind();
    if (socket_) {
      socket_->Wait(changes_->descriptor(), kBindPause);
    } else {
      pollfd polled{changes_->descriptor(), POLLIN, 0};
      ::poll(&polled, 1, static_cast<int>(kBindPause.count()));
    }
    Apply(changes_->PopAll());
    if (socket_ && socket_->PopSubscriptions()) PublishAll();
  }
  bound_ = false;
  socket_.reset();
}

void KvPublisher::Bind() {
  auto socket = EventSocket::Bind(options_.endpoint);
  if (socket) {
    socket_ = *std::move(socket);
    bound_ = true;
    spdlog::info("KV events: published address={}", socket_->endpoint());
  } else if (!std::exchange(reported_, true)) {
    spdlog::warn("KV events: not published address={} error=\"{}\"", options_.endpoint,
                 socket.error().message);
  }
}

// Nothing: no whole token segment, or gone already.
std::optional<KvPublisher::Block> KvPublisher::Read(const SnapshotKey& key) const {
  const auto reader = tier_->OpenSegment(key);
  const auto origin = tier_->OriginOf(key);
  if (!reader || !origin) return std::nullopt;
  const StoredSegment& segment = reader->segment();
  if (segment.state || segment.to - segment.from != origin->segment_tokens) return std::nullopt;
  Block block{.model = origin->model, .from = segment.from, .event = {.hash = BlockHash(key)}};
  if (segment.from > 0) block.event.parent = BlockHash(ObjectKey(segment.parent, false));
  block.event.tokens.assign(reader->tokens().begin(), reader->tokens().end());
  return block;
}

void KvPublisher::Apply(const std::vector<SegmentChanges::Change>& changes) {
  for (const auto& [key, stored] : changes) {
    if (stopping_) return;
    const auto known = known_.find(key);
    if (!stored && known != known_.end()) {
      Add(*known->second.topic, BlockRemoved{BlockHash(key)});
      known_.erase(known);
    } else if (stored && known == known_.end()) {
      auto block = Read(key);
      if (!block) continue;
      const std::string& topic = *topics_.insert(KvTopic(options_.machine, block->model)).first;
      known_[key] = {&topic, block->from};
      Add(topic, std::move(block->event));
    }
  }
  Flush();
}

// A block comes behind the one that it follows.
void KvPublisher::PublishAll() {
  ++refreshes_;
  for (const std::string& topic : topics_) Add(topic, AllBlocksCleared{});
  std::vector<std::pair<int64_t, SnapshotKey>> keys;
  keys.reserve(known_.size());
  for (const auto& [key, known] : known_) keys.emplace_back(known.from, key);
  std::ranges::sort(keys);
  for (const auto& [from, key] : keys) {
    if (stopping_) return;
    if (auto block = Read(key)) Add(*known_.at(key).topic, std::move(block->event));
  }
  Flush();
}

void KvPublisher::Add(const std::string& topic, KvEvent event) {
  if (topic != topic_ || events_.size() >= kEventsMax) Flush();
  topic_ = topic;
  events_.push_back(std::move(event));
}

void KvPublisher::Flush() {
  if (events_.empty()) return;
  if (socket_) {
    for (const KvEvent& event : events_) ++CounterOf(event);
    socket_->Publish(topic_, SequenceFrame(sequence_++), EncodeKvBatch(events_, SecondsNow()));
  }
  events_.clear();
}

std::atomic<uint64_t>& KvPublisher::CounterOf(const KvEvent& event) {
  if (std::holds_alternative<BlockStored>(event)) return stored_;
  return std::holds_alternative<BlockRemoved>(event) ? removed_ : cleared_;
}

KvStats KvPublisher::stats() const {
  return {.bound = bound_,
          .stored = stored_,
          .removed = removed_,
          .cleared = cleared_,
          .messages = sequence_,
          .refreshes = refreshes_};
}

}  // namespace quire::server
