#include "server/store/bundled_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/testing/store_fixture.h"

namespace quire::server {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Named;
using testing::ReadFile;
using testing::StoreFixture;
using testing::WriteFile;

TEST(BundledModels, AreFoundInTheSourceTree) {
  // Three levels deep, as BUILD/dev/bin is.
  const auto found = FindBundledModels(fs::absolute("tests/data/gguf"));
  ASSERT_TRUE(found);
  EXPECT_TRUE(fs::equivalent(*found, "packaging/models"));
}

TEST(BundledModels, AreRegisteredOnAFreshStore) {
  StoreFixture fixture;
  ModelStore store = fixture.Open();
  const auto done = RegisterBundled(store, "packaging/models");
  ASSERT_TRUE(done) << done.error().message;
  const auto model = store.Find(Named("quire-demo"));
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ((*model)->name.Display(), "quire-demo:latest");
  EXPECT_EQ(fs::file_size((*model)->weights), fs::file_size("packaging/models/quire-demo-F16.gguf"));
  EXPECT_EQ((*model)->details.family, "lfm2");
  EXPECT_EQ((*model)->details.parameter_size, "5.3M");
  EXPECT_EQ((*model)->details.quantization_level, "F16");
  EXPECT_EQ((*model)->parameters.temperature, 0.3F);
  EXPECT_EQ((*model)->parameters.min_p, 0.15F);
  EXPECT_EQ((*model)->go_template, "");
  ASSERT_EQ((*model)->licenses.size(), 1U);
  EXPECT_THAT((*model)->licenses[0], HasSubstr("Apache License"));
}

TEST(BundledModels, DoNotComeBackOnceDeleted) {
  StoreFixture fixture;
  ModelStore store = fixture.Open();
  ASSERT_TRUE(RegisterBundled(store, "packaging/models"));
  fs::remove(fixture.ManifestPath("quire-demo"));
  ASSERT_TRUE(RegisterBundled(store, "packaging/models"));
  EXPECT_TRUE(store.List()->empty());
}

TEST(BundledModels, LeaveAloneWhatTheUserHasUnderThatName) {
  StoreFixture fixture;
  ModelStore store = fixture.Open();
  ASSERT_TRUE(store.Register(fixture.New("quire-demo")));
  ASSERT_TRUE(RegisterBundled(store, "packaging/models"));
  EXPECT_EQ(ReadFile((*store.Find(Named("quire-demo")))->weights), "GGUF new weights");
}

TEST(BundledModels, AreTriedAgainAfterAFailure) {
  StoreFixture fixture;
  ModelStore store = fixture.Open();
  const fs::path models = fixture.directory() / "bundled";
  fs::create_directory(models);
  EXPECT_FALSE(RegisterBundled(store, models));
  WriteFile(models / "quire-demo-F16.gguf", "GGUF");
  WriteFile(models / "LICENSE", "its own license");
  ASSERT_TRUE(RegisterBundled(store, models));
  EXPECT_THAT((*store.Find(Named("quire-demo")))->licenses, ElementsAre("its own license"));
}

}  // namespace
}  // namespace quire::server
