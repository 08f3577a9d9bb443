// Directories made by hand: what may be there, what must be there, and what hostile files do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "runner/weights/json_text.h"
#include "runner/weights/model_formats.h"
#include "runner/weights/testing/hostile_files.h"

namespace quire::runner::weights {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Safetensors;
using testing::TemporaryDirectory;
namespace fs = std::filesystem;

std::string OneTensor(const std::string& name) {
  return Safetensors("{\"" + name + R"(":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8).bytes();
}

class HuggingFace : public ::testing::Test {
 protected:
  HuggingFace() {
    directory_.Write("config.json", R"({"model_type":"tiny"})");
    directory_.Write("model.safetensors", OneTensor("t"));
  }

  std::shared_ptr<const ModelFiles> Opened() {
    auto files = OpenHuggingFace(directory_.path());
    EXPECT_TRUE(files) << files.error().message;
    return files ? *files : nullptr;
  }
  std::string Refusal() {
    const auto files = OpenHuggingFace(directory_.path());
    EXPECT_FALSE(files) << "accepted";
    if (files) return {};
    EXPECT_EQ(files.error().code, api::ErrorCode::kBadModel) << files.error().message;
    return files.error().message;
  }

  TemporaryDirectory directory_;
};

TEST_F(HuggingFace, TakesATokenizerModelWhereThereIsNoTokenizerJson) {
  EXPECT_TRUE(Opened()->tokenizer_model().empty());
  directory_.Write("tokenizer.model", "pieces");
  EXPECT_EQ(Opened()->tokenizer_model().size(), 6U);
  directory_.Write("tokenizer.json", "{}");
  EXPECT_TRUE(Opened()->tokenizer_model().empty());
}

TEST_F(HuggingFace, NeedsOnlyAConfigAndWeights) {
  const auto files = Opened();
  ASSERT_NE(files, nullptr);
  EXPECT_EQ(files->architecture(), "tiny");
  EXPECT_TRUE(files->generation_config().is_null());
  EXPECT_TRUE(files->tokenizer_config().is_null());
  EXPECT_EQ(files->tokenizer_json(), "");
  EXPECT_EQ(files->chat_template(), "");
  EXPECT_THAT(files->end_of_generation_ids(), IsEmpty());
  EXPECT_NE(files->Find("t"), nullptr);

  fs::remove(directory_.path() / "model.safetensors");
  EXPECT_THAT(Refusal(), HasSubstr("neither model.safetensors nor model.safetensors.index.json"));
  fs::remove(directory_.path() / "config.json");
  EXPECT_THAT(Refusal(), EndsWith("config.json: no such file"));
}

TEST_F(HuggingFace, HasOneTextOfBothProcessorFiles) {
  const auto text = [this] { return Opened()->processor_config(); };
  EXPECT_EQ(text().value(), "");
  directory_.Write("preprocessor_config.json", R"({"size":1})");
  EXPECT_EQ(text().value(), R"({"image_processor":{"size":1}})");
  directory_.Write("processor_config.json", R"({"patch_size":2})");
  EXPECT_EQ(text().value(), R"({"patch_size":2,"image_processor":{"size":1}})");
  directory_.Write("processor_config.json", R"({"image_processor":{"size":3}})");
  EXPECT_EQ(text().value(), R"({"image_processor":{"size":3}})");
  directory_.Write("preprocessor_config.json", "[]");
  ASSERT_FALSE(text());
  EXPECT_THAT(text().error().message, EndsWith("preprocessor_config.json: not a JSON object"));
}

TEST_F(HuggingFace, TakesEndIdsFromTheFirstFileThatHasThem) {
  const auto ids = [this] { return Opened()->end_of_generation_ids(); };
  directory_.Write("config.json", R"({"model_type":"tiny","text_config":{"eos_token_id":9}})");
  EXPECT_THAT(ids(), ElementsAre(9));
  directory_.Write("config.json",
                   R"({"model_type":"tiny","eos_token_id":[8,3],"text_config":{"eos_token_id":9}})");
  EXPECT_THAT(ids(), ElementsAre(8, 3));
  directory_.Write("generation_config.json", R"({"eos_token_id":null})");
  EXPECT_THAT(ids(), ElementsAre(8, 3));
  directory_.Write("generation_config.json", R"({"eos_token_id":5})");
  EXPECT_THAT(ids(), ElementsAre(5));
  for (const char* bad : {"-1", "2147483648", "1.5", "\"5\"", "[[5]]", "{}", "true", "[5,-1]"}) {
    directory_.Write("generation_config.json", std::string(R"({"eos_token_id":)") + bad + "}");
    EXPECT_THAT(Refusal(), HasSubstr("generation_config.json: eos_token_id is not")) << bad;
  }
}

TEST_F(HuggingFace, SpecialTokensMapFillsWhatTheTokenizerConfigLacks) {
  directory_.Write("special_tokens_map.json", R"({"bos_token":"<s>","eos_token":{"content":"<e>"}})");
  EXPECT_EQ(Opened()->tokenizer_config().at("bos_token"), "<s>");
  directory_.Write("tokenizer_config.json", R"({"bos_token":"<b>","eos_token":null,"pad_token":"<p>"})");
  EXPECT_EQ(Opened()->tokenizer_config().at("bos_token"), "<b>");
  EXPECT_EQ(Opened()->tokenizer_config().at("eos_token").at("content"), "<e>");
  EXPECT_EQ(Opened()->tokenizer_config().at("pad_token"), "<p>");
  directory_.Write("special_tokens_map.json", "[]");
  EXPECT_THAT(Refusal(), HasSubstr("special_tokens_map.json: not a JSON object"));
}

TEST_F(HuggingFace, FindsTheChatTemplateInEveryForm) {
  directory_.Write("tokenizer_config.json", R"({"chat_template":"plain"})");
  EXPECT_EQ(Opened()->chat_template(), "plain");
  directory_.Write("tokenizer_config.json",
                   R"({"chat_template":[{"name":"rag","template":"r"},{"name":"default","template":"d"},)"
                   R"({"name":"tool_use","template":"t"}]})");
  EXPECT_EQ(Opened()->chat_template(), "d");
  EXPECT_EQ(Opened()->named_chat_template("tool_use"), "t");
  directory_.Write("chat_template.json", R"({"chat_template":"json"})");
  EXPECT_EQ(Opened()->chat_template(), "json");
  EXPECT_EQ(Opened()->named_chat_template("tool_use"), "");
  fs::create_directory(directory_.path() / "additional_chat_templates");
  directory_.Write("additional_chat_templates/tool_use.jinja", "tools");
  EXPECT_EQ(Opened()->named_chat_template("tool_use"), "tools");
  fs::remove_all(directory_.path() / "additional_chat_templates");
  fs::remove(directory_.path() / "chat_template.json");
  directory_.Write("tokenizer_config.json", R"({"chat_template":[{"name":"rag","template":"r"}]})");
  EXPECT_EQ(Opened()->chat_template(), "r");
  directory_.Write("chat_template.jinja", "file");
  EXPECT_EQ(Opened()->chat_template(), "file");
  directory_.Write("chat_template.jinja", "\xff");
  EXPECT_THAT(Refusal(), EndsWith("chat_template.jinja: not valid UTF-8"));
  fs::remove(directory_.path() / "chat_template.jinja");
  for (const char* bad : {"1", "[]", "[1]", "{}", R"([{"name":"default"}])", R"([{"template":"x"}])"}) {
    directory_.Write("tokenizer_config.json", std::string(R"({"chat_template":)") + bad + "}");
    EXPECT_THAT(Refusal(), HasSubstr("tokenizer_config.json: chat_template is neither")) << bad;
  }
}

TEST_F(HuggingFace, ReadsShards) {
  fs::remove(directory_.path() / "model.safetensors");
  directory_.Write("model-00001-of-00002.safetensors", OneTensor("a"));
  directory_.Write("model-00002-of-00002.safetensors", OneTensor("b"));
  const auto index = [this](const std::string& map) {
    directory_.Write("model.safetensors.index.json",
                     R"({"metadata":{"total_size":16},"weight_map":)" + map + "}");
  };
  index(R"({"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"})");
  const auto files = Opened();
  ASSERT_NE(files, nullptr);
  EXPECT_NE(files->Find("a"), nullptr);
  EXPECT_NE(files->Find("b"), nullptr);

  directory_.Write("model-00002-of-00002.safetensors", OneTensor("a"));
  EXPECT_THAT(Refusal(), HasSubstr("is in two shards"));
  index(R"({"a":"model-00001-of-00002.safetensors","b":"model-00003-of-00002.safetensors"})");
  EXPECT_THAT(Refusal(), HasSubstr("shard \"model-00003-of-00002.safetensors\" is missing"));
  for (const char* bad : {"{}", "[]", "1", R"({"a":1})", R"({"a":""})", R"({"a":"."})", R"({"a":".."})",
                          R"({"a":"/etc/hostname"})", R"({"a":"../x.safetensors"})", R"({"a":"x\u0000"})"}) {
    index(bad);
    EXPECT_THAT(Refusal(), HasSubstr("model.safetensors.index.json: ")) << bad;
  }
}

TEST_F(HuggingFace, NoticesATensorThatItsShardDoesNotHold) {
  fs::remove(directory_.path() / "model.safetensors");
  directory_.Write("s.safetensors", OneTensor("a"));
  directory_.Write("model.safetensors.index.json",
                   R"({"weight_map":{"a":"s.safetensors","gone":"s.safetensors"}})");
  EXPECT_THAT(Refusal(), HasSubstr("tensor \"gone\" is in no shard"));
  // A tensor of a type that is not loaded still counts as present.
  directory_.Write("s.safetensors",
                   Safetensors(R"({"ids":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})", 8).bytes());
  directory_.Write("model.safetensors.index.json", R"({"weight_map":{"ids":"s.safetensors"}})");
  EXPECT_NE(Opened(), nullptr);
}

TEST_F(HuggingFace, FollowsSymlinksButOpensOnlyRegularFiles) {
  const TemporaryDirectory elsewhere;
  fs::remove(directory_.path() / "model.safetensors");
  fs::create_symlink(elsewhere.Write("blob", OneTensor("t")), directory_.path() / "model.safetensors");
  EXPECT_NE(Opened(), nullptr);
  fs::remove(directory_.path() / "model.safetensors");
  ASSERT_EQ(::mkfifo((directory_.path() / "model.safetensors").c_str(), 0600), 0);
  EXPECT_THAT(Refusal(), EndsWith("model.safetensors: not a regular file"));
}

TEST_F(HuggingFace, AlignsTensorsThatLieAskew) {
  const std::string header = R"({"h":{"dtype":"F16","shape":[1],"data_offsets":[0,2]},)"
                             R"("f":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})";
  testing::Image image;
  image.Text(header).Raw("ab").Number<float>(1.5F);
  directory_.Write("model.safetensors", image.bytes());
  const auto files = Opened();
  ASSERT_NE(files, nullptr);
  const Tensor* tensor = files->Find("f");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor->data.data()) % alignof(float), 0U);
  EXPECT_EQ(*reinterpret_cast<const float*>(tensor->data.data()), 1.5F);
  const Tensor* half = files->Find("h");
  ASSERT_NE(half, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(half->data.data()) % 2, 0U);
}

TEST_F(HuggingFace, LeavesOutBuffersAndNamesTypesItDoesNotRead) {
  directory_.Write("model.safetensors",
                   Safetensors(R"({"ids":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})", 8).bytes());
  EXPECT_THAT(Opened()->tensors(), IsEmpty());
  EXPECT_EQ(Opened()->Integers("ids").value().size(), 1U);
  EXPECT_FALSE(Opened()->Integers("other"));
  directory_.Write("model.safetensors",
                   Safetensors(R"({"q":{"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]}})", 8).bytes());
  EXPECT_THAT(Refusal(), EndsWith("tensor \"q\" has type F8_E4M3, which this build does not support"));
}

TEST_F(HuggingFace, RefusesHostileJson) {
  const auto refusal = [this](const std::string& config) {
    directory_.Write("config.json", config);
    return Refusal();
  };
  EXPECT_THAT(refusal(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("[]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal("{}"), HasSubstr("no model_type"));
  EXPECT_THAT(refusal(R"({"model_type":7})"), HasSubstr("no model_type"));
  EXPECT_THAT(refusal(R"({"model_type":"a","model_type":"b"})"),
              HasSubstr("key \"model_type\" occurs twice"));
  EXPECT_THAT(refusal("\xff"), HasSubstr("not valid UTF-8"));
  EXPECT_THAT(refusal(R"({"model_type":"a","x":1e999})"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal(std::string(1'000'000, '[')), HasSubstr("nested deeper"));
  EXPECT_THAT(refusal(std::string(size_t{17} << 20, ' ')), HasSubstr("more than the 16777216 allowed"));
}

TEST(JsonText, TakesManyKeysInOneObject) {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i) text += "\"" + std::to_string(i) + "\":0,";
  text.back() = '}';
  const auto value = ParseJson(text, "x");
  ASSERT_TRUE(value);
  EXPECT_EQ(value->size(), 200'000U);
}

TEST(JsonText, KeepsOrderAndKinds) {
  const std::string text = R"({"z":[1,-2,0.5,"é",true,null],"a":{"b":{}},"n":18446744073709551615})";
  const auto value = ParseJson(text, "x");
  ASSERT_TRUE(value);
  EXPECT_EQ(value->dump(), text);
}

// As Python writes it, and Nemotron-H's checkpoints have it.
TEST(Json, ABareInfinityIsReadAsTransformersWritesIt) {
  const auto value =
      ParseJson(WithInfinityAsObject(R"({"limits": [0.0, Infinity], "a \"Infinity": "x, Infinity"})"), "x");
  ASSERT_TRUE(value) << value.error().message;
  EXPECT_EQ(value->dump(), R"({"limits":[0.0,{"__float__":"Infinity"}],"a \"Infinity":"x, Infinity"})");
  EXPECT_FALSE(ParseJson(WithInfinityAsObject(R"({"low": -Infinity})"), "x"));
}

}  // namespace
}  // namespace quire::runner::weights
