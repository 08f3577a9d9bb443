#include "server/tier/redis_tier.h"

#include <pthread.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <exception>
#include <utility>

namespace quire::server {
namespace {

using Clock = std::chrono::steady_clock;

std::string SegmentName(const SnapshotKey& key) { return "quire:s:" + HexOf(key); }
std::string EndsName(const SnapshotKey& parent) { return "quire:e:" + HexOf(parent); }

std::vector<int64_t> EndsIn(const RedisReply& reply) {
  std::vector<int64_t> ends;
  for (const RedisReply& item : reply.items) {
    int64_t end = 0;
    const std::string& text = item.text;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), end);
    if (parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() && end > 0) ends.push_back(end);
  }
  std::ranges::sort(ends);
  return ends;
}

// Redis may evict what it has, and does so at the end of its TTL.
std::chrono::nanoseconds SentLife(std::chrono::seconds ttl) {
  constexpr std::chrono::nanoseconds kLife = std::chrono::minutes(10);
  return ttl.count() > 0 ? std::min<std::chrono::nanoseconds>(kLife, ttl / 4) : kLife;
}

// What a waiting thread and the one that works for it share: either may be the last.
template <class T>
struct Outcome {
  std::mutex mutex;
  std::condition_variable done;
  std::optional<T> value;
  bool finished = false;

  void Finish(std::optional<T> result) {
    const std::lock_guard lock(mutex);
    value = std::move(result);
    finished = true;
    done.notify_all();
  }
  std::optional<T> WaitUntil(Clock::time_point deadline) {
    std::unique_lock lock(mutex);
    done.wait_until(lock, deadline, [this] { return finished; });
    return std::move(value);
  }
};

}  // namespace

// ---- connections ----

RedisTier::Worker::Worker(RedisTier& tier, const char* name, bool connects_for_jobs)
    : tier_(tier),
      connects_for_jobs_(connects_for_jobs),
      client_(tier.options_.address),
      breaker_(tier.options_.retry_after),
      thread_([this, name] {
        pthread_setname_np(pthread_self(), name);
        Run();
      }) {}

void RedisTier::Worker::Post(Job job) {
  const std::lock_guard lock(mutex_);
  jobs_.push_back(std::move(job));
  wake_.notify_all();
}

size_t RedisTier::Worker::waiting() const {
  const std::lock_guard lock(mutex_);
  return jobs_.size();
}

void RedisTier::Worker::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
  }
  client_.Abort();
  thread_.join();
}

bool RedisTier::Worker::Connect() {
  if (client_.connected()) return true;
  if (!breaker_.MayTry(Clock::now())) return false;
  const auto connected = client_.Connect(Clock::now() + tier_.options_.connect_time);
  if (connected) {
    if (connects_for_jobs_) {  // the writer's; another Redis, or one that was emptied
      const std::lock_guard lock(tier_.sent_mutex_);
      tier_.sent_.Clear();
    }
    if (breaker_.Succeeded()) spdlog::info("snapshot tier: Redis answers again");
    return true;
  }
  const std::lock_guard lock(tier_.stats_mutex_);
  ++tier_.stats_.failures;
  if (breaker_.Failed(Clock::now()))
    spdlog::warn("snapshot tier: Redis is left alone error=\"{}\"", connected.error().message);
  return false;
}

// Jobs that come while there is no connection get a closed one, and fail at once.
void RedisTier::Worker::Run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (jobs_.empty()) {
      lock.unlock();
      connected_ = Connect();
      lock.lock();
      const auto pause = connected_ ? std::chrono::milliseconds(1000) : std::chrono::milliseconds(100);
      if (jobs_.empty() && !stopping_) wake_.wait_for(lock, pause);
      continue;
    }
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    if (connects_for_jobs_) connected_ = Connect();
    try {
      if (!job(client_)) {
        client_.Close();
        connected_ = false;
        if (breaker_.Failed(Clock::now()))
          spdlog::warn("snapshot tier: Redis is left alone error=\"too slow\"");
      }
    } catch (const std::exception& error) {
      spdlog::warn("snapshot tier: Redis error=\"{}\"", error.what());
      client_.Close();
    }
    lock.lock();
  }
}

RedisTier::RedisTier(Options options, DiskTier& disk)
    : options_(std::move(options)),
      disk_(disk),
      sent_(kSentMax, SentLife(options_.ttl)),
      reader_(*this, "quire-redis-in", false),
      writer_(*this, "quire-redis-out", true) {}

RedisTier::~RedisTier() {
  reader_.Stop();
  writer_.Stop();
}

RedisStats RedisTier::stats() const {
  const std::lock_guard lock(stats_mutex_);
  RedisStats stats = stats_;
  stats.connected = reader_.connected() && writer_.connected();
  return stats;
}

// ---- reading ----

std::optional<RedisTier::Answer> RedisTier::LookUp(std::vector<SnapshotKey> segments,
                                                   std::vector<SnapshotKey> parents) {
  {
    const std::lock_guard lock(stats_mutex_);
    ++stats_.lookups;
  }
  if (!reader_.connected()) return std::nullopt;
  const auto deadline = Clock::now() + options_.lookup_time;
  auto outcome = std::make_shared<Outcome<Answer>>();
  reader_.Post(
      [outcome, deadline, segments = std::move(segments), parents = std::move(parents)](RedisClient& client) {
        if (!client.connected() || Clock::now() >= deadline) {
          outcome->Finish(std::nullopt);
          return true;
        }
        std::vector<std::string> names;
        names.reserve(segments.size() + parents.size());
        std::vector<RedisClient::Command> commands;
        commands.reserve(segments.size() + parents.size());
        for (const SnapshotKey& key : segments)
          commands.push_back({"STRLEN", names.emplace_back(SegmentName(key))});
        for (const SnapshotKey& key : parents)
          commands.push_back({"SMEMBERS", names.emplace_back(EndsName(key))});
        const auto replies = client.Query(commands, deadline);
        if (!replies) {
          outcome->Finish(std::nullopt);
          return false;
        }
        Answer answer;
        for (size_t i = 0; i < segments.size(); ++i)
          answer.bytes.push_back(static_cast<uint64_t>(std::max<int64_t>((*replies)[i].integer, 0)));
        for (size_t i = segments.size(); i < replies->size(); ++i)
          answer.ends.push_back(EndsIn((*replies)[i]));
        outcome->Finish(std::move(answer));
        return true;
      });
  auto answer = outcome->WaitUntil(deadline);
  if (!answer) {
    const std::lock_guard lock(stats_mutex_);
    ++stats_.late;
  }
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
  const std::lock_guard lock(stats_mutex_);
  ++stats_.corrupt;
  return false;
}

bool RedisTier::Download(const SnapshotKey& key, const StoredSegment& local, std::span<const int32_t> tokens,
                         const PrefixOrigin* origin) {
  if (!reader_.connected()) return false;
  const auto deadline = Clock::now() + options_.transfer_time;
  auto outcome = std::make_shared<Outcome<std::string>>();
  reader_.Post([outcome, deadline, name = SegmentName(key)](RedisClient& client) {
    if (!client.connected()) {
      outcome->Finish(std::nullopt);
      return true;
    }
    const std::vector<RedisClient::Command> commands = {{"GET", name}};
    auto replies = client.Query(commands, deadline);
    const bool found = replies && (*replies)[0].kind == RedisReply::Kind::kText;
    outcome->Finish(found ? std::optional(std::move((*replies)[0].text)) : std::nullopt);
    return replies.has_value();
  });
  const auto value = outcome->WaitUntil(deadline);
  if (!value || !Store(*value, key, local, tokens, origin)) return false;
  const std::lock_guard lock(stats_mutex_);
  ++stats_.read;
  return true;
}

// ---- writing ----

void RedisTier::Send(const std::vector<Upload>& uploads) {
  const auto now = Clock::now();
  for (const Upload& upload : uploads) {
    {
      const std::lock_guard lock(sent_mutex_);
      if (sent_.Contains(upload.key, now)) continue;
    }
    if (writer_.waiting() >= kUploadsMax) {
      const std::lock_guard lock(stats_mutex_);
      ++stats_.dropped;
      continue;
    }
    writer_.Post([this, upload](RedisClient& client) { return SendOne(client, upload); });
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
  const std::lock_guard lock(sent_mutex_);
  sent_.Insert(key, Clock::now());
}

bool RedisTier::SendOne(RedisClient& client, const Upload& upload) {
  if (!client.connected()) return true;
  const auto deadline = Clock::now() + options_.transfer_time;
  const std::string name = SegmentName(upload.key);
  const std::string ends = EndsName(upload.parent);
  const std::vector<RedisClient::Command> question = {{"EXISTS", name}};
  const auto there = client.Query(question, deadline);
  if (!there) return false;
  if ((*there)[0].integer > 0) {
    RecordSent(upload.key);
    return true;
  }
  const std::string value = ValueOf(upload);
  SegmentHead head;
  if (value.empty() || ParseHead(value, options_.secret, head) != HeadState::kValid) return true;
  const std::string end = std::to_string(head.segment.to);
  const std::string ttl = std::to_string(options_.ttl.count());
  std::vector<RedisClient::Command> commands;
  commands.push_back({"SET", name, value});
  if (!head.segment.state) commands.push_back({"SADD", ends, end});
  if (options_.ttl.count() > 0) {
    commands.front().insert(commands.front().end(), {"EX", ttl});
    commands.push_back({"EXPIRE", ends, ttl});
  }
  const auto replies = client.Query(commands, deadline);
  if (!replies) return false;
  const bool refused = replies->front().kind == RedisReply::Kind::kError;
  if (!refused) RecordSent(upload.key);
  const std::lock_guard lock(stats_mutex_);
  ++(refused ? stats_.failures : stats_.written);
  return true;
}

}  // namespace quire::server
