#include "server/tier/redis_tier.h"

#include <pthread.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "api/base/parse_integer.h"

namespace quire::server {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kConnectPause(100);  // between two tries of the sender

std::string SegmentName(const SnapshotKey& key) { return "quire:s:" + HexOf(key); }
std::string EndsName(const SnapshotKey& parent) { return "quire:e:" + HexOf(parent); }

std::vector<int64_t> EndsIn(const RedisReply& reply) {
  std::vector<int64_t> ends;
  for (const RedisReply& item : reply.items) {
    const auto end = api::ParseInteger<int64_t>(item.text);
    if (end && *end > 0) ends.push_back(*end);
  }
  std::ranges::sort(ends);
  return ends;
}

// Redis may evict what it has, and does so at the end of its TTL.
std::chrono::nanoseconds SentLife(std::chrono::seconds ttl) {
  constexpr std::chrono::nanoseconds kLife = std::chrono::minutes(10);
  return ttl.count() > 0 ? std::min<std::chrono::nanoseconds>(kLife, ttl / 4) : kLife;
}

}  // namespace

RedisTier::RedisTier(Options options, DiskTier& disk)
    : options_(std::move(options)),
      disk_(disk),
      sent_(kSentMax, SentLife(options_.ttl)),
      pool_({.address = options_.address,
             .connect_time = options_.connect_time,
             .retry_after = options_.retry_after}),
      sender_(*this) {}

RedisTier::~RedisTier() { sender_.Stop(); }

RedisStats RedisTier::stats() const {
  const api::MutexLock lock(stats_mutex_);
  RedisStats stats = stats_;
  stats.connected = pool_.connected();
  stats.failures += pool_.failures();
  return stats;
}

void RedisTier::Count(uint64_t RedisStats::*counter) {
  const api::MutexLock lock(stats_mutex_);
  ++(stats_.*counter);
}

// ---- reading ----

std::optional<RedisTier::Answer> RedisTier::LookUp(const std::vector<SnapshotKey>& segments,
                                                   const std::vector<SnapshotKey>& parents, int64_t tokens) {
  Count(&RedisStats::lookups);
  auto client = pool_.Borrow();
  if (!client) return std::nullopt;
  std::vector<std::string> names;
  names.reserve(segments.size() + parents.size());
  std::vector<RedisClient::Command> commands;
  commands.reserve(segments.size() + parents.size());
  for (const SnapshotKey& key : segments)
    commands.push_back({"STRLEN", names.emplace_back(SegmentName(key))});
  for (const SnapshotKey& key : parents) commands.push_back({"SMEMBERS", names.emplace_back(EndsName(key))});
  const auto time = std::max(options_.lookup_time, kLookupTimePerToken * tokens);
  const auto replies = client->Query(commands, Clock::now() + time);
  pool_.Return(std::move(client), replies.has_value());
  if (!replies) {
    Count(&RedisStats::late);
    return std::nullopt;
  }
  Answer answer;
  for (size_t i = 0; i < segments.size(); ++i)
    answer.bytes.push_back(
        static_cast<uint64_t>(std::clamp<int64_t>((*replies)[i].integer, 0, RedisClient::kValueBytesMax)));
  for (size_t i = segments.size(); i < replies->size(); ++i) answer.ends.push_back(EndsIn((*replies)[i]));
  return answer;
}

bool RedisTier::Store(const std::string& value, const SnapshotKey& key, const StoredSegment& local,
                      std::span<const int32_t> tokens, const PrefixOrigin* origin) {
  SegmentHead head;
  const bool sound = ParseHead(value, options_.secret, head) == HeadState::kValid &&
                     head.segment.key == key && head.segment.from == local.from &&
                     head.segment.to == local.to && head.segment.state == local.state;
  if (sound) {
    StoredSegment segment = local;
    segment.bytes = head.segment.bytes;
    auto writer = disk_.Create(segment, tokens, origin);
    if (!writer) return disk_.Has(local.key);
    const std::string_view content = std::string_view(value).substr(ContentOffset(head.segment));
    if (writer->Write(content.substr(head.segment.token_bytes())) && writer->Commit(&head.content))
      return true;
    if (!disk_.stats().writing) return false;
  }
  spdlog::warn("snapshot tier: a value in Redis is not what was written key={}", HexOf(key));
  const api::MutexLock lock(stats_mutex_);
  ++stats_.corrupt;
  return false;
}

bool RedisTier::Download(const SnapshotKey& key, const StoredSegment& local, std::span<const int32_t> tokens,
                         const PrefixOrigin* origin) {
  auto client = pool_.Borrow();
  if (!client) return false;
  const std::string name = SegmentName(key);
  const std::vector<RedisClient::Command> commands = {{"GET", name}};
  const auto replies =
      client->Query(commands, Clock::now() + options_.transfer_time, RedisClient::kValueBytesMax);
  pool_.Return(std::move(client), replies.has_value());
  if (!replies || replies->front().kind != RedisReply::Kind::kText) return false;
  if (!Store(replies->front().text, key, local, tokens, origin)) return false;
  Count(&RedisStats::read);
  return true;
}

// ---- writing ----

void RedisTier::Send(const std::vector<Upload>& uploads) {
  const auto now = Clock::now();
  for (const Upload& upload : uploads) {
    {
      const api::MutexLock lock(sent_mutex_);
      if (sent_.Contains(upload.key, now)) continue;
    }
    sender_.Post(upload);
  }
}

RedisTier::Sender::Sender(RedisTier& tier)
    : tier_(tier), client_(tier.options_.address), thread_([this] {
        pthread_setname_np(pthread_self(), "quire-redis-out");
        Run();
      }) {}

void RedisTier::Sender::Post(const Upload& upload) {
  const api::MutexLock lock(mutex_);
  if (uploads_.size() >= kUploadsMax) return tier_.Count(&RedisStats::dropped);
  uploads_.push_back(upload);
  wake_.notify_all();
}

void RedisTier::Sender::Stop() {
  {
    const api::MutexLock lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
  }
  client_.Abort();
  thread_.join();
}

bool RedisTier::Sender::Connect() {
  if (client_.connected()) return true;
  if (!tier_.pool_.Connect(client_)) return false;
  const api::MutexLock lock(tier_.sent_mutex_);
  tier_.sent_.Clear();  // another Redis, or one that was emptied
  return true;
}

void RedisTier::Sender::Run() {
  api::UniqueLock lock(mutex_);
  while (!stopping_) {
    if (uploads_.empty()) {
      wake_.wait(lock);
      continue;
    }
    lock.unlock();
    const bool connected = Connect();
    lock.lock();
    if (!connected) {
      if (!stopping_) wake_.wait_for(lock, kConnectPause);
      continue;
    }
    const Upload upload = uploads_.front();
    uploads_.pop_front();
    lock.unlock();
    if (!tier_.SendOne(client_, upload)) {
      tier_.Count(&RedisStats::dropped);
      tier_.pool_.ReportFailure("too slow");
    }
    lock.lock();
  }
}

// Empty: the segment is gone.
std::string RedisTier::ValueOf(const Upload& upload) const {
  const auto reader = disk_.OpenSegment(upload.local);
  if (!reader) return {};
  std::string bytes(reader->bytes(), '\0');
  if (!reader->Read(bytes) || !reader->Verify()) return {};
  SegmentHead head{reader->segment(), reader->content(), reader->origin()};
  head.segment.key = upload.key;
  head.segment.parent = upload.parent;
  std::string value = EncodeHead(head, options_.secret);
  value.append(reinterpret_cast<const char*>(reader->tokens().data()), reader->tokens().size_bytes());
  return value.append(bytes);
}

void RedisTier::RecordSent(const SnapshotKey& key) {
  const api::MutexLock lock(sent_mutex_);
  sent_.Insert(key, Clock::now());
}

// Where segments end stands apart from them: Redis may evict one and keep the other, so that the end of a
// segment that Redis has is said again.
bool RedisTier::SendOne(RedisClient& client, const Upload& upload) {
  const auto deadline = Clock::now() + options_.transfer_time;
  const std::string name = SegmentName(upload.key);
  const std::string ends = EndsName(upload.parent);
  const std::string end = std::to_string(upload.to);
  std::vector<RedisClient::Command> commands = {{"EXISTS", name}};
  if (!upload.state) commands.push_back({"SADD", ends, end});
  const std::string ttl = std::to_string(options_.ttl.count());
  if (!upload.state && options_.ttl.count() > 0) commands.push_back({"EXPIRE", ends, ttl});
  const auto replies = client.Query(commands, deadline);
  if (!replies) return false;
  if (replies->front().integer == 0) return SendValue(client, upload, deadline);
  RecordSent(upload.key);
  return true;
}

bool RedisTier::SendValue(RedisClient& client, const Upload& upload, RedisClient::Time deadline) {
  const std::string name = SegmentName(upload.key);
  const std::string value = ValueOf(upload);
  if (value.empty()) return true;
  std::vector<RedisClient::Command> commands = {{"SET", name, value}};
  const std::string ttl = std::to_string(options_.ttl.count());
  if (options_.ttl.count() > 0) commands.front().insert(commands.front().end(), {"EX", ttl});
  const auto replies = client.Query(commands, deadline);
  if (!replies) return false;
  const bool refused = replies->front().kind == RedisReply::Kind::kError;
  if (!refused) RecordSent(upload.key);
  Count(refused ? &RedisStats::failures : &RedisStats::written);
  return true;
}

}  // namespace quire::server
