// The model store when an allocation fails, for each of an operation's allocations.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "server/store/model_store.h"
#include "tests/faults/every_allocation.h"

namespace quire::faults {
namespace {

namespace fs = std::filesystem;
using server::ModelStore;
using server::NewModel;

api::ModelName Named(const std::string& model) {
  api::ModelName name;
  name.model = model;
  return name;
}

// Each look at the store is as that of another process: it has nothing in memory.
class FailingStore : public ::testing::Test {
 protected:
  FailingStore() {
    std::string folder = (fs::temp_directory_path() / "quire-allocations-XXXXXX").string();
    folder_ = ::mkdtemp(folder.data());
    std::ofstream(folder_ / "source.gguf") << "GGUF weights";
    EXPECT_TRUE(Open().Register(New("demo")));
  }
  ~FailingStore() override { fs::remove_all(folder_); }

  ModelStore Open() const { return *ModelStore::Open(folder_ / "models"); }
  NewModel New(const std::string& model) const {
    NewModel made;
    made.name = Named(model);
    made.gguf = folder_ / "source.gguf";
    made.details.format = "gguf";
    made.details.family = "lfm2";
    return made;
  }
  // After the removal of what an operation may have made.
  void ExpectOnlyDemo(const std::string& made) const {
    static_cast<void>(Open().Delete(Named(made)));
    const auto models = Open().List();
    EXPECT_TRUE(models && models->size() == 1 && Open().Find(Named("demo")));
  }

  fs::path folder_;
};

TEST_F(FailingStore, Lists) {
  const int64_t points = FailEveryAllocation(
      [this] {
        const ModelStore store = Open();
        static_cast<void>(store.List());
        static_cast<void>(store.Find(Named("demo")));
      },
      [this] { ExpectOnlyDemo("other"); });
  EXPECT_GT(points, 50);
  RecordProperty("points", static_cast<int>(points));
}

TEST_F(FailingStore, CopiesAndDeletes) {
  const int64_t points = FailEveryAllocation(
      [this] {
        ModelStore store = Open();
        static_cast<void>(store.Copy(Named("demo"), Named("copy")));
        static_cast<void>(store.Delete(Named("copy")));
      },
      [this] { ExpectOnlyDemo("copy"); });
  EXPECT_GT(points, 100);
  RecordProperty("points", static_cast<int>(points));
}

TEST_F(FailingStore, Registers) {
  const NewModel model = New("new");
  const int64_t points = FailEveryAllocation([&] { static_cast<void>(Open().Register(model)); },
                                             [this] { ExpectOnlyDemo("new"); });
  EXPECT_GT(points, 100);
  RecordProperty("points", static_cast<int>(points));
}

}  // namespace
}  // namespace quire::faults
