#include "server/registry/hub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/registry/git_hash.h"

namespace quire::server::registry {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

HubRepository Repository(const std::string& name, const HubSettings& settings = {},
                         const HubRequest& request = {}) {
  return *HubRepository::Of(*api::ParseModelName(name), settings, request);
}

std::vector<std::string> Chosen(const std::vector<std::string>& paths, std::string_view tag) {
  std::vector<HubFile> files;
  for (const std::string& path : paths) files.push_back({.path = path});
  const auto choice = ChooseFiles(files, tag);
  if (!choice) return {choice.error().message};
  std::vector<std::string> chosen;
  for (const HubFile& file : choice->files) chosen.push_back(file.path);
  return chosen;
}

TEST(Hub, ANameIsOfAHubByItsHost) {
  EXPECT_TRUE(IsOfHub(*api::ParseModelName("HF.co/a/b")));
  EXPECT_TRUE(IsOfHub(*api::ParseModelName("huggingface.co/a/b:Q8_0")));
  EXPECT_TRUE(IsOfHub(*api::ParseModelName("modelscope.cn/a/b")));
  EXPECT_FALSE(IsOfHub(*api::ParseModelName("registry.ollama.ai/a/b")));
  EXPECT_FALSE(IsOfHub(*api::ParseModelName("hf.co.example/a/b")));
}

TEST(Hub, AddressesAreEscaped) {
  EXPECT_EQ(Repository("hf.co/a/b").ListUrl(),
            "https://huggingface.co/api/models/a/b/tree/main?recursive=true");
  EXPECT_EQ(Repository("hf.co/a/b", {}, {.endpoint = "https://mirror/"}).FileUrl("Q8/a b#.gguf"),
            "https://mirror/a/b/resolve/main/Q8/a%20b%23.gguf");
  EXPECT_EQ(Repository("modelscope.cn/a/b").FileUrl("x/y&z.gguf"),
            "https://www.modelscope.cn/api/v1/models/a/b/repo?Revision=master&FilePath=x%2Fy%26z.gguf");
}

TEST(Hub, TheDaemonsTokenIsForItsOwnHub) {
  const HubSettings settings{.endpoint = "https://hub", .token = "own"};
  EXPECT_EQ(Repository("hf.co/a/b", settings).token(), "own");
  EXPECT_EQ(Repository("hf.co/a/b", settings, {.endpoint = "https://hub/"}).token(), "own");
  EXPECT_EQ(Repository("hf.co/a/b", settings, {.endpoint = "https://other"}).token(), "");
  EXPECT_EQ(Repository("hf.co/a/b", settings, {.token = "x", .endpoint = "https://other"}).token(), "x");
  EXPECT_EQ(Repository("modelscope.cn/a/b", settings, {.token = "x"}).token(), "");
  const auto name = *api::ParseModelName("hf.co/a/b");
  EXPECT_FALSE(HubRepository::Of(name, settings, {.token = "x\r\nHost: y"}).has_value());
  EXPECT_FALSE(HubRepository::Of(name, settings, {.endpoint = "ftp://x"}).has_value());
}

TEST(Hub, AListHasFilesWithHashes) {
  const std::string sha(64, 'a'), git(40, 'b');
  const auto listed = Repository("hf.co/a/b")
                          .ParseList(
                              R"([{"type":"directory","oid":"1","size":0,"path":"x"},
          {"type":"file","oid":")" +
                              git + R"(","size":3,"path":"config.json"},
          {"type":"file","oid":"2","size":9,"path":"a.gguf","lfs":{"oid":")" +
                              sha + R"(","size":99}},
          {"type":"file","oid":")" +
                              git + R"(","size":3,"path":"x/../../etc"}])");
  ASSERT_TRUE(listed.has_value()) << listed.error().message;
  EXPECT_THAT(*listed, ElementsAre(HubFile{"config.json", 3, "", git}, HubFile{"a.gguf", 99, sha, ""}));
  const auto scope = Repository("modelscope.cn/a/b")
                         .ParseList(
                             R"({"Code":200,"Data":{"Files":[{"Type":"tree","Path":"x"},
          {"Type":"blob","Path":"a.gguf","Size":99,"Sha256":")" +
                             sha + R"("}]}})");
  ASSERT_TRUE(scope.has_value()) << scope.error().message;
  EXPECT_THAT(*scope, ElementsAre(HubFile{"a.gguf", 99, sha, ""}));
}

TEST(Hub, AListThatIsNoneIsRefused) {
  const HubRepository hub = Repository("hf.co/a/b"), scope = Repository("modelscope.cn/a/b");
  for (const char* text : {"", "{}", "[1]", "[{}x", R"([{"type":"file","path":"a","size":1}])",
                           R"([{"type":"file","path":"a","size":"x"}])", R"([{"type":7}])",
                           R"([{"type":"file","path":"a","size":1,"lfs":{"oid":"short"}}])"}) {
    EXPECT_FALSE(hub.ParseList(text).has_value()) << text;
  }
  for (const char* text : {"[]", "{}", R"({"Data":7})", R"({"Data":{"Files":{}}})"})
    EXPECT_FALSE(scope.ParseList(text).has_value()) << text;
}

TEST(Hub, ATagIsAWordOfAFilesName) {
  const std::vector<std::string> paths = {"m-Q4_K_M.gguf", "m-Q8_0.gguf", "m-UD-Q4_K_XL.gguf",
                                          "IQ4/m-IQ4_XS.gguf", "imatrix.gguf"};
  EXPECT_THAT(Chosen(paths, "q8_0"), ElementsAre("m-Q8_0.gguf"));
  EXPECT_THAT(Chosen(paths, "UD-Q4_K_XL"), ElementsAre("m-UD-Q4_K_XL.gguf"));
  EXPECT_THAT(Chosen(paths, "m-IQ4_XS.gguf"), ElementsAre("IQ4/m-IQ4_XS.gguf"));
  EXPECT_THAT(Chosen(paths, "latest"), ElementsAre("m-Q4_K_M.gguf"));
  EXPECT_THAT(Chosen(paths, "Q4_K"), ElementsAre(HasSubstr("IQ4_XS, Q4_K_M, Q4_K_XL, Q8_0")));
  EXPECT_THAT(Chosen({"m.gguf"}, "latest"), ElementsAre("m.gguf"));
  EXPECT_THAT(Chosen({"README.md"}, "latest"), ElementsAre(HasSubstr("no *.gguf or *.safetensors")));
}

TEST(Hub, PartsGoTogetherWithTheirProjector) {
  const std::vector<std::string> paths = {"BF16/m-00002-of-00002.gguf", "BF16/m-00001-of-00002.gguf",
                                          "mmproj-BF16.gguf", "mmproj-F16.gguf", "other/mmproj-F16.gguf"};
  EXPECT_THAT(Chosen(paths, "bf16"),
              ElementsAre("BF16/m-00001-of-00002.gguf", "BF16/m-00002-of-00002.gguf", "mmproj-F16.gguf"));
  EXPECT_THAT(Chosen({"m-Q8_0-00001-of-00002.gguf"}, "Q8_0"),
              ElementsAre("m-Q8_0-00002-of-00002.gguf is missing"));
}

TEST(Hub, SafetensorsComeWithTheirTexts) {
  EXPECT_THAT(Chosen({"config.json", "model.safetensors", "consolidated.safetensors", "tokenizer.model",
                      "x/y.json", "1_Pooling/config.json", "README.md", "pytorch_model.bin"},
                     "latest"),
              ElementsAre("config.json", "model.safetensors", "tokenizer.model", "1_Pooling/config.json"));
}

TEST(Hub, TheNextPageIsInTheLinkHeader) {
  EXPECT_EQ(NextPage(R"(<https://h/x?cursor=a>; rel="next")"), "https://h/x?cursor=a");
  EXPECT_EQ(NextPage(R"(<https://h/1>; rel="prev", <https://h/3>; rel="next")"), "https://h/3");
  for (const char* none : {"", "<", "><", R"(<https://h/1>; rel="prev")"})
    EXPECT_THAT(NextPage(none), IsEmpty());
}

TEST(Hub, GitsHashOfAFile) {
  EXPECT_EQ(GitHashOf(""), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
  EXPECT_EQ(GitHashOf("hello\n"), "ce013625030ba8dba906f756967f9e9ca394464a");
}

}  // namespace
}  // namespace quire::server::registry
