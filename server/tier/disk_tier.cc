#include "server/tier/disk_tier.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "api/base/io_thread.h"
#include "api/base/private_folder.h"

namespace quire::server {
namespace {

namespace fs = std::filesystem;

std::string Reason(int error) { return std::generic_category().message(error); }

uint64_t DiskBytesOf(const struct stat& status) { return static_cast<uint64_t>(status.st_blocks) * 512; }

uint64_t Now() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::system_clock::now().time_since_epoch())
                                   .count());
}

}  // namespace

// Whoever holds it may wait for the disk. The figures are published at its end.
class SCOPED_CAPABILITY DiskTier::Lock {
 public:
  explicit Lock(DiskTier& tier) ACQUIRE(tier.mutex_) : tier_(tier) {
    api::AssertMayBlock();
    tier_.mutex_.lock();
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  ~Lock() RELEASE() {
    TierStats& stats = tier_.stats_;
    stats.bytes = tier_.index_.bytes();
    stats.files = tier_.index_.files();
    stats.writing = !tier_.off_until_;
    {
      const api::MutexLock published(tier_.published_mutex_);
      tier_.published_ = stats;
    }
    tier_.mutex_.unlock();
  }

 private:
  DiskTier& tier_;
};

// As Lock, to look something up.
class SCOPED_CAPABILITY DiskTier::ReadLock {
 public:
  explicit ReadLock(const DiskTier& tier) ACQUIRE(tier.mutex_) : tier_(tier) {
    api::AssertMayBlock();
    tier_.mutex_.lock();
  }
  ReadLock(const ReadLock&) = delete;
  ReadLock& operator=(const ReadLock&) = delete;
  ~ReadLock() RELEASE() { tier_.mutex_.unlock(); }

 private:
  const DiskTier& tier_;
};

api::Result<std::unique_ptr<DiskTier>> DiskTier::Open(Options options) {
  const auto secret = OpenTierFolder(options.folder);
  if (!secret) return std::unexpected(secret.error());
  std::unique_ptr<DiskTier> tier(new DiskTier(std::move(options), *secret));
  tier->LoadFiles();
  return tier;
}

// However many files there are, memory is taken for those that the index has room for.
void DiskTier::LoadFiles() {
  const Lock lock(*this);
  const uint64_t count = options_.index_bytes / SegmentIndex::kEntryBytes;
  const NewestSegments newest = FindNewest(options_.folder, options_.stop, count);
  surplus_ns_ = newest.surplus_ns;
  std::vector<FoundFile> found;
  for (const FoundSegment& segment : newest.segments) {
    if (options_.stop.stop_requested()) return;
    auto file = ReadFile(segment);
    if (!file) continue;
    if (file->origin) {
      index_.Add(file->segment, &*file->origin, segment.used_ns, file->disk_bytes);
      if (index_.memory_bytes() > options_.index_bytes) MakeRoom(0);  // origins are of any size
    } else {
      found.push_back(*std::move(file));
    }
  }
  // Each behind the one that it follows, which tells whose it is.
  std::ranges::sort(found, {},
                    [](const FoundFile& file) { return std::pair(file.segment.to, file.segment.state); });
  for (const FoundFile& file : found) index_.Add(file.segment, nullptr, file.used_ns, file.disk_bytes);
  MakeRoom(0);
}

void DiskTier::RemoveSurplus() {
  if (surplus_ns_ == 0) return;
  VisitSegments(options_.folder, options_.stop, [this](const FoundSegment& segment) {
    if (segment.used_ns <= surplus_ns_ && !Has(segment.key)) Unlink(PathOf(segment.key));
  });
}

// Nothing: it is not whole, and removed.
std::optional<DiskTier::FoundFile> DiskTier::ReadFile(const FoundSegment& found) {
  const fs::path path = PathOf(found.key);
  const api::FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  SegmentHead head;
  struct stat status {};
  if (!fd.valid() || ::fstat(fd.get(), &status) != 0 || !api::IsOwnFile(status)) return std::nullopt;
  HeadState state = ReadHead(fd.get(), secret_, head);
  if (state == HeadState::kOtherVersion) {  // nobody will read it
    Unlink(path);
    return std::nullopt;
  }
  auto origin = head.segment.begins_prefix() ? ParseOrigin(head.origin) : std::nullopt;
  if (head.segment.begins_prefix() && !origin) state = HeadState::kCorrupt;
  if (state == HeadState::kCorrupt || head.segment.key != found.key) {
    ++stats_.corrupt;
    Unlink(path);
    return std::nullopt;
  }
  return FoundFile{head.segment, std::move(origin), found.used_ns, DiskBytesOf(status)};
}

fs::path DiskTier::PathOf(const SnapshotKey& key) const { return options_.folder / SegmentFileName(key); }

bool DiskTier::Unlink(const fs::path& path) const {
  api::AssertMayBlock();
  if (Fault("unlink") != 0) return false;
  return ::unlinkat(AT_FDCWD, path.c_str(), 0) == 0;
}

uint64_t DiskTier::BudgetNow() const {
  if (options_.free_space_share <= 0) return options_.budget_bytes;
  uint64_t free = 0;
  if (options_.free_bytes) {
    free = options_.free_bytes();
  } else {
    struct statvfs disk {};
    if (::statvfs(options_.folder.c_str(), &disk) != 0) return index_.bytes();
    free = static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize;
  }
  return static_cast<uint64_t>(static_cast<double>(free + index_.bytes()) * options_.free_space_share);
}

bool DiskTier::Evict(EvictionOrder::Scarce scarce) {
  const auto next = index_.NextToEvict(Now(), scarce);
  if (!next) return false;
  Unlink(PathOf(*next));
  index_.Drop(*next);
  ++stats_.evictions;
  return true;
}

bool DiskTier::MakeRoom(uint64_t bytes) {
  const uint64_t budget = BudgetNow();
  stats_.budget_bytes = budget;
  if (bytes > budget) return false;
  while (index_.memory_bytes() > options_.index_bytes && Evict(EvictionOrder::Scarce::kSegments)) {
  }
  while (index_.bytes() + reserved_ + bytes > budget && Evict(EvictionOrder::Scarce::kBytes)) {
  }
  return index_.bytes() + reserved_ + bytes <= budget;
}

bool DiskTier::Has(const SnapshotKey& key) const {
  const ReadLock lock(*this);
  return index_.Find(key) != nullptr;
}

uint64_t DiskTier::BytesOf(const SnapshotKey& key) const {
  const ReadLock lock(*this);
  const auto* entry = index_.Find(key);
  return entry == nullptr ? 0 : entry->segment.bytes;
}

std::vector<int64_t> DiskTier::EndsBehind(const SnapshotKey& parent) const {
  const ReadLock lock(*this);
  return index_.EndsBehind(parent);
}

void DiskTier::Touch(std::span<const SnapshotKey> keys) {
  const uint64_t now = Now();
  const Lock lock(*this);
  for (const SnapshotKey& key : keys) {
    if (index_.Find(key) == nullptr) continue;
    index_.Touch(key, now);
    ::utimensat(AT_FDCWD, PathOf(key).c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
  }
  stats_.budget_bytes = BudgetNow();
}

void DiskTier::CountHit(const SnapshotKey& key) {
  const Lock lock(*this);
  index_.CountHit(key);
}

TierStats DiskTier::stats() const {
  const api::MutexLock lock(published_mutex_);
  return published_;
}

uint64_t DiskTier::RefreshBudget() {
  const Lock lock(*this);
  stats_.budget_bytes = BudgetNow();
  return stats_.budget_bytes;
}

std::vector<StoredPrefix> DiskTier::Prefixes() const {
  const ReadLock lock(*this);
  return index_.Prefixes();
}

std::optional<StoredPrefix> DiskTier::PrefixOf(const SnapshotKey& id) const {
  const ReadLock lock(*this);
  return index_.PrefixOf(id);
}

std::optional<PrefixOrigin> DiskTier::OriginOf(const SnapshotKey& id) const {
  const ReadLock lock(*this);
  const PrefixOrigin* origin = index_.OriginOf(id);
  return origin == nullptr ? std::nullopt : std::optional(*origin);
}

std::vector<SnapshotKey> DiskTier::SegmentsOf(const SnapshotKey& id) const {
  const ReadLock lock(*this);
  return index_.SegmentsOf(id);
}

void DiskTier::Remove(const SnapshotKey& key, Pruned& pruned) {
  const auto* entry = index_.Find(key);
  if (entry == nullptr) return;
  ++pruned.files;
  pruned.bytes += entry->disk_bytes;
  Unlink(PathOf(key));
  index_.Drop(key);
}

Pruned DiskTier::Prune(std::span<const SnapshotKey> ids) {
  const Lock lock(*this);
  Pruned pruned;
  for (const SnapshotKey& id : ids) {
    const std::vector<SnapshotKey> keys = index_.OnlyOf(id);
    for (const SnapshotKey& key : keys) Remove(key, pruned);
    if (!keys.empty()) ++pruned.prefixes;
  }
  return pruned;
}

Pruned DiskTier::PruneAll() {
  const Lock lock(*this);
  Pruned pruned{.prefixes = index_.Prefixes().size()};
  while (const auto key = index_.NextToEvict(0)) Remove(*key, pruned);
  return pruned;
}

void DiskTier::RemoveCorrupt(const SnapshotKey& key, const char* what) {
  const Lock lock(*this);
  Unlink(PathOf(key));
  index_.Drop(key);
  ++stats_.corrupt;
  spdlog::warn("snapshot tier: a file is not what was written and is removed file={} reason=\"{}\"",
               PathOf(key).filename().string(), what);
}

void DiskTier::WriteFailed(int error, const char* call) {
  const Lock lock(*this);
  ++stats_.failures;
  if (!off_until_) {
    spdlog::warn("snapshot tier: writing is off error=\"{}: {}\" folder={}", call, Reason(error),
                 options_.folder.string());
  }
  off_until_ = std::chrono::steady_clock::now() + options_.retry_after;
}

void DiskTier::WriteWorked() {
  if (!off_until_) return;
  off_until_.reset();
  spdlog::info("snapshot tier: writing is on again folder={}", options_.folder.string());
}

std::unique_ptr<DiskTier::Writer> DiskTier::Create(StoredSegment segment, std::span<const int32_t> tokens,
                                                   const PrefixOrigin* origin) {
  if (segment.bytes > StoredSegment::kBytesMax || segment.token_bytes() != tokens.size_bytes() ||
      segment.begins_prefix() != (origin != nullptr))
    return nullptr;
  segment.origin_bytes = origin == nullptr ? 0 : EncodeOrigin(*origin).size();
  {
    const Lock lock(*this);
    if (off_until_ && std::chrono::steady_clock::now() < *off_until_) return nullptr;
    if (index_.Find(segment.key) != nullptr || !MakeRoom(segment.disk_bytes())) return nullptr;
    reserved_ += segment.disk_bytes();
  }
  std::unique_ptr<Writer> writer(new Writer(*this, segment, origin));
  const std::span<const char> bytes(reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes());
  if (!writer->fd_.valid() || (!bytes.empty() && !writer->WriteBytes(bytes))) return nullptr;
  return writer;
}

DiskTier::Writer::Writer(DiskTier& tier, const StoredSegment& segment, const PrefixOrigin* origin)
    : tier_(tier), segment_(segment) {
  if (origin != nullptr) {
    origin_ = *origin;
    origin_bytes_ = EncodeOrigin(*origin);
  }
  path_ = tier_.options_.folder / api::UnfinishedFileName();
  int error = tier_.Fault("open");
  if (error == 0) {
    constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
    fd_ = api::FileDescriptor(::openat(AT_FDCWD, path_.c_str(), kFlags, 0600));
    if (!fd_.valid()) error = errno;
  }
  if (error != 0) {
    tier_.WriteFailed(error, "open");
  } else {
    ::flock(fd_.get(), LOCK_EX | LOCK_NB);
  }
}

DiskTier::Writer::~Writer() {
  if (!done_ && fd_.valid()) tier_.Unlink(path_);
  if (done_) return;
  const Lock lock(tier_);
  tier_.reserved_ -= segment_.disk_bytes();
}

bool DiskTier::Writer::WriteBytes(std::span<const char> bytes) {
  api::AssertMayBlock();
  int error = tier_.Fault("write");
  if (error == 0 && !WriteAll(fd_.get(), bytes.data(), bytes.size(), ContentOffset(segment_) + written_))
    error = errno;
  if (error != 0) {
    tier_.WriteFailed(error, "write");
    return false;
  }
  hash_.Update({bytes.data(), bytes.size()});
  written_ += bytes.size();
  return true;
}

bool DiskTier::Writer::Write(std::span<const char> bytes) {
  return bytes.size() <= segment_.token_bytes() + segment_.bytes - written_ && WriteBytes(bytes);
}

bool DiskTier::Writer::Commit(const SnapshotKey* content) {
  api::AssertMayBlock();
  if (written_ != segment_.token_bytes() + segment_.bytes) return false;
  const SnapshotKey hash = hash_.FinishBytes();
  if (content != nullptr && *content != hash) return false;
  const std::string header = EncodeHead({segment_, hash, origin_bytes_}, tier_.secret_);
  const fs::path path = tier_.PathOf(segment_.key);
  const char* call = "write";
  int error = tier_.Fault(call);
  if (error == 0 && !WriteAll(fd_.get(), header.data(), header.size(), 0)) error = errno;
  if (error == 0) {
    call = "rename";
    error = tier_.Fault(call);
    if (error == 0 && ::renameat(AT_FDCWD, path_.c_str(), AT_FDCWD, path.c_str()) != 0) error = errno;
  }
  if (error != 0) {
    tier_.WriteFailed(error, call);
    return false;
  }
  struct stat status {};
  const uint64_t disk_bytes = ::fstat(fd_.get(), &status) == 0 ? DiskBytesOf(status) : 0;
  done_ = true;
  const Lock lock(tier_);
  tier_.reserved_ -= segment_.disk_bytes();
  tier_.index_.Add(segment_, segment_.begins_prefix() ? &origin_ : nullptr, Now(), disk_bytes);
  tier_.MakeRoom(0);
  ++tier_.stats_.written;
  tier_.WriteWorked();
  return true;
}

std::unique_ptr<DiskTier::Reader> DiskTier::OpenSegment(const SnapshotKey& key) {
  api::AssertMayBlock();
  api::FileDescriptor fd(::open(PathOf(key).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd.valid()) {
    const int error = errno;
    const Lock lock(*this);
    if (error != ENOENT) ++stats_.failures;
    index_.Drop(key);
    return nullptr;
  }
  std::unique_ptr<Reader> reader(new Reader(*this, std::move(fd)));
  if (!reader->Start(key)) {
    RemoveCorrupt(key, "header");
    return nullptr;
  }
  return reader;
}

bool DiskTier::Reader::Start(const SnapshotKey& key) {
  api::AssertMayBlock();
  SegmentHead head;
  if (ReadHead(fd_.get(), tier_.secret_, head) != HeadState::kValid || head.segment.key != key) return false;
  segment_ = head.segment;
  content_ = head.content;
  origin_ = std::move(head.origin);
  tokens_.resize(segment_.token_bytes() / sizeof(int32_t));
  auto* bytes = reinterpret_cast<char*>(tokens_.data());
  if (!ReadAll(fd_.get(), bytes, segment_.token_bytes(), ContentOffset(segment_))) return false;
  hash_.Update({bytes, segment_.token_bytes()});
  return true;
}

bool DiskTier::Reader::Read(std::span<char> out) {
  api::AssertMayBlock();
  const uint64_t offset = ContentOffset(segment_) + segment_.token_bytes() + at_;
  if (out.size() > segment_.bytes - at_ || !ReadAll(fd_.get(), out.data(), out.size(), offset)) {
    tier_.RemoveCorrupt(segment_.key, "length");
    return false;
  }
  hash_.Update({out.data(), out.size()});
  at_ += out.size();
  return true;
}

bool DiskTier::Reader::Verify() {
  if (at_ != segment_.bytes || hash_.FinishBytes() != content_) {
    tier_.RemoveCorrupt(segment_.key, "content");
    return false;
  }
  const Lock lock(tier_);
  ++tier_.stats_.read;
  return true;
}

}  // namespace quire::server
