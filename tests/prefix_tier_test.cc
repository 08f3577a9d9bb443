// Prefixes that come back from disk give the bits that computing them gives, for every model family: an
// engine, the link, and the daemon's tier, without the processes.
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "runner/engine/testing/engine_harness.h"
#include "runner/engine/testing/engine_subjects.h"
#include "server/tier/snapshot_service.h"

namespace quire::runner::engine {
namespace {

namespace fs = std::filesystem;

class StoredPrefixes : public testing::TestWithParam<Subject> {
 protected:
  StoredPrefixes() : folder_(OwnFolder()) {
    ::setenv("QUIRE_SNAPSHOT_ALWAYS_FETCH", "1", 1);
    spdlog::set_level(spdlog::level::off);
  }
  ~StoredPrefixes() override { fs::remove_all(folder_); }

  std::unique_ptr<server::SnapshotService> Service() const {
    auto service = std::make_unique<server::SnapshotService>(
        server::DiskTier::Options{.folder = folder_ / "prefixes", .budget_bytes = size_t{1} << 30},
        "/proc/self/exe");
    service->Begin();
    return service;
  }
  static std::unique_ptr<EngineHarness> Make(server::SnapshotService* service,
                                             const std::string& identity = "model",
                                             size_t cache_bytes = kPlenty) {
    EngineHarnessSetup setup{.model = GetParam().model,
                             .limits = {.cache_bytes = cache_bytes, .check_invariants_every = 1},
                             .model_stops = false,
                             .kv_cache_type = GetParam().kv_cache_type};
    if (service != nullptr) {
      setup.tier = [&](const cache::Layout& layout) {
        auto ends = service->Connect("m", identity);
        return TierLink::Open(std::move(ends->socket), ends->memory, layout, "class");
      };
    }
    return std::make_unique<EngineHarness>(std::move(setup));
  }
  // The first `count` messages of a conversation.
  static api::Request Conversation(size_t count, const std::string& salt = "") {
    std::string story = "What is the capital of France, and why is it so far from the sea?";
    for (int i = 0; i < 6; ++i)
      story += " Rivers were roads once, and boats carried stone and wine and bread.";
    const std::vector<api::Message> all = {
        {.role = "user", .content = story},
        {.role = "assistant", .content = "Paris. Rivers were roads once."},
        {.role = "user", .content = "Tell me more about rivers and boats."},
        {.role = "assistant", .content = "Boats carried stone."},
        {.role = "user", .content = "And the moon?"}};
    api::Request request = Logged(Greedy("", 8));
    request.client.cache_salt = salt;
    request.prompt = api::ChatPrompt{{all.begin(), all.begin() + static_cast<ptrdiff_t>(count)}};
    return request;
  }
  static std::vector<float> Cold() { return Make(nullptr)->Generate(Conversation(5)).logprobs(); }
  // A conversation goes to disk, and its process ends.
  void StoreOne() const {
    const auto service = Service();
    const auto engine = Make(service.get());
    engine->Generate(Conversation(3));
    engine->Flush();
  }

  const fs::path folder_;
};

INSTANTIATE_TEST_SUITE_P(Models, StoredPrefixes, testing::ValuesIn(Subjects()), NameOf);

TEST_P(StoredPrefixes, SurviveTheirProcess) {
  const auto cold = Cold();
  StoreOne();
  const auto service = Service();
  const auto engine = Make(service.get());
  const Outcome next = engine->Generate(Conversation(5));
  EXPECT_EQ(next.logprobs(), cold);
  // All but what the templates render differently in the next turn.
  EXPECT_GT(next.ready->cached_tokens, 32);
  EXPECT_GT(service->stats()->read, 0u);
  EXPECT_EQ(service->stats()->corrupt, 0u);
}

TEST_P(StoredPrefixes, AreOnlyForTheirTenantAndModel) {
  const auto cold = Cold();
  StoreOne();
  const auto service = Service();
  const auto other = Make(service.get(), "another model");
  const Outcome stranger = other->Generate(Conversation(5));
  EXPECT_EQ(stranger.ready->cached_tokens, 0);
  EXPECT_EQ(stranger.logprobs(), cold);
  const auto engine = Make(service.get());
  const Outcome salted = engine->Generate(Conversation(5, "other tenant"));
  EXPECT_EQ(salted.ready->cached_tokens, 0);
  EXPECT_EQ(salted.logprobs(), cold);
}

TEST_P(StoredPrefixes, WithAFlippedBitAreComputed) {
  const auto cold = Cold();
  StoreOne();
  int files = 0;
  for (const auto& file : fs::directory_iterator(folder_ / "prefixes")) {
    if (file.path().filename() == "secret") continue;
    std::fstream stream(file.path(), std::ios::in | std::ios::out | std::ios::binary);
    const auto at = static_cast<std::streamoff>(file.file_size() - 1 - static_cast<size_t>(files++ % 3));
    stream.seekg(at);
    const int byte = stream.get();
    stream.seekp(at);
    stream.put(static_cast<char>(byte ^ 4));
  }
  ASSERT_GT(files, 0);
  const auto service = Service();
  const auto engine = Make(service.get());
  const Outcome next = engine->Generate(Conversation(5));
  EXPECT_EQ(next.logprobs(), cold);
  EXPECT_EQ(next.ready->cached_tokens, 0);
  EXPECT_GT(service->stats()->corrupt, 0u);
}

// Others run while some stand aside, and little memory makes prefixes go down and come back.
TEST_P(StoredPrefixes, UnderPressureChangeNoBit) {
  const auto cold = Cold();
  const auto service = Service();
  const auto sized = Make(nullptr);
  const auto engine = Make(service.get(), "model", 2 * sized->SequenceBytesOf(400));
  for (int round = 0; round < 3; ++round) {
    std::vector<api::RequestId> all;
    for (const size_t count : {size_t{5}, size_t{3}, size_t{5}, size_t{1}}) {
      all.push_back(engine->Submit(Conversation(count, round == 1 ? "b" : "")));
    }
    EXPECT_EQ(engine->Wait(all[0]).logprobs(), cold);
    EXPECT_EQ(engine->Wait(all[2]).logprobs(), cold);
    engine->Wait(all[1]);
    engine->Wait(all[3]);
  }
}

// A daemon that takes everything and answers nothing.
TEST(SilentTier, EndsNoRequestAndChangesNoBit) {
  ::unsetenv("QUIRE_SNAPSHOT_ALWAYS_FETCH");
  const std::string question(500, 'a');
  const auto cold = EngineHarness().Generate(Logged(Greedy(question, 8))).logprobs();
  std::array<int, 2> pair{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()), 0);
  const api::FileDescriptor silent(pair[1]);
  const api::FileDescriptor memory(::memfd_create("silent", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(memory.get(), api::ipc::kSnapshotMemoryBytes), 0);
  EngineHarnessSetup setup;
  setup.tier = [&](const cache::Layout& layout) {
    return TierLink::Open(api::FileDescriptor(pair[0]), memory, layout, "class");
  };
  EngineHarness engine(std::move(setup));
  EXPECT_EQ(engine.Generate(Logged(Greedy(question, 8))).logprobs(), cold);
  EXPECT_EQ(engine.Generate(Logged(Greedy(question, 8))).logprobs(), cold);
}

}  // namespace
}  // namespace quire::runner::engine
