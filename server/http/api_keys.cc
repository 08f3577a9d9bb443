#include "server/http/api_keys.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <iterator>
#include <new>
#include <span>
#include <system_error>
#include <utility>

#include "api/base/ascii.h"
#include "api/base/file_descriptor.h"
#include "api/base/io_thread.h"
#include "api/base/parse_integer.h"

namespace quire::server {
namespace {

using Digest = std::array<unsigned char, 32>;

constexpr std::string_view kSecretPrefix = "quire-";
constexpr std::string_view kDigestPrefix = "sha256:";
constexpr size_t kSecretBytes = 32;
constexpr size_t kNameBytesMax = 64;
constexpr size_t kFileBytesMax = size_t{4} << 20;

std::unexpected<api::Error> Bad(std::string message) {
  return api::Fail(api::ErrorCode::kInvalidArgument, std::move(message));
}

Digest DigestOf(std::string_view secret) {
  Digest digest{};
  if (EVP_Digest(secret.data(), secret.size(), digest.data(), nullptr, EVP_sha256(), nullptr) != 1) {
    throw std::bad_alloc();
  }
  return digest;
}

std::string Hex(std::span<const unsigned char> bytes) { return fmt::format("{:02x}", fmt::join(bytes, "")); }

bool ReadHex(std::string_view text, Digest& out) {
  if (text.size() != 2 * out.size()) return false;
  for (size_t i = 0; i < out.size(); ++i) {
    const char* begin = text.data() + 2 * i;
    const auto [end, error] = std::from_chars(begin, begin + 2, out[i], 16);
    if (error != std::errc{} || end != begin + 2) return false;
  }
  return true;
}

bool IsName(std::string_view text) {
  return !text.empty() && text.size() <= kNameBytesMax && text[0] != '#' &&
         std::ranges::all_of(text, [](char c) {
           return api::IsAsciiAlnum(c) || c == '-' || c == '_' || c == '.' || c == '@';
         });
}

std::string_view NextWord(std::string_view& text) {
  constexpr std::string_view kBlanks = " \t\r";
  const size_t begin = std::min(text.find_first_not_of(kBlanks), text.size());
  text.remove_prefix(begin);
  const std::string_view word = text.substr(0, text.find_first_of(kBlanks));
  text.remove_prefix(word.size());
  return word;
}

bool ReadLimit(std::string_view word, KeyLimits& limits) {
  const size_t equals = word.find('=');
  if (equals == std::string_view::npos) return false;
  const std::string_view name = word.substr(0, equals);
  const std::string_view value = word.substr(equals + 1);
  const auto number = api::ParseInteger<int32_t>(value);
  if (!number || *number < 1 || *number > 1'000'000) return false;
  if (name == "weight") {
    limits.weight = *number;
  } else if (name == "parallel") {
    limits.parallel = *number;
  } else if (name == "per_minute") {
    limits.per_minute = *number;
  } else {
    return false;
  }
  return true;
}

// One line that is neither empty nor a comment; the error does not repeat it, since it may hold a secret.
api::Result<ApiKey> ReadKey(std::string_view line) {
  ApiKey key;
  key.name = NextWord(line);
  if (!IsName(key.name)) return Bad("the first word must be a name made of letters, digits and -_.@");
  const std::string_view role = NextWord(line);
  if (role != "inference" && role != "admin") return Bad("the second word must be inference or admin");
  key.role = role == "admin" ? Role::kAdmin : Role::kInference;
  const std::string_view digest = NextWord(line);
  if (!digest.starts_with(kDigestPrefix) || !ReadHex(digest.substr(kDigestPrefix.size()), key.digest)) {
    return Bad("the third word must be sha256: and 64 hexadecimal digits, as \"quire key\" prints it");
  }
  for (std::string_view word = NextWord(line); !word.empty(); word = NextWord(line)) {
    if (!ReadLimit(word, key.limits)) {
      return Bad("limits are weight=N, parallel=N and per_minute=N, each from 1 to 1000000");
    }
  }
  return key;
}

// The whole file, or errno's words.
std::expected<std::string, std::string> ReadWhole(int fd) {
  std::string text;
  std::array<char, 16384> bytes;
  for (;;) {
    const ssize_t got = ::read(fd, bytes.data(), bytes.size());
    if (got == 0) return text;
    if (got < 0) return std::unexpected(std::generic_category().message(errno));
    text.append(bytes.data(), static_cast<size_t>(got));
    if (text.size() > kFileBytesMax) return std::unexpected<std::string>("too large for a key file");
  }
}

}  // namespace

api::Result<KeyRing> KeyRing::Parse(std::string_view text) {
  KeyRing ring;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view rest = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::string_view line = rest;
    const std::string_view first = NextWord(rest);
    if (first.empty() || first[0] == '#') continue;
    auto key = ReadKey(line);
    if (!key) return Bad(fmt::format("line {}: {}", number, key.error().message));
    if (ring.Names(key->name)) return Bad(fmt::format("line {}: duplicate key name {}", number, key->name));
    ring.keys_.push_back(*std::move(key));
  }
  return ring;
}

api::Result<KeyRing> KeyRing::Read(const std::filesystem::path& path) {
  const auto fail = [&path](std::string_view why) { return Bad(fmt::format("{}: {}", path.string(), why)); };
  api::AssertMayBlock();
  // A pipe is refused below, not waited for.
  const api::FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!fd.valid()) return fail(std::generic_category().message(errno));
  struct stat status {};
  const bool known = ::fstat(fd.get(), &status) == 0;
  const auto text = ReadWhole(fd.get());
  if (!known || !S_ISREG(status.st_mode)) return fail("not a regular file");
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return fail("writable by group or others (use chmod go-w)");
  if (!text) return fail(text.error());
  auto ring = Parse(*text);
  if (!ring) return fail(ring.error().message);
  return ring;
}

const ApiKey* KeyRing::Find(std::string_view secret) const {
  const Digest digest = DigestOf(secret);
  const ApiKey* found = nullptr;
  for (const ApiKey& key : keys_) {
    const bool same = CRYPTO_memcmp(key.digest.data(), digest.data(), digest.size()) == 0;
    found = same ? &key : found;
  }
  return found;
}

bool KeyRing::Names(std::string_view name) const {
  return std::ranges::any_of(keys_, [name](const ApiKey& key) { return key.name == name; });
}

api::Result<NewKey> MakeKey(std::string_view name, Role role, const KeyLimits& limits) {
  if (!IsName(name)) return Bad("a key name must have 1 to 64 letters, digits or -_.@");
  std::array<unsigned char, kSecretBytes> random{};
  if (RAND_bytes(random.data(), static_cast<int>(random.size())) != 1) {
    return api::Fail(api::ErrorCode::kUnavailable, "cannot get random bytes");
  }
  NewKey made{.secret = std::string(kSecretPrefix) + Hex(random), .line = {}};
  made.line = fmt::format("{} {} {}{}", name, role == Role::kAdmin ? "admin" : "inference", kDigestPrefix,
                          Hex(DigestOf(made.secret)));
  if (limits.weight != 1) made.line += fmt::format(" weight={}", limits.weight);
  if (limits.parallel > 0) made.line += fmt::format(" parallel={}", limits.parallel);
  if (limits.per_minute > 0) made.line += fmt::format(" per_minute={}", limits.per_minute);
  return made;
}

}  // namespace quire::server
