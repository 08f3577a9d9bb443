// Every change of a store, with a crash of the machine at every point and with every call failing: what the
// store lists is what it was or what it was to become, whole, and it takes the next change.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "api/base/sha256.h"
#include "server/registry/store_transfer.h"
#include "server/store/model_manifest.h"
#include "server/testing/recorded_files.h"
#include "server/testing/store_fixture.h"

namespace quire::server {
namespace {

using testing::Named;
using testing::ReadFile;
using testing::RecordedFiles;
using testing::StoreFixture;

// Two models share a license, and each has weights of its own.
NewModel Model(const StoreFixture& fixture, const std::string& name, const std::string& what) {
  NewModel model = fixture.New(name, "GGUF weights of " + what + std::string(3000, 'w'));
  model.system = what;
  model.licenses = {"the license"};
  return model;
}

std::string BlobNamed(const std::string& content) { return "sha256-" + api::Sha256Of(content); }

// By name: what a client sees of each model.
using Contents = std::map<std::string, std::string>;

Contents ContentsOf(const ModelStore& store) {
  Contents contents;
  const auto models = store.List();
  EXPECT_TRUE(models);
  for (const SharedModel& model : *models) {
    contents[model->name.Display()] = fmt::format("{} {} {}", model->system, model->licenses.size(),
                                                  api::Sha256Of(ReadFile(model->weights)));
  }
  return contents;
}

struct Change {
  std::string name;
  std::function<bool(const StoreFixture&, ModelStore&)> make;  // true: it says it succeeded
};
void PrintTo(const Change& change, std::ostream* out) { *out << change.name; }

bool Pull(const StoreFixture& fixture, const ModelStore& store) {
  const StoreTransfer transfer(store);
  const std::string weights = "GGUF pulled" + std::string(3000, 'p');
  const std::string config = R"({"model_format":"gguf","model_family":"llama"})";
  for (const std::string& text : {weights, config}) {
    const auto layer =
        Layer{.media_type = "", .blob = BlobNamed(text), .size = static_cast<int64_t>(text.size())};
    if (transfer.HasBlob(layer)) continue;
    auto partial = transfer.OpenPartial(BlobNamed(text));
    if (!partial || !*partial || !(*partial)->Truncate()) return false;
    if (!(*partial)->Append(text) || !(*partial)->Finish(BlobNamed(text))) return false;
  }
  const auto layer = [](std::string_view type, const std::string& text) {
    return nlohmann::json{
        {"mediaType", type}, {"digest", "sha256:" + api::Sha256Of(text)}, {"size", text.size()}};
  };
  const nlohmann::json manifest = {
      {"schemaVersion", 2},
      {"config", layer("application/vnd.docker.container.image.v1+json", config)},
      {"layers", nlohmann::json::array({layer(kModelLayer, weights)})}};
  static_cast<void>(fixture);
  return transfer.RegisterManifest(Named("pulled"), manifest.dump()).has_value();
}

bool Convert(const StoreFixture& fixture, ModelStore& store) {
  const auto staging = store.MakeStaging();
  if (!staging) return false;
  auto file = staging->directory().Create("model.gguf");
  const std::string bytes = "GGUF converted" + std::string(3000, 'c');
  if (!file || ::write(file->get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
    return false;
  BlobUsers::Lease lease(store.users());
  const auto blob = store.Adopt(*staging, "model.gguf", lease);
  if (!blob) return false;
  NewModel model = fixture.New("converted", "");
  model.weights_blob = *blob;
  model.system = "converted";
  return store.Register(model).has_value();
}

bool Upload(const StoreFixture& fixture, ModelStore& store) {
  const std::string bytes = "GGUF uploaded" + std::string(3000, 'u');
  auto upload = store.StartUpload();
  if (!upload || !upload->Append(bytes) || !store.FinishUpload(*upload, BlobNamed(bytes))) return false;
  NewModel model = fixture.New("uploaded", "");
  model.weights_blob = BlobNamed(bytes);
  model.system = "uploaded";
  return store.Register(model).has_value();
}

std::vector<Change> Changes() {
  return {
      {"Register", [](const auto& fixture,
                      auto& store) { return store.Register(Model(fixture, "new", "new")).has_value(); }},
      {"Replace", [](const auto& fixture,
                     auto& store) { return store.Register(Model(fixture, "one", "other")).has_value(); }},
      {"Copy", [](const auto&, auto& store) { return store.Copy(Named("one"), Named("copy")).has_value(); }},
      {"CopyOver",
       [](const auto&, auto& store) { return store.Copy(Named("one"), Named("two")).has_value(); }},
      {"Delete", [](const auto&, auto& store) { return store.Delete(Named("one")).has_value(); }},
      {"Upload", Upload},
      {"Convert", Convert},
      {"Pull", Pull},
  };
}

// A store with the models "one" and "two".
struct Prepared {
  Prepared() : store(fixture.Open()) {
    EXPECT_TRUE(store.Register(Model(fixture, "one", "one")));
    EXPECT_TRUE(store.Register(Model(fixture, "two", "two")));
    before = ContentsOf(store);
  }

  StoreFixture fixture;
  ModelStore store;
  Contents before;
};

void ExpectBeforeOrAfter(const Contents& seen, const Contents& before, const Contents& after,
                         bool must_be_after) {
  EXPECT_TRUE(seen == after || (!must_be_after && seen == before))
      << ::testing::PrintToString(seen) << "\nbefore " << ::testing::PrintToString(before) << "\nafter "
      << ::testing::PrintToString(after);
}

// A broken model is not listed: it must not be there at all.
void ExpectNothingBroken(const ModelStore& store, const Contents& before, const Contents& after) {
  for (const auto* contents : {&before, &after}) {
    for (const auto& [name, content] : *contents) {
      const auto found = store.Find(*api::ParseModelName(name));
      EXPECT_TRUE(found || found.error().code == api::ErrorCode::kNotFound) << found.error().message;
    }
  }
}

class StoreFaults : public ::testing::TestWithParam<Change> {};

TEST_P(StoreFaults, EveryCrashLeavesTheModelsOfBeforeOrAfter) {
  const Change& change = GetParam();
  Prepared prepared;
  RecordedFiles recorded(prepared.fixture.root());
  ASSERT_TRUE(change.make(prepared.fixture, prepared.store));
  recorded.Stop();
  const Contents after = ContentsOf(prepared.store);
  ASSERT_NE(after, prepared.before);
  const auto crashes = recorded.Crashes();
  std::set<RecordedFiles::Tree> seen;
  for (const RecordedFiles::Crash& crash : crashes) {
    if (!seen.insert(crash.tree).second && !crash.after_all) continue;
    SCOPED_TRACE(crash.where);
    const StoreFixture fixture;
    crash.tree.WriteTo(fixture.root());
    ModelStore store = fixture.Open();
    ExpectBeforeOrAfter(ContentsOf(store), prepared.before, after, crash.after_all);
    ExpectNothingBroken(store, prepared.before, after);
    EXPECT_TRUE(store.Register(Model(fixture, "next", "next")));
    if (HasFailure()) return;
  }
  fmt::print("{}: {} calls, {} crash points, {} states\n", change.name, recorded.calls(), crashes.size(),
             seen.size());
}

TEST_P(StoreFaults, EveryFailingCallLeavesTheModelsOfBeforeOrAfter) {
  const Change& change = GetParam();
  int points = 0;
  for (const int error : {EIO, ENOSPC}) {
    Contents after;
    for (int call = 0, last = false; !last; ++call) {
      SCOPED_TRACE(fmt::format("call {}: {}", call, std::strerror(error)));
      Prepared prepared;
      RecordedFiles recorded(prepared.fixture.root());
      RecordedFiles::Fail(call, error);
      const bool made = change.make(prepared.fixture, prepared.store);
      last = call > 0 && RecordedFiles::calls_seen() < call;
      RecordedFiles::Fail(0, 0);
      recorded.Stop();
      const Contents now = ContentsOf(prepared.store);
      if (call == 0) after = now;
      ExpectBeforeOrAfter(now, prepared.before, after, made);
      ExpectNothingBroken(prepared.store, prepared.before, after);
      if (now != after) {
        EXPECT_TRUE(change.make(prepared.fixture, prepared.store));
        EXPECT_EQ(ContentsOf(prepared.store), after);
      }
      if (HasFailure()) return;
      ++points;
    }
  }
  fmt::print("{}: {} failing calls\n", change.name, points);
}

// What the first try has left unsynced is the second one's to sync.
TEST_P(StoreFaults, ARepeatThatSucceededIsOnDisk) {
  const Change& change = GetParam();
  int points = 0;
  std::set<RecordedFiles::Tree> seen;
  Contents after;
  for (int call = 0, last = false; !last; ++call) {
    SCOPED_TRACE(fmt::format("call {} of the first try fails", call));
    Prepared prepared;
    RecordedFiles recorded(prepared.fixture.root());
    RecordedFiles::Fail(call, EIO);
    const bool made = change.make(prepared.fixture, prepared.store);
    last = call > 0 && RecordedFiles::calls_seen() < call;
    RecordedFiles::Fail(0, 0);
    const bool repeated = !made && change.make(prepared.fixture, prepared.store);
    recorded.Stop();
    if (call == 0) after = ContentsOf(prepared.store);
    for (const RecordedFiles::Crash& crash : recorded.Crashes()) {
      if (!crash.after_all || !seen.insert(crash.tree).second) continue;
      SCOPED_TRACE(crash.where);
      const StoreFixture fixture;
      crash.tree.WriteTo(fixture.root());
      const ModelStore store = fixture.Open();
      ExpectBeforeOrAfter(ContentsOf(store), prepared.before, after, made || repeated);
      ExpectNothingBroken(store, prepared.before, after);
      if (HasFailure()) return;
    }
    ++points;
  }
  fmt::print("{}: {} repeats, {} states\n", change.name, points, seen.size());
}

std::string NameOf(const ::testing::TestParamInfo<Change>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Changes, StoreFaults, ::testing::ValuesIn(Changes()), NameOf);

}  // namespace
}  // namespace quire::server
