#include "server/tier/segment_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <initializer_list>

namespace quire::server {
namespace {

constexpr std::string_view kMagic = "QPREFIX2";
constexpr size_t kVersionAt = 7;  // in the magic
constexpr uint64_t kOriginBytesMax = uint64_t{64} << 10;
constexpr int64_t kTokensMax = int64_t{1} << 32;

// As it lies in the file: little-endian, as every machine that Quire runs on.
struct FileHeader {
  std::array<char, 8> magic{};
  uint64_t bytes = 0;
  int64_t from = 0;
  int64_t to = 0;
  uint64_t state = 0;
  SnapshotKey key{};
  SnapshotKey parent{};
  SnapshotKey content{};
  uint64_t origin_bytes = 0;
  SnapshotKey hmac{};  // of all before, and of the origin behind it
};
static_assert(sizeof(FileHeader) == 176);

std::string SignedPart(const FileHeader& header, std::string_view origin) {
  std::string text(reinterpret_cast<const char*>(&header), sizeof(header) - sizeof(header.hmac));
  return text.append(origin);
}

void AppendField(std::string& out, std::string_view field) {
  const auto size = static_cast<uint32_t>(field.size());
  out.append(reinterpret_cast<const char*>(&size), sizeof(size)).append(field);
}

bool CutField(std::string_view& bytes, std::string& field) {
  uint32_t size = 0;
  if (bytes.size() < sizeof(size)) return false;
  std::memcpy(&size, bytes.data(), sizeof(size));
  bytes.remove_prefix(sizeof(size));
  if (bytes.size() < size) return false;
  field = bytes.substr(0, size);
  bytes.remove_prefix(size);
  return true;
}

}  // namespace

std::string EncodeOrigin(const PrefixOrigin& origin) {
  std::string out;
  for (const std::string* field :
       {&origin.model, &origin.program, &origin.files, &origin.byte_class, &origin.isolation}) {
    AppendField(out, *field);
  }
  AppendField(out, std::to_string(origin.segment_tokens));
  AppendField(out, origin.needs_state ? "state" : "");
  return out;
}

std::optional<PrefixOrigin> ParseOrigin(std::string_view bytes) {
  PrefixOrigin origin;
  std::string tokens;
  std::string state;
  for (std::string* field : {&origin.model, &origin.program, &origin.files, &origin.byte_class,
                             &origin.isolation, &tokens, &state}) {
    if (!CutField(bytes, *field)) return std::nullopt;
  }
  if (!bytes.empty() || tokens.empty() || tokens.size() > 9 ||
      tokens.find_first_not_of("0123456789") != std::string::npos) {
    return std::nullopt;
  }
  origin.segment_tokens = std::stoll(tokens);
  origin.needs_state = state == "state";
  if (origin.segment_tokens <= 0 || (!origin.needs_state && !state.empty())) return std::nullopt;
  return origin;
}

SnapshotKey RootKey(const SnapshotKey& secret, const PrefixOrigin& origin) {
  std::string root = origin.program + origin.files;
  root += '\0';
  root += origin.byte_class;
  root += '\0' + std::to_string(origin.segment_tokens);
  return HmacOf(HmacOf(secret, root), origin.isolation);
}

uint64_t ContentOffset(const StoredSegment& segment) { return sizeof(FileHeader) + segment.origin_bytes; }

uint64_t StoredSegment::file_bytes() const { return ContentOffset(*this) + token_bytes() + bytes; }

uint64_t StoredSegment::disk_bytes() const {
  return (file_bytes() + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
}

std::string EncodeHead(const SegmentHead& head, const SnapshotKey& secret) {
  const StoredSegment& segment = head.segment;
  FileHeader header{.bytes = segment.bytes,
                    .from = segment.from,
                    .to = segment.to,
                    .state = segment.state ? uint64_t{1} : uint64_t{0},
                    .key = segment.key,
                    .parent = segment.parent,
                    .content = head.content,
                    .origin_bytes = head.origin.size()};
  kMagic.copy(header.magic.data(), header.magic.size());
  header.hmac = HmacOf(secret, SignedPart(header, head.origin));
  return std::string(reinterpret_cast<const char*>(&header), sizeof(header)).append(head.origin);
}

namespace {

// What can be told of the header alone.
HeadState CheckHeader(const FileHeader& header) {
  const std::string_view magic(header.magic.data(), header.magic.size());
  if (magic.substr(0, kVersionAt) == kMagic.substr(0, kVersionAt) && magic != kMagic && magic.back() >= '0' &&
      magic.back() <= '9') {
    return HeadState::kOtherVersion;
  }
  const bool sound = magic == kMagic && header.origin_bytes <= kOriginBytesMax && header.from >= 0 &&
                     header.to >= header.from && header.to <= kTokensMax &&
                     header.bytes <= StoredSegment::kBytesMax;
  return sound ? HeadState::kValid : HeadState::kCorrupt;
}

HeadState FinishHead(const FileHeader& header, const SnapshotKey& secret, uint64_t file_bytes,
                     SegmentHead& head) {
  if (header.hmac != HmacOf(secret, SignedPart(header, head.origin))) return HeadState::kCorrupt;
  head.segment = {header.key,        header.parent, header.from,        header.to,
                  header.state != 0, header.bytes,  header.origin_bytes};
  head.content = header.content;
  return file_bytes == head.segment.file_bytes() ? HeadState::kValid : HeadState::kCorrupt;
}

}  // namespace

HeadState ReadHead(int fd, const SnapshotKey& secret, SegmentHead& head) {
  FileHeader header;
  if (!ReadAll(fd, reinterpret_cast<char*>(&header), sizeof(header), 0)) return HeadState::kCorrupt;
  if (const HeadState state = CheckHeader(header); state != HeadState::kValid) return state;
  head.origin.resize(header.origin_bytes);
  if (!ReadAll(fd, head.origin.data(), head.origin.size(), sizeof(header))) return HeadState::kCorrupt;
  struct stat status {};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return HeadState::kCorrupt;
  return FinishHead(header, secret, static_cast<uint64_t>(status.st_size), head);
}

HeadState ParseHead(std::string_view file, const SnapshotKey& secret, SegmentHead& head) {
  FileHeader header;
  if (file.size() < sizeof(header)) return HeadState::kCorrupt;
  std::memcpy(&header, file.data(), sizeof(header));
  if (const HeadState state = CheckHeader(header); state != HeadState::kValid) return state;
  if (file.size() - sizeof(header) < header.origin_bytes) return HeadState::kCorrupt;
  head.origin = file.substr(sizeof(header), header.origin_bytes);
  return FinishHead(header, secret, file.size(), head);
}

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

}  // namespace quire::server
