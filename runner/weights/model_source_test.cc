#include "runner/weights/model_source.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "runner/weights/model_files.h"
#include "runner/weights/testing/hostile_files.h"

namespace quire::runner::weights {
namespace {

namespace fs = std::filesystem;
using ::testing::EndsWith;
using testing::TemporaryDirectory;

bool IsOpen(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

int OpenForReading(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  EXPECT_GE(fd, 0) << path;
  return fd;
}

// A model, of which nothing can be opened by a path any more once this is made.
class Handover {
 public:
  Handover(const fs::path& from, const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      const fs::path copy = directory_.path() / name;
      fs::copy_file(name.empty() ? from : from / name, name.empty() ? directory_.path() / "m.gguf" : copy);
      descriptors_.push_back({name, OpenForReading(name.empty() ? directory_.path() / "m.gguf" : copy)});
    }
    for (const auto& entry : fs::directory_iterator(directory_.path())) fs::remove_all(entry.path());
  }
  ModelSource Source() const { return {"/its/path", descriptors_}; }
  const std::vector<ModelSource::Descriptor>& descriptors() const { return descriptors_; }

 private:
  const TemporaryDirectory directory_;
  std::vector<ModelSource::Descriptor> descriptors_;
};

TEST(ModelSource, OpensAnInheritedDirectoryAndLetsGoOfIt) {
  const Handover given("tests/data/models/lfm2", {"config.json", "generation_config.json", "tokenizer.json",
                                                  "tokenizer_config.json", "model.safetensors"});
  const auto files = Open(given.Source());
  ASSERT_TRUE(files) << files.error().message;
  for (const auto& [name, fd] : given.descriptors()) EXPECT_FALSE(IsOpen(fd)) << name;
  const auto on_disk = Open("tests/data/models/lfm2").value();
  EXPECT_EQ((*files)->path(), "/its/path");
  EXPECT_EQ((*files)->format(), Format::kHuggingFace);
  EXPECT_EQ((*files)->tensors().size(), on_disk->tensors().size());
  EXPECT_EQ((*files)->tokenizer_json(), on_disk->tokenizer_json());
  EXPECT_TRUE(std::ranges::equal((*files)->tensors()[0].data, on_disk->tensors()[0].data));
}

TEST(ModelSource, OpensAnInheritedFile) {
  const Handover given("tests/data/gguf/lfm2.f16.gguf", {""});
  const auto files = Open(given.Source());
  ASSERT_TRUE(files) << files.error().message;
  EXPECT_FALSE(IsOpen(given.descriptors()[0].fd));
  EXPECT_EQ((*files)->path(), "/its/path");
  EXPECT_EQ((*files)->architecture(), "lfm2");
}

TEST(ModelSource, WhatWasNotInheritedIsNotThere) {
  const Handover given("tests/data/models/lfm2", {"config.json"});
  const auto files = Open(given.Source());
  ASSERT_FALSE(files);
  EXPECT_EQ(files.error().code, api::ErrorCode::kBadModel);
  EXPECT_EQ(files.error().message, "/its/path: neither model.safetensors nor model.safetensors.index.json");
  EXPECT_FALSE(IsOpen(given.descriptors()[0].fd));
  EXPECT_EQ(Open(ModelSource("tests/data/models/lfm2", {})).error().message,
            "tests/data/models/lfm2/config.json: no such file")
      << "the path is for messages only";
  const Handover none("tests/data/models/lfm2", {"config.json"});
  const ModelSource source = none.Source();
  EXPECT_TRUE(source.Open("config.json"));
  EXPECT_TRUE(source.Open("config.json")) << "as often as it takes";
  EXPECT_EQ(source.Open("generation_config.json").error().code, api::ErrorCode::kNotFound);
  EXPECT_THAT(source.Open("config.json", 1).error().message, EndsWith("more than the 1 allowed"));
}

TEST(ModelSource, ADescriptorOfNoFileIsRefused) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  EXPECT_EQ(Open(ModelSource("/m.gguf", {{"", ends[0]}})).error().message, "/m.gguf: not a regular file");
  EXPECT_FALSE(IsOpen(ends[0]));
  const auto closed = Open(ModelSource("/m.gguf", {{"", ends[0]}}));
  EXPECT_EQ(closed.error().code, api::ErrorCode::kBadModel);
  EXPECT_EQ(closed.error().message, "/m.gguf: Bad file descriptor");
  ::close(ends[1]);
}

TEST(ModelSource, NamesFilesByTheirPlace) {
  EXPECT_EQ(ModelSource("a/m.gguf").PathOf(""), "a/m.gguf");
  EXPECT_EQ(ModelSource("a/m.gguf").PathOf("n.gguf"), "a/n.gguf");
  EXPECT_EQ(ModelSource("m.gguf").PathOf("n.gguf"), "n.gguf");
  EXPECT_EQ(ModelSource("tests/data/models/lfm2").PathOf("config.json"),
            "tests/data/models/lfm2/config.json");
  EXPECT_EQ(ModelSource("/gone", {}).PathOf("config.json"), "/gone/config.json");
  EXPECT_TRUE(ModelSource().empty());
}

}  // namespace
}  // namespace quire::runner::weights
