#include "server/store/model_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "api/base/sha256.h"
#include "server/store/model_list_cache.h"
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
using ::testing::UnorderedElementsAre;
using testing::WriteFile;

class Store : public ::testing::Test {
 protected:
  std::vector<std::string> ListedNames() const {
    const auto models = fixture_.Open().List();
    EXPECT_TRUE(models) << models.error().message;
    std::vector<std::string> names;
    for (const SharedModel& model : *models) names.push_back(model->name.Display());
    std::ranges::sort(names);
    return names;
  }
  // Why the model named "m" is broken.
  std::string FindViolation() const {
    const auto model = fixture_.Open().Find(Named("m"));
    EXPECT_FALSE(model) << "accepted";
    if (model) return {};
    EXPECT_EQ(model.error().code, api::ErrorCode::kBadModel) << model.error().message;
    EXPECT_THAT(model.error().message, HasSubstr("model \"m:latest\" is corrupt: "));
    return model.error().message;
  }

  StoreFixture fixture_;
};

TEST_F(Store, IsMadeWhenMissing) {
  EXPECT_THAT(*fixture_.Open().List(), IsEmpty());
  for (const char* made : {"", "manifests", "blobs"}) {
    EXPECT_EQ(fs::status(fixture_.root() / made).permissions(), fs::perms::owner_all) << made;
  }
}

TEST_F(Store, SaysWhoMayNotWhatWhere) {
  WriteFile(fixture_.directory() / "file", "");
  const auto store = ModelStore::Open(fixture_.directory() / "file" / "models");
  ASSERT_FALSE(store);
  EXPECT_THAT(store.error().message, HasSubstr((fixture_.directory() / "file").string()));
  EXPECT_THAT(store.error().message, HasSubstr("uid " + std::to_string(::geteuid())));
  EXPECT_THAT(store.error().message, HasSubstr("cannot create this directory"));
}

TEST_F(Store, ReadsWhatOllamaWrote) {
  const json manifest = fixture_.Manifest({
      fixture_.Layer("application/vnd.ollama.image.model", "GGUF weights"),
      fixture_.Layer("application/vnd.ollama.image.template", "{{ .Prompt }}"),
      fixture_.Layer("application/vnd.ollama.image.system", "Be brief."),
      fixture_.Layer("application/vnd.ollama.image.license", "first license"),
      fixture_.Layer("application/vnd.ollama.image.license", "second license"),
      fixture_.Layer("application/vnd.ollama.image.params", R"({"stop":["<|eot_id|>"],"temperature":0.5})"),
      fixture_.Layer("application/vnd.ollama.image.messages", R"([{"role":"user","content":"hi"}])"),
      fixture_.Layer("application/vnd.ollama.image.projector", "not read"),
  });
  WriteFile(fixture_.ManifestPath("llama3.1", "8b"), manifest.dump());

  const auto model = fixture_.Open().Find(Named("llama3.1", "8b"));
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ((*model)->name.Display(), "llama3.1:8b");
  EXPECT_EQ((*model)->digest, api::Sha256Of(manifest.dump()));
  int64_t size = manifest.at("config").at("size").get<int64_t>();
  for (const json& layer : manifest.at("layers")) size += layer.at("size").get<int64_t>();
  EXPECT_EQ((*model)->size, size);
  EXPECT_EQ((*model)->details.family, "llama");
  EXPECT_THAT((*model)->details.families, ElementsAre("llama"));
  EXPECT_EQ((*model)->details.parameter_size, "8.0B");
  EXPECT_EQ((*model)->details.quantization_level, "Q4_0");
  EXPECT_EQ(ReadFile((*model)->weights), "GGUF weights");
  EXPECT_EQ((*model)->go_template, "{{ .Prompt }}");
  EXPECT_EQ((*model)->system, "Be brief.");
  EXPECT_THAT((*model)->licenses, ElementsAre("first license", "second license"));
  EXPECT_EQ((*model)->parameters.temperature, 0.5F);
  EXPECT_THAT(*(*model)->parameters.stop, ElementsAre("<|eot_id|>"));
  EXPECT_EQ((*model)->parameters_json, R"({"stop":["<|eot_id|>"],"temperature":0.5})");
  ASSERT_EQ((*model)->messages.size(), 1U);
  EXPECT_EQ((*model)->messages[0].content, "hi");
}

TEST_F(Store, ReadsOtherHostsAndNamespaces) {
  WriteFile(fixture_.root() / "manifests/hf.co/someone/thing/q8", fixture_.PlainManifest().dump());
  EXPECT_THAT(ListedNames(), ElementsAre("hf.co/someone/thing:q8"));
}

TEST_F(Store, FindsWithoutRegardToCase) {
  fixture_.AddPlain("Llama3", "Latest");
  const auto model = fixture_.Open().Find(Named("lLAMA3"));
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ((*model)->name.Display(), "Llama3:Latest");
  // The exact name comes first when both are there.
  fixture_.AddPlain("llama3");
  EXPECT_EQ((*fixture_.Open().Find(Named("llama3")))->name.Display(), "llama3:latest");
}

TEST_F(Store, SaysWhatIsNotThere) {
  const auto model = fixture_.Open().Find(Named("nobody"));
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, api::ErrorCode::kNotFound);
  EXPECT_EQ(model.error().message, "model 'nobody:latest' not found");
}

TEST_F(Store, ListsNewestFirst) {
  for (const char* name : {"first", "second", "third"}) fixture_.AddPlain(name);
  const auto now = fs::file_time_type::clock::now();
  fs::last_write_time(fixture_.ManifestPath("first"), now - std::chrono::hours(1));
  fs::last_write_time(fixture_.ManifestPath("second"), now);
  fs::last_write_time(fixture_.ManifestPath("third"), now - std::chrono::hours(2));
  const auto models = fixture_.Open().List();
  ASSERT_TRUE(models);
  ASSERT_EQ(models->size(), 3U);
  EXPECT_EQ((*models)[0]->name.model, "second");
  EXPECT_EQ((*models)[1]->name.model, "first");
  EXPECT_EQ((*models)[2]->name.model, "third");
}

TEST_F(Store, BrokenManifestsHideNoOthers) {
  fixture_.AddPlain("good");
  WriteFile(fixture_.ManifestPath("empty"), "");
  WriteFile(fixture_.ManifestPath("nonsense"), "{\"schemaVersion\":2");
  WriteFile(fixture_.ManifestPath("deep"), std::string(500'000, '['));
  WriteFile(fixture_.ManifestPath("huge"), std::string(2'000'000, ' '));
  WriteFile(fixture_.ManifestPath("good", ".hidden"), "");
  WriteFile(fixture_.ManifestPath("good", "bad tag!"), "");
  WriteFile(fixture_.root() / "manifests" / "stray", "");
  fs::create_directories(fixture_.ManifestPath("directory"));
  json no_weights = fixture_.Manifest(json::array());
  WriteFile(fixture_.ManifestPath("weightless"), no_weights.dump());
  EXPECT_THAT(ListedNames(), ElementsAre("good:latest"));
}

TEST_F(Store, NamesWhatIsBroken) {
  const json manifest = fixture_.PlainManifest("other weights");
  const auto with = [&](const std::string& pointer, const json& value) {
    json changed = manifest;
    changed[json::json_pointer(pointer)] = value;
    WriteFile(fixture_.ManifestPath("m"), changed.dump());
    return FindViolation();
  };
  const std::string absent = "sha256:" + std::string(64, '0');
  EXPECT_THAT(with("/layers/0/digest", absent), HasSubstr("No such file"));
  EXPECT_THAT(with("/config/digest", absent), HasSubstr("No such file"));
  EXPECT_THAT(with("/layers/0/digest", "sha256:../../../../../etc/passwd"), HasSubstr("SHA-256"));
  EXPECT_THAT(with("/layers/0/size", 14), HasSubstr("13 bytes, but the manifest states 14"));
  EXPECT_THAT(with("/layers/0/mediaType", "application/vnd.ollama.image.template"), HasSubstr("no weights"));
  EXPECT_THAT(with("/layers/1", fixture_.Layer("application/vnd.ollama.image.params", "{\"stop\":7}")),
              HasSubstr("stop"));
  EXPECT_THAT(with("/layers/1", fixture_.Layer("application/vnd.ollama.image.messages", "{}")),
              HasSubstr("not a JSON array"));
}

// They are no broken models: their names are listed, and say why they cannot be used.
TEST_F(Store, AdaptersAndModelsThatRunElsewhereAreListed) {
  json adapter = fixture_.PlainManifest();
  adapter["layers"].push_back(fixture_.Layer("application/vnd.ollama.image.adapter", "a"));
  WriteFile(fixture_.ManifestPath("lora"), adapter.dump());
  json cloud = fixture_.Manifest(json::array());
  cloud["config"] =
      fixture_.Layer("application/vnd.docker.container.image.v1+json",
                     R"({"model_format":"","remote_host":"https://ollama.com:443","remote_model":"big"})");
  WriteFile(fixture_.ManifestPath("big", "cloud"), cloud.dump());
  fixture_.AddPlain("good");
  EXPECT_THAT(ListedNames(), UnorderedElementsAre("good:latest", "lora:latest", "big:cloud"));
  const ModelStore store = fixture_.Open();
  EXPECT_EQ((*store.Find(Named("good")))->refusal, "");
  EXPECT_THAT((*store.Find(Named("lora")))->refusal, HasSubstr("\"lora:latest\" has an adapter"));
  const auto big = store.Find(Named("big", "cloud"));
  ASSERT_TRUE(big) << big.error().message;
  EXPECT_THAT((*big)->refusal, HasSubstr("\"big:cloud\" runs on https://ollama.com:443"));
  EXPECT_TRUE((*big)->weights.empty());
}

TEST_F(Store, LeavesItsRootForNoBlobAndNoManifest) {
  const json manifest = fixture_.PlainManifest("inside");
  WriteFile(fixture_.ManifestPath("m"), manifest.dump());
  WriteFile(fixture_.directory() / "outside" / "latest", manifest.dump());
  EXPECT_TRUE(fixture_.Open().Find(Named("m")));

  WriteFile(fixture_.directory() / "secret", "inside");
  fs::remove(fixture_.Blob("inside"));
  fs::create_symlink(fixture_.directory() / "secret", fixture_.Blob("inside"));
  EXPECT_THAT(FindViolation(), HasSubstr("symbolic link"));

  fs::create_symlink(fixture_.directory() / "outside", fixture_.ManifestPath("linked").parent_path());
  EXPECT_EQ(fixture_.Open().Find(Named("linked")).error().code, api::ErrorCode::kNotFound);
  WriteFile(fixture_.ManifestPath("file-link", "other"), "");
  fs::create_symlink(fixture_.directory() / "outside" / "latest", fixture_.ManifestPath("file-link"));
  EXPECT_FALSE(fixture_.Open().Find(Named("file-link")));
}

TEST_F(Store, TakesNoNameThatIsAPath) {
  ModelStore store = fixture_.Open();
  fixture_.AddPlain("m");
  for (const std::string& bad :
       {std::string(".."), std::string("."), std::string("a/b"), std::string("../library/m"), std::string(),
        std::string("m\0x", 3), std::string("%2e%2e"), std::string("a:b")}) {
    for (auto part :
         {&api::ModelName::host, &api::ModelName::name_space, &api::ModelName::model, &api::ModelName::tag}) {
      if (part == &api::ModelName::host && bad == "a:b") continue;  // a host may have a port
      NewModel model = fixture_.New("m");
      model.name.*part = bad;
      EXPECT_EQ(store.Find(model.name).error().code, api::ErrorCode::kInvalidArgument) << bad;
      EXPECT_EQ(store.Register(model).error().code, api::ErrorCode::kInvalidArgument) << bad;
    }
  }
}

TEST_F(Store, RegistersAsOllamaWould) {
  ModelStore store = fixture_.Open();
  NewModel model = fixture_.New("quire-demo");
  model.parameters_json = R"({"temperature":0.3})";
  model.licenses = {"Apache-2.0"};
  model.system = "You are small.";
  const auto registered = store.Register(model);
  ASSERT_TRUE(registered) << registered.error().message;
  EXPECT_EQ(ReadFile((*registered)->weights), "GGUF new weights");
  EXPECT_EQ((*registered)->parameters.temperature, 0.3F);
  EXPECT_EQ((*registered)->system, "You are small.");
  EXPECT_THAT((*registered)->licenses, ElementsAre("Apache-2.0"));
  EXPECT_EQ((*registered)->go_template, "");
  EXPECT_EQ((*registered)->details.quantization_level, "F16");

  const json manifest = json::parse(ReadFile(fixture_.ManifestPath("quire-demo")));
  EXPECT_EQ(manifest.at("schemaVersion"), 2);
  EXPECT_EQ(manifest.at("mediaType"), "application/vnd.docker.distribution.manifest.v2+json");
  EXPECT_EQ(manifest.at("config").at("mediaType"), "application/vnd.docker.container.image.v1+json");
  EXPECT_EQ(manifest.at("layers")[0].at("mediaType"), "application/vnd.ollama.image.model");
  EXPECT_EQ(manifest.at("layers")[0].at("digest"), "sha256:" + api::Sha256Of("GGUF new weights"));
  const std::string config_hex = manifest.at("config").at("digest").get<std::string>().substr(7);
  const json config = json::parse(ReadFile(fixture_.root() / "blobs" / ("sha256-" + config_hex)));
  EXPECT_EQ(config.at("model_family"), "lfm2");
  EXPECT_EQ(config.at("model_type"), "5.3M");
  EXPECT_EQ(config.at("file_type"), "F16");
  EXPECT_EQ(config.at("rootfs").at("diff_ids").size(), 4U);
}

TEST_F(Store, RegisteringTwiceChangesNothing) {
  ModelStore store = fixture_.Open();
  const auto first = store.Register(fixture_.New("a"));
  ASSERT_TRUE(first);
  fs::last_write_time(fixture_.ManifestPath("a"), fs::file_time_type::clock::now() - std::chrono::hours(5));
  const auto stored = store.Find(Named("a"));
  const auto again = store.Register(fixture_.New("a"));
  ASSERT_TRUE(stored && again);
  EXPECT_EQ((*again)->digest, (*first)->digest);
  EXPECT_EQ((*again)->modified_at, (*stored)->modified_at);
  EXPECT_THAT(ListedNames(), ElementsAre("a:latest"));
}

TEST_F(Store, ModelsShareBlobs) {
  ModelStore store = fixture_.Open();
  const auto a = store.Register(fixture_.New("a"));
  const auto b = store.Register(fixture_.New("b"));
  ASSERT_TRUE(a && b);
  EXPECT_EQ((*a)->weights, (*b)->weights);
  EXPECT_EQ(std::distance(fs::directory_iterator(fixture_.root() / "blobs"), fs::directory_iterator()), 2);
}

TEST_F(Store, KeepsWhatItReadUntilItChanges) {
  fixture_.AddPlain("m");
  const fs::path manifest = fixture_.ManifestPath("m");
  const ModelStore store = fixture_.Open();
  // A value that was just written may be written again without effect.
  testing::Age(manifest);
  const auto first = store.Find(Named("m"));
  ASSERT_TRUE(first) << first.error().message;
  WriteFile(manifest, fixture_.PlainManifest("GGUF Weights").dump());  // of the same size
  testing::Age(manifest);
  const auto second = store.Find(Named("m"));
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_NE((*second)->digest, (*first)->digest);
  EXPECT_EQ((*store.Find(Named("M")))->name.Display(), "m:latest");
  for (const auto& blob : fs::directory_iterator(fixture_.root() / "blobs")) {
    if (blob.path() != (*second)->weights) fs::remove(blob.path());
  }
  EXPECT_EQ((*store.Find(Named("m")))->digest, (*second)->digest);  // without the config
  fs::remove((*second)->weights);
  EXPECT_EQ(store.Find(Named("m")).error().code, api::ErrorCode::kBadModel);
  fs::remove(manifest);
  EXPECT_EQ(store.Find(Named("m")).error().code, api::ErrorCode::kNotFound);
}

// Rename and restored times hide a change from the time of modification.
TEST_F(Store, AnOldTimeOfModificationAloneDoesNotMakeAFileSettled) {
  WriteFile(fixture_.directory() / "file", "text");
  const FileStamp written(fixture_.directory() / "file");
  EXPECT_FALSE(written.settled());
  testing::Age(fixture_.directory() / "file");
  EXPECT_TRUE(FileStamp(fixture_.directory() / "file").settled());
  bool fresh = false;  // a stamp in the clock's tick of the change
  for (int tried = 0; tried < 1000 && !fresh; ++tried) {
    fs::last_write_time(fixture_.directory() / "file",
                        fs::file_time_type::clock::now() - std::chrono::hours(1));
    fresh = !FileStamp(fixture_.directory() / "file").settled();
  }
  EXPECT_TRUE(fresh);
}

TEST_F(Store, RegisteringReplacesAndKeepsTheStoredCase) {
  ModelStore store = fixture_.Open();
  fixture_.AddPlain("Mixed");
  const auto model = store.Register(fixture_.New("mixed"));
  ASSERT_TRUE(model);
  EXPECT_EQ((*model)->name.Display(), "Mixed:latest");
  EXPECT_EQ((*model)->details.family, "lfm2");
  EXPECT_THAT(ListedNames(), ElementsAre("Mixed:latest"));
}

TEST_F(Store, RepairsATruncatedBlob) {
  ModelStore store = fixture_.Open();
  ASSERT_TRUE(store.Register(fixture_.New("a")));
  fs::resize_file(fixture_.Blob("GGUF new weights"), 3);
  EXPECT_FALSE(store.Find(Named("a")));
  EXPECT_TRUE(store.Register(fixture_.New("a")));
  EXPECT_EQ(ReadFile(fixture_.Blob("GGUF new weights")), "GGUF new weights");
}

TEST_F(Store, RefusesToRegisterWhatIsBad) {
  ModelStore store = fixture_.Open();
  NewModel absent = fixture_.New("a", "");
  EXPECT_EQ(store.Register(absent).error().code, api::ErrorCode::kNotFound);
  NewModel parameters = fixture_.New("a");
  parameters.parameters_json = R"({"stop":7})";
  const auto refused = store.Register(parameters);
  EXPECT_EQ(refused.error().code, api::ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused.error().field, "parameters");
  EXPECT_THAT(ListedNames(), IsEmpty());
}

TEST_F(Store, SeveralThreadsRegisterAndList) {
  ModelStore store = fixture_.Open();
  constexpr int kWriters = 4;
  constexpr int kModelsEach = 8;
  const NewModel base = fixture_.New("m");
  std::atomic<int> writing = kWriters;
  std::vector<std::thread> threads;
  for (int writer = 0; writer < kWriters; ++writer) {
    threads.emplace_back([&, writer] {
      for (int i = 0; i < kModelsEach; ++i) {
        NewModel model = base;
        model.name.tag = std::to_string(writer) + "-" + std::to_string(i);
        model.system = model.name.tag;
        EXPECT_TRUE(store.Register(model));
      }
      --writing;
    });
  }
  for (int reader = 0; reader < 2; ++reader) {
    threads.emplace_back([&] {
      while (writing > 0) {
        const auto models = store.List();
        ASSERT_TRUE(models);
        for (const SharedModel& model : *models) EXPECT_EQ(model->system, model->name.tag);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store.List()->size(), static_cast<size_t>(kWriters * kModelsEach));
}

// 480 requests of a model with a license of 4 MB took 856 MB, when each had a model of its own.
TEST_F(Store, AllWhoFindAModelHaveTheSame) {
  ModelStore store = fixture_.Open();
  fixture_.AddPlain("a");
  const auto first = store.Find(Named("a"));  // just written: it is read each time
  ASSERT_TRUE(first);
  EXPECT_FALSE(store.FindCached(Named("a")));
  EXPECT_EQ(*store.Find(Named("a")), *first);
  testing::Age(fixture_.ManifestPath("a"));
  const auto aged = store.Find(Named("a"));
  ASSERT_TRUE(aged);
  EXPECT_NE(*aged, *first) << "it says when it was modified";
  EXPECT_EQ(store.FindCached(Named("a")), *aged);
  WriteFile(fixture_.ManifestPath("a"), fixture_.PlainManifest("other weights").dump());
  EXPECT_NE((*store.Find(Named("a")))->digest, (*aged)->digest);
}

TEST_F(Store, AKnownModelIsFoundWithoutReadingUntilItsFilesChange) {
  ModelStore store = fixture_.Open();
  for (const char* model : {"a", "b"}) {
    fixture_.AddPlain(model);
    testing::Age(fixture_.ManifestPath(model));
  }
  EXPECT_FALSE(store.FindCached(Named("a")));
  EXPECT_EQ(store.List()->size(), 2u);
  for (const char* model : {"a", "b"}) {  // a list makes all of them known
    const auto cached = store.FindCached(Named(model));
    ASSERT_TRUE(cached);
    EXPECT_EQ(cached->digest, (*store.Find(Named(model)))->digest);
  }
  // Another process writes the manifest in its place, or takes it away.
  WriteFile(fixture_.ManifestPath("a"), fixture_.PlainManifest("other weights").dump());
  EXPECT_FALSE(store.FindCached(Named("a")));
  EXPECT_EQ(ReadFile((*store.Find(Named("a")))->weights), "other weights");
  fs::remove(fixture_.ManifestPath("b"));
  EXPECT_FALSE(store.FindCached(Named("b")));
  EXPECT_EQ(store.List()->size(), 1u);
}

}  // namespace
}  // namespace quire::server
