#include "runner/weights/metadata_only.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "runner/weights/quantize_on_load.h"

namespace quire::runner::weights {
namespace {

constexpr const char* kModels[] = {"tests/data/models/lfm2", "tests/data/models/qwen3_5",
                                   "tests/data/gguf/lfm2_k256.Q8_0.gguf"};

void ExpectAlike(const ModelFiles& headers, const ModelFiles& files) {
  ASSERT_EQ(headers.tensors().size(), files.tensors().size());
  for (const Tensor& tensor : files.tensors()) {
    const Tensor* header = headers.Find(tensor.name);
    ASSERT_NE(header, nullptr) << tensor.name;
    EXPECT_EQ(header->type, tensor.type) << tensor.name;
    EXPECT_EQ(header->shape, tensor.shape);
    EXPECT_EQ(header->data.size(), tensor.data.size()) << tensor.name;
  }
}

TEST(MetadataOnly, TellWhatTheFilesTell) {
  for (const char* path : kModels) {
    const auto files = Open(path).value();
    const auto headers = MetadataOnly(files).value();
    EXPECT_TRUE(headers->metadata_only());
    EXPECT_FALSE(files->metadata_only());
    EXPECT_EQ(headers->architecture(), files->architecture());
    EXPECT_EQ(headers->path(), files->path());
    ExpectAlike(*headers, *files);
  }
}

TEST(MetadataOnly, AreQuantizedAsTheFilesAre) {
  for (const char* path : kModels) {
    for (const char* type : {"q8_0", "q4_k"}) {
      const auto quantized = QuantizeOnLoad(Open(path).value(), type, 2).value();
      const auto headers = QuantizeOnLoad(MetadataOnly(Open(path).value()).value(), type, 1).value();
      EXPECT_TRUE(headers->metadata_only());
      ExpectAlike(*headers, *quantized);
    }
  }
}

TEST(MetadataOnly, SmallTensorsHaveTheirData) {
  for (const char* path : kModels) {
    const auto files = Open(path).value();
    for (const auto& headers :
         {MetadataOnly(files).value(), QuantizeOnLoad(MetadataOnly(files).value(), "q8_0", 1).value()}) {
      size_t small = 0;
      for (const Tensor& tensor : headers->tensors()) {
        const Tensor& own = *files->Find(tensor.name);
        EXPECT_TRUE(files->CanRead(own));
        const bool kept = own.data.size() <= kSmallTensorBytes && own.type == tensor.type;
        ASSERT_EQ(headers->CanRead(tensor), kept) << tensor.name;
        if (!kept) continue;
        ++small;
        EXPECT_TRUE(std::ranges::equal(tensor.data, own.data)) << tensor.name;
      }
      EXPECT_GT(small, 0U);
    }
  }
}

TEST(MetadataOnlyDeathTest, NobodyReadsAWeight) {
  const auto headers = MetadataOnly(Open(kModels[0]).value()).value();
  EXPECT_DEATH(
      {
        const volatile std::byte first = headers->tensors().front().data.front();
        (void)first;
      },
      "");
}

}  // namespace
}  // namespace quire::runner::weights
