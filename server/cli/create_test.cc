#include "server/cli/create.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace quire::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class PlanTest : public ::testing::Test {
 protected:
  PlanTest() {
    std::string name = (fs::temp_directory_path() / "quire-plan-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~PlanTest() override { fs::remove_all(folder_); }

  void Touch(const fs::path& file) {
    fs::create_directories((folder_ / file).parent_path());
    std::ofstream(folder_ / file) << "x";
  }
  api::Result<CreatePlan> Plan(const std::string& text) {
    return PlanCreate(text, folder_, folder_ / "home");
  }
  static std::vector<std::string> Names(const std::vector<LocalFile>& files) {
    std::vector<std::string> names;
    for (const LocalFile& file : files) names.push_back(file.name);
    return names;
  }
  fs::path folder_;
};

TEST_F(PlanTest, TakesEveryInstruction) {
  const auto plan = Plan(
      "FROM quire-demo\nSYSTEM Be.\nTEMPLATE {{ .Prompt }}\nPARAMETER temperature 0.5\nPARAMETER stop 1\n"
      "PARAMETER stop two\nPARAMETER num_ctx 8\nMESSAGE user hi\nMESSAGE assistant ho\nLICENSE L1\nLICENSE "
      "L2\n"
      "REQUIRES 0.14.0\n");
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(json::parse(plan->body_json), json::parse(R"({"from":"quire-demo","system":"Be.",
    "template":"{{ .Prompt }}","parameters":{"temperature":0.5,"stop":["1","two"],"num_ctx":8},
    "messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"ho"}],"license":["L1","L2"],
    "requires":"0.14.0"})"));
  EXPECT_TRUE(plan->files.empty());
}

TEST_F(PlanTest, FindsFilesAndFolders) {
  Touch("a.gguf");
  Touch("home/b.gguf");
  Touch("hf/model.safetensors");
  Touch("hf/config.json");
  Touch("hf/tokenizer.json");
  Touch("hf/readme.md");
  EXPECT_THAT(Names(Plan("FROM ./a.gguf")->files), ElementsAre("a.gguf"));
  EXPECT_THAT(Names(Plan("FROM a.gguf")->files), ElementsAre("a.gguf"));
  EXPECT_THAT(Names(Plan("FROM ~/b.gguf")->files), ElementsAre("b.gguf"));
  EXPECT_THAT(Names(Plan("FROM hf")->files),
              ElementsAre("config.json", "model.safetensors", "tokenizer.json"));
  const auto plan = Plan("FROM demo\nADAPTER a.gguf\nDRAFT ./a.gguf\nPREFIX a.gguf");
  EXPECT_THAT(Names(plan->adapters), ElementsAre("a.gguf"));
  EXPECT_THAT(Names(plan->drafts), ElementsAre("a.gguf"));
  EXPECT_THAT(plan->warnings, ElementsAre(HasSubstr("(line 4): PREFIX is not read any more")));
}

TEST_F(PlanTest, AFolderOfTensorsNeedsAVocabulary) {
  Touch("m/model.safetensors");
  Touch("m/config.json");
  EXPECT_THAT(Plan("FROM ./m").error().message, HasSubstr("no tokenizer.json"));
  Touch("m/tekken.json");  // an invalid vocabulary is refused before anything is copied
  EXPECT_THAT(Plan("FROM ./m").error().message, HasSubstr("no tokenizer.json"));
  std::ofstream(folder_ / "m/tekken.json")
      << R"({"config":{"pattern":"."},"vocab":[{"token_bytes":"YQ=="}]})";
  EXPECT_THAT(Names(Plan("FROM ./m")->files), ElementsAre("config.json", "model.safetensors", "tekken.json"));
  fs::remove(folder_ / "m/tekken.json");
  Touch("m/vocab.json");
  Touch("m/merges.txt");
  EXPECT_THAT(Names(Plan("FROM ./m")->files),
              ElementsAre("config.json", "merges.txt", "model.safetensors", "vocab.json"));
}

TEST_F(PlanTest, SaysWhichLineNamesNothing) {
  fs::create_directories(folder_ / "empty");
  EXPECT_EQ(Plan("\nFROM ./no.gguf").error().message, "(line 2): ./no.gguf: no such file or directory");
  EXPECT_EQ(Plan("FROM x\nADAPTER no").error().message, "(line 2): no: no such file or directory");
  EXPECT_THAT(Plan("FROM ./empty").error().message, HasSubstr("no *.gguf"));
  EXPECT_TRUE(Plan("FROM empty")->files.empty()) << "a folder may have the name of a model";
  EXPECT_EQ(Plan("SYSTEM x").error().message, "no FROM line");
}

}  // namespace
}  // namespace quire::cli
