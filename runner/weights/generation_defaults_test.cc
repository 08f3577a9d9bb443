#include "runner/weights/generation_defaults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "api/json/option_fields.h"
#include "runner/weights/model_description.h"
#include "runner/weights/packed_model.h"
#include "runner/weights/quantize_model.h"
#include "runner/weights/testing/hostile_files.h"

namespace quire::runner::weights {
namespace {

using nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
namespace fs = std::filesystem;

constexpr const char* kDirectory = "tests/data/models/lfm2";  // its answers end at 2 and 7
constexpr const char* kGguf = "tests/data/gguf/lfm2.f16.gguf";

// A model's files with another generation_config.json, or with more keys of a GGUF file.
class WithDefaults final : public ModelFiles {
 public:
  WithDefaults(const char* path, ordered_json values) : files_(*Open(path)), values_(std::move(values)) {}
  Format format() const override { return files_->format(); }
  std::string path() const override { return files_->path(); }
  std::string architecture() const override { return files_->architecture(); }
  const Tensor* Find(std::string_view name) const override { return files_->Find(name); }
  const std::vector<Tensor>& tensors() const override { return files_->tensors(); }
  const ordered_json& config() const override {
    return format() == Format::kGguf ? values_ : files_->config();
  }
  const ordered_json& generation_config() const override {
    return format() == Format::kGguf ? files_->generation_config() : values_;
  }
  const ordered_json& tokenizer_config() const override { return files_->tokenizer_config(); }
  const std::string& tokenizer_json() const override { return files_->tokenizer_json(); }
  std::string chat_template() const override { return files_->chat_template(); }
  std::vector<int32_t> end_of_generation_ids() const override { return files_->end_of_generation_ids(); }

 private:
  const std::shared_ptr<const ModelFiles> files_;
  const ordered_json values_;
};

GenerationDefaults OfDirectory(const ordered_json& values) {
  return ReadGenerationDefaults(WithDefaults(kDirectory, values), 512);
}

GenerationDefaults OfGguf(const ordered_json& sampling) {
  ordered_json values = {{"general.architecture", "lfm2"}};
  for (const auto& [key, value] : sampling.items()) values["general.sampling." + key] = value;
  return ReadGenerationDefaults(WithDefaults(kGguf, values), 512);
}

std::string Sampling(const GenerationDefaults& defaults) { return api::DumpOptions(defaults.options); }

TEST(GenerationDefaults, AreThoseOfGenerationConfigJson) {
  const GenerationDefaults defaults = ReadGenerationDefaults(**Open(kDirectory));
  EXPECT_EQ(Sampling(defaults), R"({"temperature":0.7,"top_k":50,"top_p":0.9})");
  EXPECT_STREQ(defaults.source, "generation_config.json");
  EXPECT_THAT(defaults.notes, IsEmpty());
  EXPECT_EQ(
      Sampling(OfDirectory({{"temperature", 0.6},
                            {"top_k", 20},
                            {"top_p", 1.0},
                            {"min_p", 0},
                            {"typical_p", 0.95},
                            {"repetition_penalty", 1.05},
                            {"max_new_tokens", 2048}})),
      R"({"temperature":0.6,"top_k":20,"top_p":1.0,"min_p":0.0,"typical_p":0.95,"repeat_penalty":1.05})");
  EXPECT_EQ(Sampling(OfDirectory(nullptr)), "");
  EXPECT_EQ(Sampling(OfDirectory({{"temperature", nullptr}, {"do_sample", nullptr}})), "");
}

TEST(GenerationDefaults, OnlyDoSampleFalseThatIsWrittenMeansGreedy) {
  EXPECT_EQ(Sampling(OfDirectory({{"do_sample", false}})), R"({"temperature":0.0})");
  EXPECT_EQ(Sampling(OfDirectory({{"do_sample", false}, {"temperature", 0.6}, {"top_k", 20}})),
            R"({"temperature":0.0,"top_k":20})");
  EXPECT_EQ(Sampling(OfDirectory({{"do_sample", true}})), "");
  EXPECT_EQ(Sampling(OfDirectory({{"temperature", 0.6}})), R"({"temperature":0.6})");
}

TEST(GenerationDefaults, AreThoseOfGgufMetadata) {
  // As llama.cpp's converter writes them.
  EXPECT_EQ(Sampling(ReadGenerationDefaults(**Open(kGguf))), R"({"temperature":0.7,"top_k":50,"top_p":0.9})");
  EXPECT_EQ(Sampling(OfGguf(ordered_json::object())), "");
  const GenerationDefaults defaults = OfGguf({{"temp", double{0.6F}},
                                              {"top_k", 20},
                                              {"top_p", double{0.95F}},
                                              {"min_p", double{0.05F}},
                                              {"xtc_probability", 0.5},
                                              {"xtc_threshold", double{0.1F}},
                                              {"penalty_last_n", -1},
                                              {"penalty_repeat", double{1.1F}},
                                              {"mirostat", 2},
                                              {"mirostat_tau", 4},
                                              {"mirostat_eta", 0.25}});
  EXPECT_EQ(
      Sampling(defaults),
      R"({"temperature":0.6,"top_k":20,"top_p":0.95,"min_p":0.05,"repeat_last_n":-1,"repeat_penalty":1.1,)"
      R"("xtc_probability":0.5,"xtc_threshold":0.1,"mirostat":2,"mirostat_tau":4.0,"mirostat_eta":0.25})");
  EXPECT_STREQ(defaults.source, "GGUF metadata");
  EXPECT_THAT(defaults.notes, IsEmpty());
}

TEST(GenerationDefaults, SamplersThatTheSequenceDoesNotNameAreOff) {
  const GenerationDefaults defaults = OfGguf(
      {{"sequence", "penalties;top_k;;temperature;infill"}, {"top_k", 20}, {"top_p", 0.5}, {"temp", 0.5}});
  const api::GenerationParams params = Resolve(defaults.options);
  EXPECT_EQ(params.top_k, 20);
  EXPECT_EQ(params.top_p, 1.0F);
  EXPECT_EQ(params.min_p, 0.0F);
  EXPECT_EQ(params.temperature, 0.5F);
  EXPECT_THAT(defaults.notes,
              ElementsAre(HasSubstr("general.sampling.sequence names a sampler that is not here")));
  EXPECT_EQ(Sampling(OfGguf({{"sequence", ""}})), "");
  EXPECT_THAT(OfGguf({{"sequence", 3}}).notes, ElementsAre(HasSubstr("sequence is not a text")));
}

TEST(GenerationDefaults, ValuesThatMakeNoSenseAreIgnoredAndNoted) {
  const std::pair<const char*, ordered_json> broken[] = {{"temperature", -1},
                                                         {"temperature", 1e30},
                                                         {"temperature", std::nan("")},
                                                         {"temperature", INFINITY},
                                                         {"temperature", "hot"},
                                                         {"temperature", {0.5}},
                                                         {"top_k", -2},
                                                         {"top_k", 1e12},
                                                         {"top_k", true},
                                                         {"top_p", 1.5},
                                                         {"min_p", -0.1},
                                                         {"typical_p", 0},
                                                         {"repetition_penalty", 0},
                                                         {"repetition_penalty", 1e9}};
  for (const auto& [key, value] : broken) {
    const GenerationDefaults defaults = OfDirectory({{key, value}});
    EXPECT_EQ(Sampling(defaults), "") << key << value;
    EXPECT_THAT(defaults.notes, ElementsAre(HasSubstr(std::string("generation_config.json: ") + key)))
        << value;
  }
  EXPECT_THAT(
      OfGguf({{"mirostat", 3}, {"temp", std::nan("")}}).notes,
      ElementsAre(HasSubstr("general.sampling.temp is nan"), HasSubstr("general.sampling.mirostat is 3")));
}

TEST(GenerationDefaults, TokensAreBanned) {
  const GenerationDefaults defaults = OfDirectory({{"suppress_tokens", {3, 511, 512, -1}},
                                                   {"begin_suppress_tokens", {220, 7}},
                                                   {"bad_words_ids", {{9}, {10, 11}, {2}, {600}}}});
  EXPECT_THAT(defaults.banned, ElementsAre(3, 511, 9)) << "an end of the answer is no bad word";
  EXPECT_THAT(defaults.banned_first, ElementsAre(220, 7));
  EXPECT_THAT(defaults.notes,
              UnorderedElementsAre(HasSubstr("suppress_tokens has ids that are not in the vocabulary"),
                                   HasSubstr("bad_words_ids has words of several tokens"),
                                   HasSubstr("bad_words_ids has ids that are not in the vocabulary")));
  ordered_json all = ordered_json::array();
  for (int id = 0; id < 512; ++id) all.push_back(id);
  const GenerationDefaults none = OfDirectory({{"suppress_tokens", all}});
  EXPECT_THAT(none.banned, IsEmpty());
  EXPECT_THAT(none.notes, ElementsAre(HasSubstr("ban every token")));
  EXPECT_THAT(
      OfDirectory({{"bad_words_ids", 5}, {"suppress_tokens", "x"}, {"begin_suppress_tokens", nullptr}}).notes,
      UnorderedElementsAre(HasSubstr("bad_words_ids is not a list"),
                           HasSubstr("suppress_tokens is not a list")));
}

TEST(GenerationDefaults, StopStringsAreAListOrOne) {
  EXPECT_THAT(OfDirectory({{"stop_strings", {"</a>", "b"}}}).stop, ElementsAre("</a>", "b"));
  EXPECT_THAT(OfDirectory({{"stop_strings", "x"}}).stop, ElementsAre("x"));
  EXPECT_THAT(OfDirectory({{"stop_strings", nullptr}}).stop, IsEmpty());
  for (const ordered_json& broken : {ordered_json(3), ordered_json({"a", 1}), ordered_json({"a", ""}),
                                     ordered_json(std::string(9000, 'x'))}) {
    const GenerationDefaults defaults = OfDirectory({{"stop_strings", broken}});
    EXPECT_THAT(defaults.stop, IsEmpty());
    EXPECT_THAT(defaults.notes, ElementsAre(HasSubstr("stop_strings is ")));
  }
}

TEST(GenerationDefaults, WhatIsNotObeyedIsNoted) {
  EXPECT_THAT(OfDirectory({{"num_beams", 4},
                           {"no_repeat_ngram_size", 0},
                           {"guidance_scale", 1.0},
                           {"top_h", nullptr},
                           {"sequence_bias", ordered_json::object()}})
                  .notes,
              ElementsAre("generation_config.json: num_beams is read and not obeyed"));
}

// What `quire create` and its -q make of a file recommends the same.
TEST(GenerationDefaults, SurviveConversionAndQuantization) {
  const testing::TemporaryDirectory folder;
  const fs::path packed = folder.path() / "p.gguf", of_packed = folder.path() / "q.gguf",
                 of_gguf = folder.path() / "s.gguf";
  ASSERT_TRUE(PackHuggingFace(kDirectory, packed));
  ASSERT_TRUE(QuantizeGguf(packed, "Q8_0", of_packed, 1));
  ASSERT_TRUE(QuantizeGguf(kGguf, "Q8_0", of_gguf, 1));
  for (const fs::path& path : {packed, of_packed, of_gguf}) {
    const auto files = Open(path);
    ASSERT_TRUE(files) << files.error().message;
    EXPECT_EQ(Sampling(ReadGenerationDefaults(**files)), R"({"temperature":0.7,"top_k":50,"top_p":0.9})");
  }
}

TEST(GenerationDefaults, ADescriptionHasThem) {
  const WithDefaults files(kDirectory, {{"top_k", 20}, {"num_beams", 4}});
  const api::ipc::Inspected with = Describe(files, false),
                            without = Describe(files, false, /*sampling=*/false);
  EXPECT_EQ(with.sampling_json, R"({"top_k":20})");
  EXPECT_EQ(with.sampling_source, "generation_config.json");
  EXPECT_THAT(with.repairs, ElementsAre(HasSubstr("num_beams")));
  EXPECT_EQ(without.sampling_json + without.sampling_source, "");
  EXPECT_THAT(without.repairs, IsEmpty());
}

}  // namespace
}  // namespace quire::runner::weights
