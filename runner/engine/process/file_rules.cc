#include "runner/engine/process/file_rules.h"

#include <fmt/format.h>
#include <linux/landlock.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

#include "api/base/file_descriptor.h"

namespace quire::runner::engine {
namespace {

// The kernel's header of Debian 12 ends with version 2 (linux/landlock.h of Linux 6.12 has the rest).
struct RulesetAttributes {
  uint64_t handled_access_fs = 0;
  uint64_t handled_access_net = 0;  // since version 4
  uint64_t scoped = 0;              // since version 6
};
constexpr uint64_t kTruncate = uint64_t{1} << 14;           // since version 3
constexpr uint64_t kIoctlDevice = uint64_t{1} << 15;        // since version 5
constexpr uint64_t kBindAndConnectTcp = 3;                  // since version 4
constexpr uint64_t kAbstractUnixSocketAndSignalScopes = 3;  // since version 6
constexpr int kNetworkVersion = 4;
constexpr int kScopeVersion = 6;

RulesetAttributes AttributesOf(int version) {
  RulesetAttributes attributes;
  attributes.handled_access_fs = (uint64_t{LANDLOCK_ACCESS_FS_MAKE_SYM} << 1) - 1;
  if (version >= 2) attributes.handled_access_fs |= LANDLOCK_ACCESS_FS_REFER;
  if (version >= 3) attributes.handled_access_fs |= kTruncate;
  if (version >= kNetworkVersion) attributes.handled_access_net = kBindAndConnectTcp;
  if (version >= 5) attributes.handled_access_fs |= kIoctlDevice;
  if (version >= kScopeVersion) attributes.scoped = kAbstractUnixSocketAndSignalScopes;
  return attributes;
}

// ENOSYS and EOPNOTSUPP are of kernels without it.
FileRestriction Unavailable(int error) {
  return {.missing = fmt::format("Landlock is not available ({})", std::generic_category().message(error)),
          .refused = error != ENOSYS && error != EOPNOTSUPP};
}

}  // namespace

FileRestriction DenyThreadFiles() {
  const auto version =
      static_cast<int>(::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION));
  if (version < 0) return Unavailable(errno);
  const RulesetAttributes attributes = AttributesOf(version);
  const api::FileDescriptor ruleset(
      static_cast<int>(::syscall(SYS_landlock_create_ruleset, &attributes, sizeof(attributes), 0)));
  if (!ruleset.valid()) return Unavailable(errno);
  // Without a rule, no file has any of the rights.
  if (::syscall(SYS_landlock_restrict_self, ruleset.get(), 0) != 0) return Unavailable(errno);
  if (version >= kScopeVersion) return {};
  return {.missing = fmt::format("Landlock has version {}, which restricts no signals{}", version,
                                 version < kNetworkVersion ? " and no TCP" : "")};
}

}  // namespace quire::runner::engine
