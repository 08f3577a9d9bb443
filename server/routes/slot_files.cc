#include "server/routes/slot_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <map>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "api/base/file_descriptor.h"
#include "api/base/io_thread.h"
#include "api/base/private_folder.h"
#include "api/base/sha256.h"

namespace quire::server {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSlotMagic = "QSLOT001";
constexpr std::string_view kSlotSuffix = ".quire-slot";
constexpr size_t kTenantCharacters = 16;
constexpr size_t kHashCharacters = 64;

void AppendBytes(std::string& out, std::string_view bytes) {
  const uint64_t size = bytes.size();
  out.append(reinterpret_cast<const char*>(&size), sizeof(size)).append(bytes);
}

bool CutBytes(std::string_view& from, std::string& out) {
  uint64_t size = 0;
  if (from.size() < sizeof(size)) return false;
  std::memcpy(&size, from.data(), sizeof(size));
  from.remove_prefix(sizeof(size));
  if (from.size() < size) return false;
  out = from.substr(0, size);
  from.remove_prefix(size);
  return true;
}

std::string EncodeSlot(const SlotOwner& owner, const std::string& name, const SlotPrefix& prefix) {
  std::string out(kSlotMagic);
  for (const std::string* field : {&owner.tenant, &owner.model, &name, &prefix.cache_salt})
    AppendBytes(out, *field);
  AppendBytes(out, std::to_string(prefix.num_ctx));
  AppendBytes(out, {reinterpret_cast<const char*>(prefix.tokens.data()),
                    prefix.tokens.size() * sizeof(prefix.tokens[0])});
  return out + api::Sha256Of(out);
}

std::optional<SlotPrefix> ParseSlot(std::string_view text, const SlotOwner& owner, const std::string& name) {
  if (!text.starts_with(kSlotMagic) || text.size() < kSlotMagic.size() + kHashCharacters) return std::nullopt;
  std::string_view fields = text.substr(0, text.size() - kHashCharacters);
  if (api::Sha256Of(fields) != text.substr(fields.size())) return std::nullopt;
  fields.remove_prefix(kSlotMagic.size());
  SlotOwner found;
  std::string found_name, context, tokens;
  SlotPrefix prefix;
  for (std::string* field :
       {&found.tenant, &found.model, &found_name, &prefix.cache_salt, &context, &tokens}) {
    if (!CutBytes(fields, *field)) return std::nullopt;
  }
  const bool sound = found == owner && found_name == name && fields.empty() && !context.empty() &&
                     context.size() < 10 && context.find_first_not_of("0123456789") == std::string::npos &&
                     !tokens.empty() && tokens.size() % sizeof(api::TokenId) == 0;
  if (!sound) return std::nullopt;
  prefix.num_ctx = static_cast<int32_t>(std::stoi(context));
  prefix.tokens.resize(tokens.size() / sizeof(api::TokenId));
  std::memcpy(prefix.tokens.data(), tokens.data(), tokens.size());
  return prefix;
}

bool IsHex(std::string_view text) { return text.find_first_not_of("0123456789abcdef") == text.npos; }

bool IsSlotName(std::string_view name) {
  return name.size() == kTenantCharacters + 1 + kHashCharacters + kSlotSuffix.size() &&
         name.ends_with(kSlotSuffix) && IsHex(name.substr(0, kTenantCharacters)) &&
         name[kTenantCharacters] == '-' && IsHex(name.substr(kTenantCharacters + 1, kHashCharacters));
}

std::string TenantPart(const std::string& file) { return file.substr(0, kTenantCharacters); }

std::unexpected<api::Error> SlotFailure(const char* action, const char* call) {
  const std::string why = std::generic_category().message(errno);
  return api::Fail(api::ErrorCode::kUnavailable,
                   fmt::format("cannot {} the snapshot: {}: {}", action, call, why));
}

bool WriteSlot(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

// A read that fails says nothing of the bytes on the disk.
bool ReadSlot(int fd, std::string& bytes) {
  size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t n = ::read(fd, bytes.data() + filled, bytes.size() - filled);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    if (n == 0) break;
    filled += static_cast<size_t>(n);
  }
  bytes.resize(filled);
  return true;
}

}  // namespace

fs::path SlotFiles::PathOf(const SlotOwner& owner, const std::string& name) const {
  const std::string tenant = api::Sha256Of(owner.tenant).substr(0, kTenantCharacters);
  return folder_ / fmt::format("{}-{}{}", tenant, api::Sha256Of(owner.model + '\0' + name), kSlotSuffix);
}

// What a killed daemon left is removed, too.
void SlotFiles::MakeRoom(const fs::path& place, uint64_t bytes) const {
  struct File {
    fs::path path;
    std::pair<time_t, int64_t> saved;
    uint64_t bytes = 0;
  };
  std::map<std::string, std::vector<File>> tenants;
  std::map<std::string, uint64_t> sizes;
  uint64_t total = std::max(bytes, file_bytes_min_);
  std::error_code error;
  for (fs::directory_iterator files(folder_, error); !error && files != fs::directory_iterator();
       files.increment(error)) {
    const std::string name = files->path().filename().string();
    if (api::IsAbandonedFile(files->path())) ::unlink(files->path().c_str());
    struct stat status {};
    if (!IsSlotName(name) || files->path() == place || ::lstat(files->path().c_str(), &status) != 0 ||
        !api::IsOwnFile(status))
      continue;
    File file{files->path(), {status.st_mtim.tv_sec, status.st_mtim.tv_nsec}};
    file.bytes = std::max({static_cast<uint64_t>(status.st_size),
                           static_cast<uint64_t>(status.st_blocks) * 512, file_bytes_min_});
    total += file.bytes;
    sizes[TenantPart(name)] += file.bytes;
    tenants[TenantPart(name)].push_back(std::move(file));
  }
  while (total > bytes_max_ && !tenants.empty()) {
    const auto most = std::ranges::max_element(sizes, {}, [](const auto& size) { return size.second; });
    std::vector<File>& files = tenants[most->first];
    const auto oldest = std::ranges::min_element(files, {}, &File::saved);
    ::unlink(oldest->path.c_str());
    total -= oldest->bytes;
    most->second -= oldest->bytes;
    files.erase(oldest);
    if (!files.empty()) continue;
    tenants.erase(most->first);
    sizes.erase(most);
  }
}

api::Result<void> SlotFiles::Write(const SlotOwner& owner, const std::string& name,
                                   const SlotPrefix& prefix) const {
  api::AssertMayBlock();
  const std::string bytes = EncodeSlot(owner, name, prefix);
  if (bytes.size() > bytes_max_) {
    return api::Fail(api::ErrorCode::kTooLarge,
                     fmt::format("all snapshots on disk together have at most {} bytes", bytes_max_));
  }
  for (const fs::path& folder : {folder_.parent_path(), folder_}) {
    const auto usable = api::MakePrivateFolder(folder);
    if (usable) continue;
    spdlog::warn("snapshots of slots cannot be saved error=\"{}\"", usable.error().message);
    return api::Fail(api::ErrorCode::kUnavailable, "cannot save the snapshot: the log says why");
  }
  const fs::path path = PathOf(owner, name);
  const fs::path part = folder_ / api::UnfinishedFileName();
  const api::FileDescriptor fd(
      ::open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return SlotFailure("save", "open");
  ::flock(fd.get(), LOCK_EX | LOCK_NB);
  const char* call = "write";
  bool done = WriteSlot(fd.get(), bytes);
  if (done) {
    MakeRoom(path, bytes.size());
    call = "rename";
    done = ::rename(part.c_str(), path.c_str()) == 0;
  }
  if (done) return {};
  const auto failure = SlotFailure("save", call);
  ::unlink(part.c_str());
  return failure;
}

api::Result<std::optional<SlotPrefix>> SlotFiles::Read(const SlotOwner& owner,
                                                       const std::string& name) const {
  api::AssertMayBlock();
  const fs::path path = PathOf(owner, name);
  const api::FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd.valid() && (errno == ENOENT || errno == ENOTDIR)) return std::nullopt;
  struct stat status {};
  if (!fd.valid() || ::fstat(fd.get(), &status) != 0) return SlotFailure("read", "open");
  if (!S_ISREG(status.st_mode) || static_cast<uint64_t>(status.st_size) > bytes_max_) return std::nullopt;
  std::string text(static_cast<size_t>(status.st_size), '\0');
  if (!ReadSlot(fd.get(), text)) return SlotFailure("read", "read");
  auto prefix = ParseSlot(text, owner, name);
  if (!prefix) ::unlink(path.c_str());
  return prefix;
}

}  // namespace quire::server
