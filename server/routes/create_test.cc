// /api/create through the front door.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "api/base/sha256.h"
#include "server/testing/test_daemon.h"

namespace quire::server {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Named;
using testing::RawResponse;
using testing::ReadFile;
using testing::TestDaemon;
using testing::WriteFile;

std::vector<std::string> Statuses(const RawResponse& response) {
  std::vector<std::string> statuses;
  for (size_t at = 0; at < response.body.size();) {
    const size_t end = response.body.find('\n', at);
    const json line = json::parse(response.body.substr(at, end - at));
    statuses.push_back(line.value("status", line.value("error", "")));
    at = end + 1;
  }
  return statuses;
}

// The store holds a blob of these bytes, and the runner would describe it so.
std::string GiveBlob(TestDaemon& daemon, const std::string& bytes) {
  WriteFile(daemon.store().Blob(bytes), bytes);
  daemon.backend().script.inspected.model_info_json = R"({"general.architecture":"llama"})";
  daemon.backend().script.inspected.parameters = 1'234'567'890;
  daemon.backend().script.inspected.quantization = "F16";
  return "sha256:" + api::Sha256Of(bytes);
}

std::string ErrorOf(const RawResponse& response) { return json::parse(response.body).value("error", ""); }

TEST(CreateRoute, FromAModelWithWhatTheRequestSaysOnTop) {
  TestDaemon daemon;
  const RawResponse response =
      daemon.Post("/api/create", R"({"model":"made","from":"Demo","system":"Be a pirate.",
      "parameters":{"temperature":0.25,"stop":["A","B"]},"license":["L1","L2"],"stream":false,
      "messages":[{"role":"user","content":"hey"},{"role":"assistant","content":"ahoy"}]})");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body, R"({"status":"success"})");
  const auto store = daemon.store().Open();
  const auto made = store.Find(Named("made"));
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ((*made)->weights, (*store.Find(Named("demo")))->weights);
  EXPECT_EQ((*made)->system, "Be a pirate.");
  EXPECT_EQ((*made)->parameters_json, R"({"top_k":7,"temperature":0.25,"stop":["A","B"]})");
  EXPECT_THAT((*made)->licenses, ElementsAre("L1", "L2"));
  ASSERT_EQ((*made)->messages.size(), 2u);
  EXPECT_EQ((*made)->messages[1].content, "ahoy");
  EXPECT_EQ((*made)->details.family, "llama");
}

TEST(CreateRoute, WhatIsNotSaidStaysAndAgainReplaces) {
  TestDaemon daemon;
  daemon.Post("/api/create", R"({"model":"made","from":"demo","license":"L","stream":false})");
  daemon.Post("/api/create",
              R"({"model":"MADE","from":"made","system":"New.","license":"L","stream":false})");
  const auto made = daemon.store().Open().Find(Named("made"));
  EXPECT_EQ((*made)->name.Display(), "made:latest");
  EXPECT_EQ((*made)->system, "New.");
  EXPECT_THAT((*made)->licenses, ElementsAre("L"));
  EXPECT_EQ((*made)->messages.size(), 1u);
  EXPECT_EQ((*made)->parameters_json, R"({"temperature":0.5,"top_k":7})");
}

// Every request of the model copies it.
TEST(CreateRoute, AModelHasABoundedTextInAll) {
  TestDaemon daemon;
  const json message = {{"role", "user"}, {"content", ""}};
  for (const json& more : {json{{"messages", std::vector<json>(30'000, message)}},
                           json{{"system", std::string(size_t{5} << 20, 's')}},
                           json{{"license", std::string(size_t{5} << 20, 'l')}}}) {
    json request = {{"model", "made"}, {"from", "demo"}, {"stream", false}};
    request.update(more);
    const RawResponse response = daemon.Post("/api/create", request.dump());
    EXPECT_EQ(response.status, 400);
    EXPECT_THAT(ErrorOf(response), HasSubstr("the limit is 4194304 bytes"));
  }
  EXPECT_EQ(daemon.store().Open().Find(Named("made")).error().code, api::ErrorCode::kNotFound);
}

TEST(CreateRoute, StreamsWhatItDoes) {
  TestDaemon daemon;
  const RawResponse response = daemon.Post("/api/create", R"({"model":"made","from":"demo","system":"S"})");
  EXPECT_EQ(response.headers.at("content-type"), "application/x-ndjson");
  const auto statuses = Statuses(response);
  ASSERT_GE(statuses.size(), 4u);
  EXPECT_EQ(statuses[0], "using existing layer sha256:" + api::Sha256Of("GGUF weights"));
  EXPECT_EQ(statuses[1], "creating new layer sha256:" + api::Sha256Of("S"));
  EXPECT_EQ(statuses[statuses.size() - 2], "writing manifest");
  EXPECT_EQ(statuses.back(), "success");
}

TEST(CreateRoute, FromABlob) {
  TestDaemon daemon;
  const std::string digest = GiveBlob(daemon, "GGUF sent");
  const RawResponse response =
      daemon.Post("/api/create", json{{"model", "sent"}, {"files", {{"x.gguf", digest}}}}.dump());
  EXPECT_EQ(Statuses(response).front(), "parsing GGUF");
  EXPECT_EQ(Statuses(response).back(), "success");
  const auto sent = daemon.store().Open().Find(Named("sent"));
  ASSERT_TRUE(sent) << sent.error().message;
  EXPECT_EQ(ReadFile((*sent)->weights), "GGUF sent");
  EXPECT_EQ((*sent)->details.family, "llama");
  EXPECT_EQ((*sent)->details.parameter_size, "1.2B");
  EXPECT_EQ((*sent)->details.quantization_level, "F16");
  EXPECT_EQ(daemon.backend().seen.load_checks.size(), 1U) << "one runner says all";
  EXPECT_TRUE(daemon.backend().seen.inspections.empty());
}

TEST(CreateRoute, AModelThatDoesNotLoadIsAnErrorThatLeavesNothing) {
  TestDaemon daemon;
  const std::string model = GiveBlob(daemon, "GGUF sent"), draft = GiveBlob(daemon, "GGUF draft");
  daemon.backend().script.load_error = api::Error{api::ErrorCode::kBadModel, "the vocabulary differs"};
  const json files = {{"x.gguf", model}}, draft_files = {{"y.gguf", draft}};
  for (const json& body : {json{{"from", "demo"}}, json{{"files", files}},
                           json{{"files", files}, {"draft_files", draft_files}}}) {
    json request = body;
    request["model"] = "made";
    request["stream"] = false;
    const RawResponse response = daemon.Post("/api/create", request.dump());
    EXPECT_EQ(response.status, 400) << body;
    EXPECT_EQ(ErrorOf(response), "the vocabulary differs");
    EXPECT_EQ(daemon.store().Open().Find(Named("made")).error().code, api::ErrorCode::kNotFound);
  }
  const auto& checks = daemon.backend().seen.load_checks;
  ASSERT_EQ(checks.size(), 3u);
  EXPECT_TRUE(checks[1].draft_path.empty());
  EXPECT_EQ(ReadFile(checks[2].path), "GGUF sent");
  EXPECT_EQ(ReadFile(checks[2].draft_path), "GGUF draft");
}

// Names of what a conversion from two files leaves in blobs/.
json TensorFiles(TestDaemon& daemon) {
  daemon.backend().script.converted = "GGUF converted";
  return {{"model.safetensors", GiveBlob(daemon, "tensors")}, {"config.json", GiveBlob(daemon, "{}")}};
}

TEST(CreateRoute, WhatWasConvertedDoesNotStay) {
  TestDaemon daemon;
  const RawResponse made =
      daemon.Post("/api/create", json{{"model", "m"}, {"files", TensorFiles(daemon)}}.dump());
  EXPECT_EQ(Statuses(made).back(), "success");
  EXPECT_TRUE(fs::exists(daemon.store().Blob("GGUF converted")));
  EXPECT_FALSE(fs::exists(daemon.store().Blob("tensors")));
  EXPECT_FALSE(fs::exists(daemon.store().Blob("{}")));
}

TEST(CreateRoute, AFileThatAModelNamesStays) {
  TestDaemon daemon;
  json files = TensorFiles(daemon);
  ASSERT_EQ(
      Statuses(daemon.Post("/api/create",
                           json{{"model", "raw"}, {"files", {{"x.gguf", files["config.json"]}}}}.dump()))
          .back(),
      "success");
  EXPECT_EQ(Statuses(daemon.Post("/api/create", json{{"model", "m"}, {"files", files}}.dump())).back(),
            "success");
  EXPECT_TRUE(fs::exists(daemon.store().Blob("{}")));
  EXPECT_FALSE(fs::exists(daemon.store().Blob("tensors")));
}

TEST(CreateRoute, AFailedOneKeepsWhatTheClientSentAndNothingElse) {
  TestDaemon daemon;
  const json body = {{"model", "m"},
                     {"files", TensorFiles(daemon)},
                     {"draft_files", {{"draft.gguf", "sha256:" + api::Sha256Of("absent")}}}};
  EXPECT_THAT(Statuses(daemon.Post("/api/create", body.dump())).back(), HasSubstr("upload it first"));
  EXPECT_FALSE(fs::exists(daemon.store().Blob("GGUF converted")));
  EXPECT_TRUE(fs::exists(daemon.store().Blob("tensors")));
}

TEST(CreateRoute, SaysWhatIsWrong) {
  TestDaemon daemon;
  const auto refused = [&daemon](const json& body, int status) {
    const RawResponse response = daemon.Post("/api/create", body.dump());
    EXPECT_EQ(response.status, status) << body;
    return ErrorOf(response);
  };
  refused({{"model", "x"}}, 400);
  refused({{"model", "!!"}, {"from", "demo"}}, 400);
  EXPECT_EQ(refused({{"model", "x"}, {"from", "nobody"}}, 404), "model 'nobody' not found");
  EXPECT_THAT(refused({{"model", "x"}, {"files", {{"a", "sha256:zz"}}}}, 400), HasSubstr("sha256:zz"));
  const std::string absent = "sha256:" + api::Sha256Of("absent");
  EXPECT_THAT(refused({{"model", "x"}, {"files", {{"a.gguf", absent}}}}, 400), HasSubstr(absent));
  EXPECT_THAT(refused({{"model", "x"}, {"files", {{"a", absent}, {"b", absent}}}}, 400),
              HasSubstr("several GGUF files"));
  const std::string digest = GiveBlob(daemon, "no model");
  daemon.backend().script.inspected.error = api::Error{api::ErrorCode::kBadModel, "not a GGUF file"};
  for (const bool stream : {false, true}) {  // which has not begun
    const json body = {{"model", "x"}, {"files", {{"a.gguf", digest}}}, {"stream", stream}};
    EXPECT_EQ(refused(body, 400), "not a GGUF file");
  }
  EXPECT_EQ(daemon.store().Open().Find(Named("x")).error().code, api::ErrorCode::kNotFound);
}

}  // namespace
}  // namespace quire::server
