#include "server/cli/show.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/cli/progress.h"

namespace quire::cli {
namespace {

constexpr const char* kShown = R"({"license":"MIT License\n\nCopyright\nmore\nand more","modelfile":"FROM x",
  "parameters":"temperature                    0.5\nstop                           \"a b\"","template":"{{ .Prompt }}",
  "system":"Be kind.","details":{"family":"lfm2","parameter_size":"5.3M","quantization_level":"F16"},
  "model_info":{"general.architecture":"lfm2","lfm2.context_length":4096,"lfm2.embedding_length":192,"big":[]},
  "tensors":[{"name":"output.weight","type":"F16","shape":[2,3]}],"capabilities":["completion","tools"],
  "requires":"","renderer":""})";

TEST(Show, PrintsSections) {
  EXPECT_EQ(
      *ShowText(kShown, false),
      "  Model\n    architecture        lfm2\n    parameters          5.3M\n    context length      4096\n"
      "    embedding length    192\n    quantization        F16\n\n"
      "  Capabilities\n    completion\n    tools\n\n"
      "  Parameters\n    temperature    0.5\n    stop           \"a b\"\n\n"
      "  System\n    Be kind.\n\n"
      "  License\n    MIT License\n    Copyright\n    ...\n\n");
  EXPECT_THAT(*ShowText(kShown, true), ::testing::HasSubstr("output.weight    F16    [2,3]"));
}

TEST(Show, PrintsTheProjector) {
  EXPECT_EQ(
      *ShowText(R"({"model_info":{"general.architecture":"gemma3"},"projector_info":{)"
                R"("general.architecture":"clip","general.parameter_count":419820000,)"
                R"("clip.vision.projection_dim":2560},"capabilities":["completion","vision"]})",
                false),
      "  Model\n    architecture    gemma3\n\n"
      "  Projector\n    architecture    clip\n    parameters      419820000\n    dimensions      2560\n\n"
      "  Capabilities\n    completion\n    vision\n\n");
}

TEST(Show, PrintsOneMember) {
  EXPECT_EQ(*ShowMember(kShown, "template"), "{{ .Prompt }}\n");
  EXPECT_EQ(*ShowMember(kShown, "system"), "Be kind.\n");
  EXPECT_EQ(*ShowMember(kShown, "absent"), "\n");
  EXPECT_FALSE(ShowMember("[", "template"));
}

TEST(Progress, LinesFitTheTerminal) {
  EXPECT_EQ(ProgressLine("pulling manifest", 0, 0, 80), "pulling manifest");
  EXPECT_EQ(ProgressLine("pulling abc", 500, 1000, 40),
            "pulling abc  50% \u2595\u2588\u2588\u2588\u2588    \u258F 500 B/1.0 KB");
  EXPECT_EQ(ProgressLine("pulling abc", 1000, 1000, 10), "pulling ab");
}

}  // namespace
}  // namespace quire::cli
