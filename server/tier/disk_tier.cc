#include "server/tier/disk_tier.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace quire::server {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".quire-prefix";
constexpr std::string_view kTemporary = "new-";
constexpr char kSecretName[] = "secret";

// As it lies in the file: little-endian, as every machine that Quire runs on.
struct FileHeader {
  std::array<char, 8> magic = {'Q', 'P', 'R', 'E', 'F', 'I', 'X', '1'};
  uint64_t bytes = 0;
  int64_t from = 0;
  int64_t to = 0;
  uint64_t state = 0;
  SnapshotKey key{};
  SnapshotKey parent{};
  SnapshotKey content{};
  std::array<char, 64> model{};
  SnapshotKey hmac{};  // of all before
};
static_assert(sizeof(FileHeader) == 232);

std::string_view SignedPart(const FileHeader& header) {
  return {reinterpret_cast<const char*>(&header), sizeof(header) - sizeof(header.hmac)};
}

std::string Reason(int error) { return std::generic_category().message(error); }

bool ReadAll(int fd, char* out, size_t bytes, uint64_t offset) {
  while (bytes > 0) {
    const ssize_t n = ::pread(fd, out, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    out += n;
    bytes -= static_cast<size_t>(n);
    offset += static_cast<uint64_t>(n);
  }
  return true;
}

bool WriteAll(int fd, const char* data, size_t bytes, uint64_t offset) {
  while (bytes > 0) {
    const ssize_t n = ::pwrite(fd, data, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    data += n;
    bytes -= static_cast<size_t>(n);
    offset += static_cast<uint64_t>(n);
  }
  return true;
}

uint64_t Now() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::system_clock::now().time_since_epoch())
                                   .count());
}

bool IsOurs(const std::string& name) { return name.ends_with(kSuffix) || name.starts_with(kTemporary); }

}  // namespace

api::Result<std::unique_ptr<DiskTier>> DiskTier::Open(Options options) {
  std::error_code error;
  fs::create_directories(options.folder, error);
  if (error) {
    return api::Fail(api::ErrorCode::kInternal,
                     fmt::format("cannot create {}: {}", options.folder.string(), error.message()));
  }
  fs::permissions(options.folder, fs::perms::owner_all, error);
  std::unique_ptr<DiskTier> tier(new DiskTier(std::move(options)));
  if (auto loaded = tier->LoadSecret(); !loaded) return std::unexpected(loaded.error());
  tier->LoadFiles();
  return tier;
}

// Of two daemons that begin at once, one creates it and both read it.
api::Result<void> DiskTier::LoadSecret() {
  const fs::path path = options_.folder / kSecretName;
  const auto failed = [&](int error) {
    return api::Fail(api::ErrorCode::kInternal,
                     fmt::format("cannot use {}: {}", path.string(), Reason(error)));
  };
  api::FileDescriptor fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return failed(errno);
  if (::flock(fd.get(), LOCK_EX) != 0) return failed(errno);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return failed(errno);
  auto* bytes = reinterpret_cast<char*>(secret_.data());
  if (status.st_size == static_cast<off_t>(secret_.size())) {
    return ReadAll(fd.get(), bytes, secret_.size(), 0) ? api::Result<void>() : failed(EIO);
  }
  // Not there yet, or cut by a crash before any file was made with it.
  if (::getrandom(secret_.data(), secret_.size(), 0) != static_cast<ssize_t>(secret_.size()))
    return failed(errno);
  if (!WriteAll(fd.get(), bytes, secret_.size(), 0) || ::fsync(fd.get()) != 0) return failed(errno);
  return {};
}

void DiskTier::LoadFiles() {
  std::error_code error;
  const std::lock_guard lock(mutex_);
  stats_.budget_bytes = options_.budget_bytes;
  for (fs::directory_iterator files(options_.folder, error); !error && files != fs::directory_iterator();
       files.increment(error)) {
    const fs::directory_entry& file = *files;
    const std::string name = file.path().filename().string();
    if (!IsOurs(name)) continue;
    const api::FileDescriptor fd(::open(file.path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (!fd.valid()) continue;
    if (name.starts_with(kTemporary)) {
      // Whoever still writes it holds its lock.
      if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) Unlink(file.path());
      continue;
    }
    StoredSegment segment;
    SnapshotKey content;
    struct stat status {};
    if (::fstat(fd.get(), &status) != 0 || !ReadHeader(fd.get(), segment, content) ||
        PathOf(segment.key) != file.path()) {
      ++stats_.corrupt;
      Unlink(file.path());
      continue;
    }
    const auto use = static_cast<uint64_t>(status.st_mtim.tv_sec) * 1'000'000'000 +
                     static_cast<uint64_t>(status.st_mtim.tv_nsec);
    Add(segment, use);
  }
  MakeRoom(0);
}

fs::path DiskTier::PathOf(const SnapshotKey& key) const {
  return options_.folder / (HexOf(key) + std::string(kSuffix));
}

bool DiskTier::ReadHeader(int fd, StoredSegment& segment, SnapshotKey& content) const {
  FileHeader header;
  const FileHeader expected;
  if (!ReadAll(fd, reinterpret_cast<char*>(&header), sizeof(header), 0)) return false;
  if (header.magic != expected.magic || header.hmac != HmacOf(secret_, SignedPart(header))) return false;
  struct stat status {};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return false;
  if (static_cast<uint64_t>(status.st_size) != sizeof(header) + header.bytes) return false;
  header.model.back() = 0;
  segment = {header.key,        header.parent, header.from,        header.to,
             header.state != 0, header.bytes,  header.model.data()};
  content = header.content;
  return true;
}

std::string DiskTier::HeaderOf(const StoredSegment& segment, const SnapshotKey& content) const {
  FileHeader header{.bytes = segment.bytes,
                    .from = segment.from,
                    .to = segment.to,
                    .state = segment.state ? uint64_t{1} : uint64_t{0},
                    .key = segment.key,
                    .parent = segment.parent,
                    .content = content};
  segment.model.copy(header.model.data(), header.model.size() - 1);
  header.hmac = HmacOf(secret_, SignedPart(header));
  return {reinterpret_cast<const char*>(&header), sizeof(header)};
}

bool DiskTier::Unlink(const fs::path& path) const {
  if (Fault("unlink") != 0) return false;
  return ::unlink(path.c_str()) == 0;
}

void DiskTier::Add(const StoredSegment& segment, uint64_t use) {
  if (entries_.contains(segment.key)) Drop(segment.key);
  const Entry& entry = entries_.emplace(segment.key, Entry{segment, use}).first->second;
  order_.insert(OrderOf(entry));
  if (!segment.state) ends_[segment.parent].insert(segment.to);
  stats_.bytes += segment.bytes + sizeof(FileHeader);
  ++stats_.files;
}

void DiskTier::Drop(const SnapshotKey& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  const StoredSegment& segment = found->second.segment;
  order_.erase(OrderOf(found->second));
  if (const auto ends = ends_.find(segment.parent); !segment.state && ends != ends_.end()) {
    if (const auto end = ends->second.find(segment.to); end != ends->second.end()) ends->second.erase(end);
    if (ends->second.empty()) ends_.erase(ends);
  }
  stats_.bytes -= segment.bytes + sizeof(FileHeader);
  --stats_.files;
  entries_.erase(found);
}

bool DiskTier::MakeRoom(uint64_t bytes) {
  if (bytes > options_.budget_bytes) return false;
  while (stats_.bytes + reserved_ + bytes > options_.budget_bytes && !order_.empty()) {
    const SnapshotKey key = std::get<SnapshotKey>(*order_.begin());
    Unlink(PathOf(key));
    Drop(key);
    ++stats_.evictions;
  }
  return stats_.bytes + reserved_ + bytes <= options_.budget_bytes;
}

bool DiskTier::Has(const SnapshotKey& key) const {
  const std::lock_guard lock(mutex_);
  return entries_.contains(key);
}

uint64_t DiskTier::BytesOf(const SnapshotKey& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  return found == entries_.end() ? 0 : found->second.segment.bytes;
}

std::vector<int64_t> DiskTier::EndsBehind(const SnapshotKey& parent) const {
  const std::lock_guard lock(mutex_);
  const auto found = ends_.find(parent);
  if (found == ends_.end()) return {};
  std::vector<int64_t> ends(found->second.begin(), found->second.end());
  ends.erase(std::ranges::unique(ends).begin(), ends.end());
  return ends;
}

void DiskTier::Touch(std::span<const SnapshotKey> keys) {
  const uint64_t now = Now();
  const std::lock_guard lock(mutex_);
  for (const SnapshotKey& key : keys) {
    const auto found = entries_.find(key);
    if (found == entries_.end()) continue;
    order_.erase(OrderOf(found->second));
    found->second.use = now;
    order_.insert(OrderOf(found->second));
    ::utimensat(AT_FDCWD, PathOf(key).c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
  }
}

TierStats DiskTier::stats() const {
  const std::lock_guard lock(mutex_);
  TierStats stats = stats_;
  stats.writing = !off_until_;
  return stats;
}

void DiskTier::ForEach(const std::function<void(const StoredSegment&)>& visit) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, entry] : entries_) visit(entry.segment);
}

void DiskTier::RemoveCorrupt(const SnapshotKey& key, const char* what) {
  const std::lock_guard lock(mutex_);
  Unlink(PathOf(key));
  Drop(key);
  ++stats_.corrupt;
  spdlog::warn("snapshot tier: a file is not what was written and is removed file={} reason=\"{}\"",
               PathOf(key).filename().string(), what);
}

void DiskTier::WriteFailed(int error, const char* call) {
  const std::lock_guard lock(mutex_);
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

std::unique_ptr<DiskTier::Writer> DiskTier::Create(StoredSegment segment) {
  {
    const std::lock_guard lock(mutex_);
    if (off_until_ && std::chrono::steady_clock::now() < *off_until_) return nullptr;
    if (entries_.contains(segment.key) || !MakeRoom(segment.bytes + sizeof(FileHeader))) return nullptr;
    reserved_ += segment.bytes + sizeof(FileHeader);
  }
  std::unique_ptr<Writer> writer(new Writer(*this, std::move(segment)));
  if (writer->fd_.valid()) return writer;
  return nullptr;
}

DiskTier::Writer::Writer(DiskTier& tier, StoredSegment segment) : tier_(tier), segment_(std::move(segment)) {
  {
    const std::lock_guard lock(tier_.mutex_);
    path_ = tier_.options_.folder / fmt::format("{}{}-{}", kTemporary, ::getpid(), ++tier_.temporary_);
  }
  int error = tier_.Fault("open");
  if (error == 0) {
    fd_ =
        api::FileDescriptor(::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
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
  const std::lock_guard lock(tier_.mutex_);
  tier_.reserved_ -= segment_.bytes + sizeof(FileHeader);
}

bool DiskTier::Writer::Write(std::span<const char> bytes) {
  if (bytes.size() > segment_.bytes - written_) return false;
  int error = tier_.Fault("write");
  if (error == 0 && !WriteAll(fd_.get(), bytes.data(), bytes.size(), sizeof(FileHeader) + written_))
    error = errno;
  if (error != 0) {
    tier_.WriteFailed(error, "write");
    return false;
  }
  hash_.Update({bytes.data(), bytes.size()});
  written_ += bytes.size();
  return true;
}

bool DiskTier::Writer::Commit() {
  if (written_ != segment_.bytes) return false;
  const std::string header = tier_.HeaderOf(segment_, hash_.Finish());
  const fs::path path = tier_.PathOf(segment_.key);
  const char* call = "write";
  int error = tier_.Fault(call);
  if (error == 0 && !WriteAll(fd_.get(), header.data(), header.size(), 0)) error = errno;
  if (error == 0) {
    call = "rename";
    error = tier_.Fault(call);
    if (error == 0 && ::rename(path_.c_str(), path.c_str()) != 0) error = errno;
  }
  if (error != 0) {
    tier_.WriteFailed(error, call);
    return false;
  }
  done_ = true;
  const std::lock_guard lock(tier_.mutex_);
  tier_.Add(segment_, Now());
  ++tier_.stats_.written;
  tier_.WriteWorked();
  return true;
}

std::unique_ptr<DiskTier::Reader> DiskTier::OpenSegment(const SnapshotKey& key) {
  api::FileDescriptor fd(::open(PathOf(key).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd.valid()) {
    const std::lock_guard lock(mutex_);
    if (errno != ENOENT) ++stats_.failures;
    Drop(key);
    return nullptr;
  }
  std::unique_ptr<Reader> reader(new Reader(*this, std::move(fd)));
  if (!ReadHeader(reader->fd_.get(), reader->segment_, reader->content_) || reader->segment_.key != key) {
    reader->segment_.key = key;
    RemoveCorrupt(key, "header");
    return nullptr;
  }
  return reader;
}

bool DiskTier::Reader::Read(std::span<char> out) {
  if (out.size() > segment_.bytes - at_ ||
      !ReadAll(fd_.get(), out.data(), out.size(), sizeof(FileHeader) + at_)) {
    tier_.RemoveCorrupt(segment_.key, "length");
    return false;
  }
  hash_.Update({out.data(), out.size()});
  at_ += out.size();
  return true;
}

bool DiskTier::Reader::Verify() {
  if (at_ != segment_.bytes || hash_.Finish() != content_) {
    tier_.RemoveCorrupt(segment_.key, "content");
    return false;
  }
  const std::lock_guard lock(tier_.mutex_);
  ++tier_.stats_.read;
  return true;
}

}  // namespace quire::server
