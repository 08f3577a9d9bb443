// The files of a model that a runner gets, and that no other process has them open.
#include "scheduler/model_descriptors.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "scheduler/testing/dispatcher_fixture.h"

namespace quire::scheduler {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

std::vector<std::string> OpenFilesOf(const std::string& pid, const fs::path& below) {
  std::vector<std::string> held;
  for (const auto& entry : fs::directory_iterator("/proc/" + pid + "/fd")) {
    std::error_code gone;
    const std::string target = fs::read_symlink(entry.path(), gone);
    if (target.starts_with(below.string())) held.push_back(fs::path(target).filename());
  }
  return held;
}

class ModelDescriptors : public DispatcherFixture {
 protected:
  fs::path Write(const std::string& name, const std::string& text = "") const {
    const fs::path path = directory() / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return path;
  }
  static std::vector<std::string> NamesOf(const fs::path& model) {
    const auto files = OpenModelFiles(model);
    EXPECT_TRUE(files) << files.error().message;
    std::vector<std::string> names;
    for (const OpenFile& file : *files) names.push_back(file.name);
    return names;
  }
  static api::Error RefusalToOpen(const fs::path& model) {
    const auto files = OpenModelFiles(model);
    return files ? api::Error{.message = "opened"} : files.error();
  }
  std::string TextOf(const fs::path& model) {
    const auto inspected = loop().Run(dispatcher().Inspect({.path = model}));
    return inspected ? inspected->chat_template : inspected.error().message;
  }
};

TEST_F(ModelDescriptors, AChangedFileHasAnotherVersion) {
  const fs::path path = Write("one.gguf", "a");
  const auto version = [&] { return OpenModelFiles(path).value().front().version; };
  const std::string before = version();
  EXPECT_EQ(version(), before);
  Write("one.gguf", "ab");
  EXPECT_NE(version(), before);
}

TEST_F(ModelDescriptors, AFileComesWithItsOtherSplits) {
  EXPECT_THAT(NamesOf(Write("one.gguf")), ElementsAre(""));
  EXPECT_THAT(NamesOf(Write("of-00003.gguf")), ElementsAre(""));
  const fs::path first = Write("m-00001-of-00003.gguf");
  EXPECT_THAT(NamesOf(first), ElementsAre("")) << "the runner says what is missing";
  const fs::path last = Write("m-00003-of-00003.gguf");
  Write("other-00002-of-00003.gguf");
  EXPECT_THAT(NamesOf(first), ElementsAre(""));
  Write("m-00002-of-00003.gguf");
  EXPECT_THAT(NamesOf(first), ElementsAre("", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"));
  EXPECT_THAT(NamesOf(last), ElementsAre("")) << "only the first opens them";
  EXPECT_THAT(NamesOf(Write("m-00001-of-0000x.gguf")), ElementsAre(""));
}

TEST_F(ModelDescriptors, ADirectoryComesWithWhatARunnerReads) {
  const fs::path weights = Write("elsewhere/blob");
  for (const char* name : {"config.json", "tokenizer.json", "tekken.json", "vocab.json", "merges.txt",
                           "added_tokens.json", "1_Pooling/config.json", "README.md", "m.bin",
                           "model-00001-of-00002.safetensors", "sub/model.safetensors"}) {
    Write(std::string("m/") + name);
  }
  fs::create_symlink(weights, directory() / "m/model-00002-of-00002.safetensors");
  fs::create_symlink("nowhere", directory() / "m/dangling.safetensors");
  EXPECT_THAT(NamesOf(directory() / "m"),
              UnorderedElementsAre("config.json", "tokenizer.json", "tekken.json", "vocab.json", "merges.txt",
                                   "added_tokens.json", "1_Pooling/config.json",
                                   "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"));
  EXPECT_THAT(NamesOf(directory() / "elsewhere"), IsEmpty()) << "the runner says what is missing";
}

TEST_F(ModelDescriptors, WhatCannotBeOpenedIsNamed) {
  const api::Error absent = RefusalToOpen(directory() / "nowhere.gguf");
  EXPECT_EQ(absent.code, api::ErrorCode::kNotFound);
  EXPECT_EQ(absent.message, (directory() / "nowhere.gguf").string() + ": No such file or directory");
  const api::Error device = RefusalToOpen("/dev/zero");
  EXPECT_EQ(device.code, api::ErrorCode::kBadModel);
  EXPECT_EQ(device.message, "/dev/zero: not a regular file");
  Write("m/config.json");
  ASSERT_EQ(::mkfifo((directory() / "m/model.safetensors").c_str(), 0600), 0);
  EXPECT_THAT(RefusalToOpen(directory() / "m").message, EndsWith("m/model.safetensors: not a regular file"));
  if (::geteuid() == 0) return;  // who may read everything
  const fs::path closed = Write("closed.gguf");
  fs::permissions(closed, fs::perms::none);
  EXPECT_EQ(RefusalToOpen(closed).code, api::ErrorCode::kBadModel);
  EXPECT_THAT(RefusalToOpen(closed).message, EndsWith("closed.gguf: Permission denied"));
}

TEST_F(ModelDescriptors, SaysWhenTooManyAreOpen) {
  for (int i = 0; i < 200; ++i) Write("m/" + std::to_string(i) + ".safetensors");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 100;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const api::Error refused = RefusalToOpen(directory() / "m");
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(refused.code, api::ErrorCode::kUnavailable);
  EXPECT_THAT(refused.message, HasSubstr("Too many open files"));
  EXPECT_THAT(OpenFilesOf("self", directory()), IsEmpty());
  EXPECT_EQ(NamesOf(directory() / "m").size(), 200U);
}

TEST_F(ModelDescriptors, ARunnerReadsThemByName) {
  Write("m/config.json", "{}");
  Write("m/model.safetensors", "weights");
  EXPECT_EQ(TextOf(directory() / "m"), "config.json={};model.safetensors=weights;");
  Write("n-00001-of-00002.gguf", "one");
  Write("n-00002-of-00002.gguf", "two");
  EXPECT_EQ(TextOf(directory() / "n-00001-of-00002.gguf"), "=one;n-00002-of-00002.gguf=two;");
}

// The model's directory is no more by the time it is read.
TEST_F(ModelDescriptors, ARunnerNeedsNoWayToThem) {
  MakeGate();
  Write("late-inspect/config.json", "{}");
  Write("late-inspect/model.safetensors", "weights");
  const auto inspecting = loop().Spawn(dispatcher().Inspect({.path = directory() / "late-inspect"}));
  loop().RunUntil([] { return HasChildren(); });
  fs::remove_all(directory() / "late-inspect");
  OpenGate();
  const auto inspected = loop().Wait(inspecting);
  ASSERT_TRUE(inspected) << inspected.error().message;
  EXPECT_EQ(inspected->chat_template, "config.json={};model.safetensors=weights;");
}

TEST_F(ModelDescriptors, ARunnerHasThoseOfItsOwnModelsOnly) {
  ModelSpec both = Spec("b.gguf");
  both.draft_path = Model("draft.gguf");
  ASSERT_TRUE(loop().Run(dispatcher().Load(Spec("a.gguf"), {})));
  ASSERT_TRUE(loop().Run(dispatcher().Load(both, {})));
  for (const LoadedModel& model : dispatcher().Loaded()) {
    const auto held = OpenFilesOf(std::to_string(model.runner_pid), directory());
    if (model.spec.key == "a.gguf") {
      EXPECT_THAT(held, UnorderedElementsAre("a.gguf"));
    } else {
      EXPECT_THAT(held, UnorderedElementsAre("b.gguf", "draft.gguf"));
    }
  }
}

TEST_F(ModelDescriptors, NoneIsLeftHere) {
  const auto count = [] {
    return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
  };
  const auto try_all = [this](int round) {
    EXPECT_TRUE(loop().Run(dispatcher().Load(Spec("good.gguf"), KeepAlive::zero())));
    EXPECT_FALSE(loop().Run(dispatcher().Load(Spec("fail-load"), {})));
    EXPECT_FALSE(loop().Run(dispatcher().Load(Spec("exit-load", "exit " + std::to_string(round)), {})));
    ModelSpec lacks = Spec("lacks");
    lacks.draft_path = directory() / "nowhere";  // found out when the model is open
    EXPECT_FALSE(loop().Run(dispatcher().Load(lacks, {})));
    EXPECT_TRUE(loop().Run(dispatcher().Inspect({.path = Model("ok")})));
    EXPECT_FALSE(loop().Run(dispatcher().Inspect({.path = directory() / "nowhere"})));
    loop().RunUntil([this] { return !HasChildren() && dispatcher().Loaded().empty(); });
    // The program cannot be started: the files are open by then.
    Dispatcher broken(loop().executor(), "/nonexistent/runner", limits());
    EXPECT_FALSE(loop().Run(broken.Load(Spec("good.gguf"), {})));
    loop().Run(broken.Drain(std::chrono::steady_clock::now()));
  };
  try_all(0);
  const auto before = count();
  for (int round = 1; round <= 10; ++round) try_all(round);
  EXPECT_EQ(count(), before);
  EXPECT_THAT(OpenFilesOf("self", directory()), IsEmpty());
}

}  // namespace
}  // namespace quire::scheduler
