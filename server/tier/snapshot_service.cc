#include "server/tier/snapshot_service.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <fstream>
#include <system_error>
#include <utility>

#include "api/base/io_thread.h"
#include "api/ipc/snapshot_link.h"

namespace quire::server {
namespace {

namespace ipc = api::ipc;

std::string HashOfFile(const std::filesystem::path& path) {
  api::AssertMayBlock();
  std::ifstream file(path, std::ios::binary);
  api::Sha256 hash;
  std::vector<char> bytes(size_t{1} << 20);
  while (file.read(bytes.data(), static_cast<std::streamsize>(bytes.size())) || file.gcount() > 0) {
    hash.Update({bytes.data(), static_cast<size_t>(file.gcount())});
  }
  return hash.Finish();
}

// A memory file of a size that neither side can change. Waits for no disk: no page of it is there yet.
api::FileDescriptor MakeMemory() {
  api::FileDescriptor memory(::memfd_create("quire-prefixes", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.valid() || ::ftruncate(memory.get(), static_cast<off_t>(ipc::kSnapshotMemoryBytes)) != 0 ||
      ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return {};
  }
  return memory;
}

}  // namespace

std::shared_ptr<const SnapshotService::Loaded> SnapshotService::Load(Settings settings) {
  auto loaded = std::make_shared<Loaded>();
  auto tier = DiskTier::Open(std::move(settings.disk));
  if (!tier) {
    spdlog::warn("snapshot tier: off error=\"{}\"", tier.error().message);
    return loaded;
  }
  loaded->tier = *std::move(tier);
  loaded->program = HashOfFile(settings.runner);
  if (settings.redis) loaded->redis = std::make_unique<RedisTier>(*std::move(settings.redis), *loaded->tier);
  if (loaded->tier->stopped()) return loaded;
  const TierStats stats = loaded->tier->stats();
  spdlog::info("snapshot tier: on files={} bytes={} budget_bytes={} corrupt={}", stats.files, stats.bytes,
               stats.budget_bytes, stats.corrupt);
  return loaded;
}

SnapshotService::SnapshotService(DiskTier::Options options, std::filesystem::path runner,
                                 std::optional<RedisTier::Options> redis)
    : settings_{std::move(options), std::move(runner), std::move(redis)} {}

// The folder is not read to its end.
SnapshotService::~SnapshotService() { reader_.request_stop(); }

void SnapshotService::Begin() {
  reader_ = std::jthread(
      [promise = std::move(promise_), settings = std::move(settings_)](const std::stop_token& stop) mutable {
        settings.disk.stop = stop;
        promise.set_value(Load(std::move(settings)));
      });
}

bool SnapshotService::End(std::chrono::nanoseconds limit) {
  reader_.request_stop();
  std::promise<void> promise;
  const auto ended = promise.get_future();
  std::thread([promise = std::move(promise), loaded = std::exchange(loaded_, {}), reader = std::move(reader_),
               sessions = std::move(sessions_)]() mutable {
    sessions.clear();
    reader = {};
    loaded = {};
    promise.set_value();
  }).detach();
  return ended.wait_for(limit) == std::future_status::ready;
}

const SnapshotService::Loaded* SnapshotService::ReadyIn(const Future& loaded) {
  const bool ready = loaded.valid() && loaded.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  return ready ? loaded.get().get() : nullptr;
}

std::optional<scheduler::SnapshotTier::Ends> SnapshotService::Connect(const std::string& model,
                                                                      const std::string& identity) {
  std::erase_if(sessions_, [](const auto& session) { return session->over(); });
  std::array<int, 2> pair{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()) != 0) return std::nullopt;
  api::FileDescriptor ours(pair[0]);
  api::FileDescriptor theirs(pair[1]);
  api::FileDescriptor memory = MakeMemory();
  if (!memory.valid()) return std::nullopt;
  void* mapped =
      ::mmap(nullptr, ipc::kSnapshotMemoryBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (mapped == MAP_FAILED) return std::nullopt;
  // A runner without a tier serves as well as one with it.
  try {
    sessions_.push_back(
        std::make_unique<TierSession>(std::move(ours), static_cast<std::byte*>(mapped),
                                      TierSession::Settings{.model = model, .identity = identity},
                                      [loaded = loaded_]() -> TierSession::Opened {
                                        const auto& ready = loaded.get();
                                        return {ready->tier.get(), ready->program, ready->redis.get()};
                                      }));
  } catch (const std::system_error& error) {
    spdlog::warn("snapshot tier: no link model={} error=\"{}\"", model, error.what());
    return std::nullopt;
  }
  return Ends{std::move(theirs), std::move(memory)};
}

api::Result<SnapshotService::Opened> SnapshotService::OpenedIn(const Future& loaded) {
  const Loaded* ready = ReadyIn(loaded);
  if (ready == nullptr)
    return api::Fail(api::ErrorCode::kUnavailable, "the folder of prefixes is being read");
  if (!ready->tier)
    return api::Fail(api::ErrorCode::kUnavailable, "the folder of prefixes cannot be used; the log says why");
  return Opened{ready->tier, ready->program};
}

SnapshotService::FindTier SnapshotService::tier() const {
  return [loaded = loaded_]() -> api::Result<std::shared_ptr<DiskTier>> {
    auto opened = OpenedIn(loaded);
    if (!opened) return std::unexpected(std::move(opened).error());
    return std::move(opened->tier);
  };
}

std::optional<RedisStats> SnapshotService::redis_stats() const {
  const Loaded* ready = loaded();
  return ready == nullptr || !ready->redis ? std::nullopt : std::optional(ready->redis->stats());
}

std::optional<TierStats> SnapshotService::stats() const {
  const Loaded* ready = loaded();
  return ready == nullptr || !ready->tier ? std::nullopt : std::optional(ready->tier->stats());
}

}  // namespace quire::server
