// Names given and taken away, and blobs that come in.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "api/base/sha256.h"
#include "server/store/model_store.h"
#include "server/testing/store_fixture.h"

namespace quire::server {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Named;
using testing::ReadFile;
using testing::StoreFixture;
using testing::WriteFile;

class StoreEdit : public ::testing::Test {
 protected:
  std::vector<std::string> BlobFiles() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(fixture_.root() / "blobs"))
      if (entry.path().filename() != Staging::kFolder) names.push_back(entry.path().filename());
    std::ranges::sort(names);
    return names;
  }
  static std::string BlobNamed(std::string_view content) { return "sha256-" + api::Sha256Of(content); }

  StoreFixture fixture_;
};

TEST_F(StoreEdit, CopiesAreTheSameModel) {
  ModelStore store = fixture_.Open();
  fixture_.AddPlain("a");
  fixture_.AddPlain("B");
  ASSERT_TRUE(store.Copy(Named("A"), Named("new", "tag")));
  EXPECT_EQ((*store.Find(Named("new", "tag")))->digest, (*store.Find(Named("a")))->digest);
  // An existing model whose name differs in case only is replaced, and keeps its case.
  WriteFile(fixture_.ManifestPath("B"), fixture_.PlainManifest("other weights").dump());
  ASSERT_TRUE(store.Copy(Named("a"), Named("b")));
  EXPECT_EQ((*store.Find(Named("b")))->name.Display(), "B:latest");
  EXPECT_EQ(ReadFile((*store.Find(Named("b")))->weights), "GGUF weights");
  EXPECT_EQ(store.Copy(Named("nobody"), Named("x")).error().code, api::ErrorCode::kNotFound);
  EXPECT_EQ(store.Copy(Named("a"), Named("../x")).error().code, api::ErrorCode::kInvalidArgument);
}

TEST_F(StoreEdit, DeletingLeavesWhatOthersUse) {
  ModelStore store = fixture_.Open();
  NewModel model = fixture_.New("one", "shared weights");
  model.system = "of one";
  ASSERT_TRUE(store.Register(model));
  model.name = Named("two");
  model.system = "of two";
  ASSERT_TRUE(store.Register(model));
  const std::string digest = (*store.Find(Named("one")))->digest;
  const auto deleted = store.Delete(Named("ONE"));
  ASSERT_TRUE(deleted) << deleted.error().message;
  EXPECT_EQ(deleted->digest, digest);
  EXPECT_FALSE(deleted->shared);
  EXPECT_EQ(store.Find(Named("one")).error().code, api::ErrorCode::kNotFound);
  EXPECT_FALSE(fs::exists(fixture_.ManifestPath("one").parent_path()));
  EXPECT_FALSE(store.HasBlob(BlobNamed("of one")));
  EXPECT_TRUE(store.HasBlob(BlobNamed("shared weights")));
  EXPECT_TRUE(store.Find(Named("two")));
  ASSERT_TRUE(store.Delete(Named("two")));
  EXPECT_THAT(BlobFiles(), IsEmpty());
  EXPECT_THAT(fs::is_empty(fixture_.root() / "manifests"), true);
  EXPECT_EQ(store.Delete(Named("two")).error().message, "model 'two:latest' not found");
}

TEST_F(StoreEdit, DeletingACopySaysThatTheModelHasAnotherName) {
  ModelStore store = fixture_.Open();
  fixture_.AddPlain("a");
  ASSERT_TRUE(store.Copy(Named("a"), Named("b")));
  EXPECT_TRUE(store.Delete(Named("b"))->shared);
  EXPECT_FALSE(store.Delete(Named("a"))->shared);
}

TEST_F(StoreEdit, BlobsThatNoModelNamesAreTakenAway) {
  ModelStore store = fixture_.Open();
  fixture_.AddPlain("a");
  WriteFile(fixture_.Blob("source"), "source");
  store.RemoveUnnamed({BlobNamed("source"), BlobNamed("GGUF weights"), BlobNamed("nowhere")});
  EXPECT_FALSE(store.HasBlob(BlobNamed("source")));
  EXPECT_TRUE(store.Find(Named("a")));
}

// However a blob loses its last name: a client that asked for it and got a yes finds it.
TEST_F(StoreEdit, WhatSomebodyNeedsStays) {
  ModelStore store = fixture_.Open();
  fixture_.AddPlain("a");
  const std::string blob = BlobNamed("GGUF weights");
  store.users().Promise(blob, fair::PartyNamed("client"), BlobUsers::Clock::now());
  ASSERT_TRUE(store.Delete(Named("a")));
  EXPECT_TRUE(store.HasBlob(blob));
  {
    BlobUsers::Lease create(store.users());
    create.Redeem(blob, fair::PartyNamed("client"));
    store.RemoveUnnamed({blob});
    EXPECT_TRUE(store.HasBlob(blob));
  }
  store.RemoveUnnamed({blob});
  EXPECT_FALSE(store.HasBlob(blob));
}

TEST_F(StoreEdit, OldBlobsThatNoModelNamesAreTakenAway) {
  ModelStore store = fixture_.Open();
  fixture_.AddPlain("a");
  const auto age = [](const fs::path& file) {
    fs::last_write_time(file, fs::last_write_time(file) - std::chrono::hours(24 * 8));
  };
  for (const char* text : {"old", "new"}) WriteFile(fixture_.Blob(text), text);
  WriteFile(fixture_.root() / "blobs/notes", "not a blob");
  age(fixture_.Blob("old"));
  age(fixture_.Blob("GGUF weights"));
  age(fixture_.root() / "blobs/notes");
  store.RemoveOldUnnamed();
  EXPECT_FALSE(store.HasBlob(BlobNamed("old")));
  EXPECT_TRUE(store.HasBlob(BlobNamed("new")));
  EXPECT_TRUE(fs::exists(fixture_.root() / "blobs/notes"));
  EXPECT_TRUE(store.Find(Named("a")));
}

TEST_F(StoreEdit, WhatAModelIsReplacedByTakesItsPlaceAndItsBlobs) {
  ModelStore store = fixture_.Open();
  NewModel model = fixture_.New("one", "first weights");
  model.system = "shared text";
  ASSERT_TRUE(store.Register(model));
  NewModel other = fixture_.New("two", "other weights");
  other.system = "shared text";
  ASSERT_TRUE(store.Register(other));
  NewModel again = fixture_.New("one", "second weights");
  ASSERT_TRUE(store.Register(again));
  EXPECT_FALSE(store.HasBlob(BlobNamed("first weights")));
  EXPECT_TRUE(store.HasBlob(BlobNamed("second weights")));
  EXPECT_TRUE(store.HasBlob(BlobNamed("shared text")));
  ASSERT_TRUE(store.Copy(Named("one"), Named("two")));
  EXPECT_FALSE(store.HasBlob(BlobNamed("other weights")));
  EXPECT_FALSE(store.HasBlob(BlobNamed("shared text")));
  EXPECT_EQ(ReadFile((*store.Find(Named("two")))->weights), "second weights");
}

TEST_F(StoreEdit, NoBlobGoesWhileAManifestCannotBeRead) {
  ModelStore store = fixture_.Open();
  fixture_.AddPlain("whole");
  WriteFile(fixture_.ManifestPath("broken"), "no manifest");
  const size_t before = BlobFiles().size();
  ASSERT_TRUE(store.Delete(Named("whole")));
  EXPECT_EQ(BlobFiles().size(), before);
  ASSERT_TRUE(store.Delete(Named("broken")));  // a broken one can be deleted
  EXPECT_THAT(*store.List(), IsEmpty());
}

TEST_F(StoreEdit, UploadsAreCheckedAndLeaveNothing) {
  ModelStore store = fixture_.Open();
  const std::string blob = BlobNamed("hello world");
  {
    auto upload = store.StartUpload();
    ASSERT_TRUE(upload) << upload.error().message;
    ASSERT_TRUE(upload->Append("hello "));
    ASSERT_TRUE(upload->Append("world"));
    EXPECT_FALSE(store.HasBlob(blob));
    ASSERT_TRUE(store.FinishUpload(*upload, blob));
    EXPECT_TRUE(store.HasBlob(blob));
  }
  {
    auto upload = store.StartUpload();
    ASSERT_TRUE(upload->Append("something else"));
    const auto finished = store.FinishUpload(*upload, BlobNamed("what was promised"));
    ASSERT_FALSE(finished);
    EXPECT_EQ(finished.error().code, api::ErrorCode::kInvalidArgument);
    EXPECT_THAT(finished.error().message,
                HasSubstr("digest mismatch, expected sha256:" + api::Sha256Of("what was promised") +
                          ", got sha256:" + api::Sha256Of("something else")));
  }
  { ASSERT_TRUE(store.StartUpload()->Append("given up")); }
  EXPECT_THAT(BlobFiles(), ElementsAre(blob));
  EXPECT_EQ(ReadFile(store.BlobPath(blob)), "hello world");
}

TEST_F(StoreEdit, WhatADeadProcessLeftIsTakenAwayAndWhatIsInUseStays) {
  ModelStore store = fixture_.Open();
  const fs::path blobs = fixture_.root() / "blobs";
  for (const fs::path& dead : {blobs / ".quire-staging/.quire-staging-dead", blobs / ".quire-staging-old"})
    WriteFile(dead / "blob", "half");
  auto upload = store.StartUpload();
  ASSERT_TRUE(upload->Append("all"));
  ModelStore another = fixture_.Open();
  EXPECT_FALSE(fs::exists(blobs / ".quire-staging/.quire-staging-dead"));
  EXPECT_FALSE(fs::exists(blobs / ".quire-staging-old"));
  ASSERT_TRUE(store.FinishUpload(*upload, BlobNamed("all")));
  EXPECT_TRUE(another.HasBlob(BlobNamed("all")));
}

TEST_F(StoreEdit, WhatADyingProcessStillHasIsTakenAwayByALaterUpload) {
  const fs::path left = fixture_.root() / "blobs/.quire-staging/.quire-staging-dying";
  WriteFile(left / "blob", "half");
  auto dying = std::make_unique<api::Result<StoreDirectory>>(StoreDirectory::OpenRoot(left));
  ASSERT_TRUE((*dying)->TryLock());
  const ModelStore store = fixture_.Open();
  ASSERT_TRUE(store.MakeStaging());
  EXPECT_TRUE(fs::exists(left));
  dying.reset();
  ASSERT_TRUE(store.MakeStaging());
  EXPECT_FALSE(fs::exists(left));
}

// All that are in use would else be opened and locked by each upload that begins beside them.
TEST_F(StoreEdit, AnUploadLooksAtAFewOfTheOthers) {
  constexpr ptrdiff_t kAbandoned = 100;
  const ModelStore store = fixture_.Open();
  const fs::path folder = fixture_.root() / "blobs/.quire-staging";
  for (ptrdiff_t i = 0; i < kAbandoned; ++i)
    WriteFile(folder / fmt::format(".quire-staging-{}", i) / "blob", "half");
  const auto left = [&] { return std::distance(fs::directory_iterator(folder), fs::directory_iterator()); };
  ASSERT_TRUE(store.MakeStaging());
  EXPECT_EQ(left(), kAbandoned - 16);
  for (int more = 0; more < 1000 && left() > 0; ++more) ASSERT_TRUE(store.MakeStaging());
  EXPECT_EQ(left(), 0);
}

TEST_F(StoreEdit, StagingDirectoriesMadeAtOnceAreAllThere) {
  const ModelStore store = fixture_.Open();
  std::vector<std::jthread> threads;
  std::atomic<int> lost = 0;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        const auto staging = store.MakeStaging();
        if (!staging || !fs::exists(staging->directory().path())) ++lost;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(lost, 0);
}

TEST_F(StoreEdit, AdoptsAFileByItsDigest) {
  ModelStore store = fixture_.Open();
  const auto staging = store.MakeStaging();
  ASSERT_TRUE(staging);
  WriteFile(staging->directory().path() / "model.gguf", "converted");
  BlobUsers::Lease lease(store.users());
  const auto blob = store.Adopt(*staging, "model.gguf", lease);
  ASSERT_TRUE(blob) << blob.error().message;
  EXPECT_EQ(*blob, BlobNamed("converted"));
  EXPECT_TRUE(store.HasBlob(*blob));
  EXPECT_FALSE(store.Adopt(*staging, "missing", lease));
}

TEST_F(StoreEdit, LendsABlobUnderAnotherName) {
  ModelStore store = fixture_.Open();
  fixture_.AddPlain("a");
  const std::string blob = (*store.Find(Named("a")))->weights.filename();
  const auto staging = store.MakeStaging();
  ASSERT_TRUE(staging);
  ASSERT_TRUE(store.Lend(blob, *staging, "model.gguf"));
  EXPECT_EQ(ReadFile(staging->directory().path() / "model.gguf"), "GGUF weights");
  EXPECT_FALSE(store.Lend(blob, *staging, "model.gguf"));  // there is one
  EXPECT_FALSE(store.Lend(BlobNamed("nowhere"), *staging, "x"));
}

TEST_F(StoreEdit, AModelOfBlobsThatAreThere) {
  ModelStore store = fixture_.Open();
  const json layers = json::array({fixture_.Layer("application/vnd.ollama.image.model", "weights"),
                                   fixture_.Layer("application/vnd.ollama.image.projector", "eyes")});
  WriteFile(fixture_.ManifestPath("base"), fixture_.Manifest(layers).dump());
  const auto base = store.Find(Named("base"));
  ASSERT_EQ((*base)->other_layers.size(), 1u);
  NewModel made = fixture_.New("made", "");
  made.weights_blob = BlobNamed("weights");
  made.other_layers = (*base)->other_layers;
  made.go_template = "{{ .Prompt }}";
  made.licenses = {"one", "two"};
  made.messages = {{"user", "hey"}, {"assistant", "ahoy"}};
  std::vector<BlobUse> uses;
  const auto stored = store.Register(made, &uses);
  ASSERT_TRUE(stored) << stored.error().message;
  EXPECT_EQ((*stored)->weights, (*base)->weights);
  EXPECT_EQ((*stored)->other_layers[0].blob, BlobNamed("eyes"));
  EXPECT_EQ((*stored)->go_template, "{{ .Prompt }}");
  EXPECT_THAT((*stored)->licenses, ElementsAre("one", "two"));
  ASSERT_EQ((*stored)->messages.size(), 2u);
  EXPECT_EQ((*stored)->messages[1].content, "ahoy");
  ASSERT_FALSE(uses.empty());
  EXPECT_EQ(uses[0].blob, BlobNamed("weights"));
  EXPECT_TRUE(uses[0].existed);
  EXPECT_FALSE(uses.back().existed);
  made.weights_blob = BlobNamed("nowhere");
  EXPECT_EQ(store.Register(made).error().code, api::ErrorCode::kNotFound);
}

}  // namespace
}  // namespace quire::server
