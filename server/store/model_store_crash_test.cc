// A process that dies inside Register, at whatever point, leaves a store that lists whole models only and
// takes new ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>

#include "server/testing/store_fixture.h"

namespace quire::server {
namespace {

namespace fs = std::filesystem;
using testing::Named;
using testing::ReadFile;
using testing::StoreFixture;
using testing::WriteFile;

std::string WeightsOf(int generation) {
  return std::string(2'000'000, static_cast<char>('a' + generation % 26));
}

// Registers one generation after the other until killed, telling of each that is done.
[[noreturn]] void RegisterForever(const StoreFixture& fixture, int report) {
  auto store = ModelStore::Open(fixture.root());
  for (int generation = 0; store; ++generation) {
    NewModel model = fixture.New("m", WeightsOf(generation));
    model.system = std::to_string(generation);
    if (!store->Register(model) || ::write(report, "x", 1) != 1) break;
  }
  ::_exit(1);
}

TEST(StoreCrash, LeavesAUsableStore) {
  StoreFixture fixture;
  for (int round = 0; round < 12; ++round) {
    std::array<int, 2> pipe{};
    ASSERT_EQ(::pipe(pipe.data()), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) RegisterForever(fixture, pipe[1]);
    ::close(pipe[1]);
    // The child is somewhere inside its next Register when the signal comes.
    for (int done = 0; done <= round % 3; ++done) {
      char byte = 0;
      ASSERT_EQ(::read(pipe[0], &byte, 1), 1);
    }
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    ::close(pipe[0]);

    ModelStore store = fixture.Open();
    const auto models = store.List();
    ASSERT_TRUE(models);
    ASSERT_EQ(models->size(), 1U);
    EXPECT_EQ(ReadFile(models->front()->weights), WeightsOf(std::stoi(models->front()->system)));
  }
  ModelStore store = fixture.Open();
  ASSERT_TRUE(store.Register(fixture.New("after")));
  EXPECT_EQ(store.List()->size(), 2U);
}

TEST(StoreCrash, LeftoversAreNoModelsAndStandInNobodysWay) {
  StoreFixture fixture;
  ModelStore store = fixture.Open();
  WriteFile(fixture.root() / "blobs" / ".quire-new", "half a model");
  WriteFile(fixture.ManifestPath("m", ".quire-new"), "half a manifest");
  EXPECT_TRUE(store.List()->empty());
  ASSERT_TRUE(store.Register(fixture.New("m")));
  EXPECT_TRUE(store.Find(Named("m")));
  EXPECT_FALSE(fs::exists(fixture.root() / "blobs" / ".quire-new"));
  EXPECT_FALSE(fs::exists(fixture.ManifestPath("m", ".quire-new")));
}

}  // namespace
}  // namespace quire::server
