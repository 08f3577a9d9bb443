#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <vector>

#include "api/ipc/messages.h"
#include "api/json/read.h"

namespace quire::api::ipc {
namespace {

using ::testing::HasSubstr;

// To either side: the type tells which.
FrameReader::Frame OneFrame(const std::string& bytes) {
  const bool to_daemon = static_cast<unsigned char>(bytes.at(6)) > 100;
  FrameReader reader(to_daemon ? Receiver::kDaemon : Receiver::kRunner);
  reader.Append(bytes);
  auto frame = reader.Next();
  EXPECT_TRUE(frame && *frame);
  const auto rest = reader.Next();
  EXPECT_TRUE(rest && !*rest);
  return **frame;
}

// Encoding is a function of every field, so equal bytes mean that no field was lost.
void ExpectSurvives(const ToRunner& message) {
  const std::string bytes = Encode(message);
  const auto decoded = DecodeToRunner(OneFrame(bytes));
  ASSERT_TRUE(decoded) << decoded.error().message;
  EXPECT_EQ(decoded->index(), message.index());
  EXPECT_EQ(Encode(*decoded), bytes);
}
void ExpectSurvives(const ToDaemon& message) {
  const std::string bytes = Encode(message);
  const auto decoded = DecodeToDaemon(OneFrame(bytes));
  ASSERT_TRUE(decoded) << decoded.error().message;
  EXPECT_EQ(decoded->index(), message.index());
  EXPECT_EQ(Encode(*decoded), bytes);
}

Submit FullSubmit() {
  Submit submit{RequestId{0xFFFFFFFFFFFFFFFF}, {}};
  Message answer{"assistant", "", "hm", {{"c1", "f", R"({"b":1,"a":2})"}}, "", ""};
  Message result{"tool", "42", "", {}, "f", "c1"};
  result.images = {{2, std::make_shared<const std::string>("\x89PNG\xFF")},
                   {2, std::make_shared<const std::string>(70'000, '\xFE')}};
  submit.request.prompt =
      ChatPrompt{{{"user", "h\xC3\xA9"}, answer, result}, {{"f", "{}", true, R"({"x":1})"}}};
  submit.request.params.temperature = 0.1F;
  submit.request.params.seed = std::numeric_limits<int64_t>::max();
  submit.request.params.num_ctx = 512;
  submit.request.params.stop = {"a", "b"};
  submit.request.params.logit_bias = {{7, -100}, {0, 1.5F}};
  submit.request.params.dry_sequence_breakers = {"x"};
  submit.request.params.stop_token_ids = {4, 5};
  submit.request.thinking_tokens_max = 7;
  submit.request.params.min_tokens = 3;
  submit.request.params.ignore_eos = true;
  submit.request.params.draft_num_predict = 6;
  submit.request.specified = OptionBits{5} << 28U;
  submit.request.overflow = Overflow::kRefuse;
  submit.request.shift = false;
  submit.request.logprobs = true;
  submit.request.top_logprobs = 20;
  submit.request.return_context = true;
  submit.request.think = Think::kHigh;
  submit.request.think_optional = true;
  submit.request.tool_choice = ToolChoice::kRequired;
  submit.request.forced_tool = "f";
  submit.request.single_tool_call = true;
  submit.request.model_name = "M";
  submit.request.go_template = "{{ .Prompt }}";
  submit.request.prompt_only = true;
  submit.request.return_prompt_text = true;
  submit.request.return_prompt_tokens = true;
  submit.request.prompt_logprobs = 20;
  submit.request.delta_per_token = true;
  submit.request.predict_ms_max = 500;
  submit.request.indent_min = 4;
  submit.request.restore_point = true;
  submit.request.report_progress = true;
  submit.request.now_s = int64_t{1} << 33;
  submit.request.format = OutputFormat{OutputFormat::Kind::kGrammar, "root ::= \"a\"", "grammar"};
  submit.resume = {{7, 8},
                   2,
                   3,
                   ResumeState{1.5F, uint64_t{1} << 40},
                   ResumeState{std::nullopt, 7},
                   40,
                   Spent{3, 4, int64_t{1} << 40, 5}};
  return submit;
}

RequestEvent FullDelta() {
  TextDelta delta;
  delta.text = "x";
  delta.tokens = 2;
  delta.thinking = "hm";
  delta.token_ids = {4, 5};
  delta.state = ResumeState{-0.5F, 3};
  delta.state_at_shift = ResumeState{std::nullopt, uint64_t{1} << 40};
  delta.tool_calls = {{"c1", "f", R"({"a":1})"}, {"c2", "g", "{}"}};
  delta.logprobs = {
      {{"\xFF\x00", 5, -0.25F}, {{"a", 1, -0.5F}, {"", 2, -std::numeric_limits<float>::infinity()}}, 9}};
  delta.prompt = {{{"<s>", 1, 0}, {}, 0}, {{"\xFE", 2, -3}, {{"b", 3, -1}}, 4}};
  return {RequestId{3}, delta};
}

RequestEvent FullFinished() {
  Finished finished;
  finished.reason = FinishReason::kLength;
  finished.stop_string = "END";
  finished.usage = {10, 4, 3, 1, 2, int64_t{1} << 40, {2, 6, {2, 1, 0}, 5}};
  finished.prompt_dropped = 6;
  finished.in_thinking = true;
  finished.context = {0, 1, std::numeric_limits<int32_t>::max()};
  finished.embedding = {0.5F, -1e-30F};
  return {RequestId{1}, finished};
}

EngineInspected FullEngine() {
  InspectedSequence sequence{RequestId{4}, WaitReason::kReader, true, 10, 7, 1, int64_t{1} << 40, 9};
  return {3, {sequence, {}}, 2, uint64_t{1} << 50, 4, 5, 6, 7, 8};
}

CacheInspected FullCache() {
  CacheInspected cache{.id = 3, .version = 9, .unchanged = true};
  cache.nodes = {{1, 0, 0, 0, 8, 1, 2, 3, 4, true, true, 5, 6, 7, 8, 9, "h\xC3\xA9", "end"}, {.id = 2}};
  cache.nodes_left_out = 1;
  cache.budget_bytes = 2;
  cache.bytes = 3;
  cache.other_keys = 4;
  cache.other_nodes = 5;
  return cache;
}

RequestEvent FullReady() {
  return {RequestId{1},
          PromptReady{7, 3, "diverged@3", Divergence{3, "a", "b", "c"}, 4, 5, R"({"top_k":3})"}};
}

Inspected FullInspected() {
  Inspected inspected{};
  inspected.repairs = {"a"};
  inspected.sampling_json = R"({"top_k":3})";
  inspected.sampling_source = "f";
  return inspected;
}

LoadModel FullLoad() {
  return {.path = "/m",
          .files = {{"config.json", 6}, {"model.safetensors", 5}},
          .settings = {.threads = 2,
                       .cache_bytes = 0,
                       .weights_budget = int64_t{1} << 33,
                       .memory_bytes = int64_t{1} << 34,
                       .prefix_cache = false,
                       .model_sampling = false,
                       .quantize_on_load = "Q8_0",
                       .kv_cache_type = KvType::kQ8_0,
                       .state_cache_type = KvType::kBF16},
          .go_template = "{{ .Prompt }}",
          .draft_path = "/d.gguf",
          .draft_files = {{"", 7}},
          .projector_path = "/mmproj.gguf",
          .projector_files = {{"", 8}},
          .context_min = 4096};
}

TEST(Ipc, ASubmitWhosePartsAreElsewhereIsTheSameFrame) {
  const Submit submit = FullSubmit();
  EXPECT_EQ(Encode(SubmitView{submit.id, submit.request, submit.resume}), Encode(ToRunner(submit)));
}

TEST(Ipc, EveryMessageToTheRunnerSurvives) {
  ExpectSurvives(ToRunner(FullLoad()));
  ExpectSurvives(ToRunner(LoadApproved{int64_t{1} << 40}));
  ExpectSurvives(ToRunner(InspectModel{"/m", {{"", 5}}, true, "{{ .Prompt }}"}));
  ExpectSurvives(ToRunner(ConvertModel{"/m.gguf", {{"", 5}}, "/n.gguf", "Q8_0", 2}));
  ExpectSurvives(ToRunner(FullSubmit()));
  Submit raw{RequestId{1}, {}};
  raw.request.prompt = RawPrompt{"text", false, true};
  ExpectSurvives(ToRunner(raw));
  raw.request.prompt = ContinuedPrompt{{1, 2, 3}, {{"user", "on"}}};
  ExpectSurvives(ToRunner(raw));
  raw.request.prompt = EmbedPrompt{"text", {}, 3, false};
  ExpectSurvives(ToRunner(raw));
  raw.request.prompt = EmbedPrompt{"", {1, 2}};
  ExpectSurvives(ToRunner(raw));
  raw.request.prompt = EmbedPrompt{.text = "query",
                                   .rank = true,
                                   .document = "text",
                                   .instruction = "which?",
                                   .document_tokens_max = 7,
                                   .keep_end = true,
                                   .prompt_name = "query",
                                   .prompt_required = true};
  ExpectSurvives(ToRunner(raw));
  raw.request.prompt = TokenPrompt{{3, 0, std::numeric_limits<int32_t>::max()}};
  ExpectSurvives(ToRunner(raw));
  raw.request.prompt = FimPrompt{"int main(", "}"};
  ExpectSurvives(ToRunner(raw));
  raw.request.prompt = FimPrompt{"int main(", "}", {{"a.h", "int a;"}, {"", ""}}};
  ExpectSurvives(ToRunner(raw));
  raw.request.prompt = MixedPrompt{{{"text", {}}, {"", {7, 8}}}};
  ExpectSurvives(ToRunner(raw));
  ExpectSurvives(ToRunner(Credit{RequestId{9}, 12}));
  ExpectSurvives(ToRunner(Cancel{RequestId{9}}));
  ExpectSurvives(ToRunner(Shutdown{}));
  ExpectSurvives(ToRunner(InspectEngine{7}));
  ExpectSurvives(ToRunner(InspectCache{7, "2:ab", true, 9, kInspectedNodesMax}));
}

TEST(Ipc, EveryMessageToTheDaemonSurvives) {
  ExpectSurvives(ToDaemon(Hello{kVersion, 77}));
  ExpectSurvives(ToDaemon(LoadProgress{0.5F, "mapping weights"}));
  ExpectSurvives(ToDaemon(Loaded{{"lfm2", 4096, 2048, 5'300'000, 10, 20, true, "llama"}, 123}));
  ExpectSurvives(ToDaemon(MemoryEstimate{1, 2, 3, int64_t{1} << 40, 4}));
  ExpectSurvives(ToDaemon(LoadFailed{{ErrorCode::kBadModel, "m.gguf: truncated", "f"}}));
  ExpectSurvives(
      ToDaemon(Inspected{"{}", "[]", "{{ x }}", "F16", 12, std::nullopt, {"completion", "tools"}, "line 1"}));
  ExpectSurvives(ToDaemon(FullInspected()));
  ExpectSurvives(ToDaemon(Inspected{"", "", "", "", 0, Error{ErrorCode::kBadModel, "no", ""}}));
  ExpectSurvives(ToDaemon(Converted{}));
  ExpectSurvives(ToDaemon(Converted{Error{ErrorCode::kBadModel, "no", ""}}));
  ExpectSurvives(ToDaemon(RequestEvent{RequestId{1}, PromptReady{7, 3}}));
  ExpectSurvives(ToDaemon(FullReady()));
  ExpectSurvives(ToDaemon(FullEngine()));
  ExpectSurvives(ToDaemon(FullCache()));
  ExpectSurvives(ToDaemon(RequestEvent{RequestId{1}, PrefillProgress{5}}));
  ExpectSurvives(ToDaemon(FullDelta()));
  ExpectSurvives(ToDaemon(FullFinished()));
  ExpectSurvives(ToDaemon(RequestEvent{RequestId{1}, Failed{{ErrorCode::kUnavailable, "m", ""}}}));
  ExpectSurvives(ToDaemon(Heartbeat{1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(Ipc, ValuesOfEverySizeSurvive) {
  for (const size_t size : {0, 1, 15, 16, 31, 32, 255, 256, 65'535, 65'536}) {
    for (const uint64_t id : {uint64_t{0}, uint64_t{127}, uint64_t{128}, uint64_t{255}, uint64_t{256},
                              uint64_t{65'536}, uint64_t{1} << 32, ~uint64_t{0}}) {
      TextDelta delta;
      delta.text = std::string(size, 'x');
      delta.tokens = static_cast<int32_t>(size);
      delta.thinking = std::string(size, 't');
      delta.token_ids.assign(size, static_cast<TokenId>(id & 0x7fffffff));
      delta.tool_calls.assign(std::min<size_t>(size, 300), {"c1", "f", "{}"});
      const ToDaemon message(RequestEvent{RequestId{id}, delta});
      std::string frames = "before";
      AppendFrame(message, frames);
      ASSERT_TRUE(frames.starts_with("before"));
      EXPECT_EQ(frames.substr(6), Encode(message));
      const auto decoded = DecodeToDaemon(OneFrame(frames.substr(6)));
      ASSERT_TRUE(decoded) << decoded.error().message;
      EXPECT_EQ(std::get<RequestEvent>(*decoded).id, RequestId{id});
      const auto& got = std::get<TextDelta>(std::get<RequestEvent>(*decoded).event);
      EXPECT_EQ(got.text, delta.text);
      EXPECT_EQ(got.tokens, delta.tokens);
      EXPECT_EQ(got.token_ids, delta.token_ids);
      EXPECT_EQ(got.tool_calls.size(), delta.tool_calls.size());
    }
  }
}

// The runner sends one for every token.
TEST(Ipc, AFrameOfATokenIsSmallAndTakesNoMemoryOfItsOwn) {
  TextDelta delta;
  delta.text = " word";
  delta.tokens = 1;
  delta.token_ids = {1234};
  std::string frames;
  frames.reserve(256);
  const char* const room = frames.data();
  AppendFrame(ToDaemon(RequestEvent{RequestId{7}, delta}), frames);
  EXPECT_EQ(frames.data(), room);
  EXPECT_LE(frames.size(), 72U);
}

TEST(Ipc, FieldsArriveAsTheyWere) {
  const auto submit = DecodeToRunner(OneFrame(Encode(ToRunner(FullSubmit()))));
  ASSERT_TRUE(submit);
  const auto& got = std::get<Submit>(*submit);
  EXPECT_EQ(got.id, RequestId{0xFFFFFFFFFFFFFFFF});
  EXPECT_EQ(got.request.params.temperature, 0.1F);
  EXPECT_EQ(got.request.params.seed, std::numeric_limits<int64_t>::max());
  const auto& messages = std::get<ChatPrompt>(got.request.prompt).messages;
  ASSERT_EQ(messages.size(), 3U);
  EXPECT_EQ(messages[1].tool_calls.at(0).arguments_json, R"({"b":1,"a":2})");
  EXPECT_EQ(messages[2].tool_call_id, "c1");
  ASSERT_TRUE(got.request.format.has_value());
  EXPECT_EQ(got.request.format->kind, OutputFormat::Kind::kGrammar);
  EXPECT_EQ(got.request.format->text, "root ::= \"a\"");
  EXPECT_EQ(got.request.format->field, "grammar");
  EXPECT_EQ(got.request.predict_ms_max, 500);
  EXPECT_EQ(got.request.indent_min, 4);
  EXPECT_TRUE(got.request.restore_point);
  ASSERT_TRUE(got.resume.state && got.resume.state_at_shift);
  EXPECT_EQ(got.resume.state->sampler, 1.5F);
  EXPECT_EQ(got.resume.state->mask_steps, uint64_t{1} << 40);
  EXPECT_FALSE(got.resume.state_at_shift->sampler);
  EXPECT_EQ(got.resume.state_at_shift->mask_steps, 7U);

  const auto event = DecodeToDaemon(OneFrame(Encode(ToDaemon(FullDelta()))));
  ASSERT_TRUE(event);
  const auto& delta = std::get<TextDelta>(std::get<RequestEvent>(*event).event);
  EXPECT_EQ(delta.logprobs.at(0).chosen.bytes, "\xFF");
  EXPECT_TRUE(std::isinf(delta.logprobs.at(0).top.at(1).logprob));
  ASSERT_TRUE(delta.state && delta.state_at_shift);
  EXPECT_EQ(delta.state->sampler, -0.5F);
  EXPECT_EQ(delta.state->mask_steps, 3U);
  EXPECT_EQ(delta.state_at_shift->mask_steps, uint64_t{1} << 40);
}

TEST(FrameReader, CutsAnySplitOfTheStreamIntoTheSameFrames) {
  const std::string stream = Encode(ToRunner(FullSubmit())) + Encode(ToRunner(Shutdown{})) +
                             Encode(ToRunner(Credit{RequestId{1}, 1}));
  for (const size_t step : {size_t{1}, size_t{2}, size_t{7}, size_t{16}, size_t{100}, stream.size()}) {
    FrameReader reader(Receiver::kRunner);
    std::vector<uint16_t> types;
    for (size_t at = 0; at < stream.size(); at += step) {
      reader.Append(std::string_view(stream).substr(at, step));
      for (;;) {
        auto frame = reader.Next();
        ASSERT_TRUE(frame) << frame.error().message;
        if (!*frame) break;
        types.push_back((*frame)->type);
        EXPECT_TRUE(DecodeToRunner(**frame));
      }
    }
    EXPECT_EQ(types, (std::vector<uint16_t>{3, 6, 4})) << step;
  }
}

TEST(FrameReader, AHostileHeaderEndsTheLinkForGood) {
  const std::string good = Encode(ToRunner(Shutdown{}));
  const auto broken = [&](size_t at, char byte) {
    std::string bytes = good;
    bytes[at] = byte;
    return bytes;
  };
  for (const std::string& bytes :
       {broken(0, 'X'), broken(3, 'c'), broken(4, static_cast<char>(kVersion + 1)), broken(5, 1),
        broken(12, 1), broken(15, '\x80'), broken(11, '\x7F'), broken(11, '\xFF')}) {
    FrameReader reader(Receiver::kRunner);
    reader.Append(bytes);
    EXPECT_FALSE(reader.Next());
    reader.Append(good);
    EXPECT_FALSE(reader.Next());
  }
}

TEST(FrameReader, WaitsForTheRestOfALargeFrameWithoutReservingIt) {
  std::string header = Encode(ToRunner(Shutdown{})).substr(0, kHeaderBytes);
  header[8] = header[9] = header[10] = 0;
  header[11] = '\x10';  // kFrameBytesMax, exactly the bound
  FrameReader reader(Receiver::kRunner);
  reader.Append(header);
  const auto frame = reader.Next();
  ASSERT_TRUE(frame);
  EXPECT_FALSE(*frame);
}

TEST(Ipc, AMessageOfTheOtherDirectionOrOfAnUnknownTypeIsAnError) {
  EXPECT_FALSE(DecodeToDaemon(OneFrame(Encode(ToRunner(Shutdown{})))));
  EXPECT_FALSE(DecodeToRunner(OneFrame(Encode(ToDaemon(Heartbeat{})))));
  for (const int type : {0, 8, 100, 109, 65535}) {
    EXPECT_FALSE(DecodeToRunner({static_cast<uint16_t>(type), "\x80"})) << type;
    EXPECT_FALSE(DecodeToDaemon({static_cast<uint16_t>(type), "\x80"})) << type;
  }
}

// Every value at every depth of a frame, replaced by one of another type or left out, must be refused or
// read; no replacement of a required field by a wrong type may pass.
void ReplaceEach(Json& root, Json& at, const auto& check) {
  for (auto& child : at) {
    const Json kept = child;
    for (const Json& other :
         {Json(nullptr), Json("\xFF"), Json(-1), Json(1.5), Json(int64_t{1} << 62), Json::array({0}),
          Json(std::numeric_limits<double>::quiet_NaN()), Json{{"x", 1}}}) {
      child = other;
      check(root, kept, other);
    }
    child = kept;
    if (child.is_structured()) ReplaceEach(root, child, check);
  }
}

template <class Decode>
void ExpectEveryFieldIsChecked(const std::string& frame_bytes, Decode decode) {
  const FrameReader::Frame frame = OneFrame(frame_bytes);
  auto payload = ReadMessagePack(frame.payload);
  ASSERT_TRUE(payload);
  int refused = 0;
  ReplaceEach(*payload, *payload, [&](const Json& root, const Json& kept, const Json& other) {
    std::string bytes;
    Json::to_msgpack(root, nlohmann::detail::output_adapter<char>(bytes));
    const auto decoded = decode({frame.type, bytes});
    if (!decoded) ++refused;
    const bool both_numbers = kept.is_number() && other.is_number();
    // An array and an object are containers whose elements are looked at; null is how an optional member is
    // left out.
    if (!both_numbers && kept.type() != other.type() && !other.is_null()) {
      EXPECT_FALSE(decoded) << root.dump(-1, ' ', false, Json::error_handler_t::replace);
    }
  });
  EXPECT_GT(refused, 0);
}

TEST(Ipc, EveryFieldIsTypeChecked) {
  ExpectEveryFieldIsChecked(Encode(ToRunner(FullSubmit())), DecodeToRunner);
  Submit continued{RequestId{1}, {}};
  continued.request.prompt = ContinuedPrompt{{1, 2}, {{"user", "on"}}};
  ExpectEveryFieldIsChecked(Encode(ToRunner(continued)), DecodeToRunner);
  continued.request.prompt = TokenPrompt{{1, 2}};
  ExpectEveryFieldIsChecked(Encode(ToRunner(continued)), DecodeToRunner);
  continued.request.prompt = FimPrompt{"a", "b"};
  ExpectEveryFieldIsChecked(Encode(ToRunner(continued)), DecodeToRunner);
  ExpectEveryFieldIsChecked(Encode(ToRunner(FullLoad())), DecodeToRunner);
  ExpectEveryFieldIsChecked(Encode(ToDaemon(FullDelta())), DecodeToDaemon);
  ExpectEveryFieldIsChecked(Encode(ToDaemon(FullReady())), DecodeToDaemon);
  ExpectEveryFieldIsChecked(Encode(ToDaemon(FullEngine())), DecodeToDaemon);
  ExpectEveryFieldIsChecked(Encode(ToDaemon(FullCache())), DecodeToDaemon);
  ExpectEveryFieldIsChecked(Encode(ToRunner(InspectCache{7, "a", true, 9, 1})), DecodeToRunner);
  ExpectEveryFieldIsChecked(Encode(ToDaemon(FullFinished())), DecodeToDaemon);
  ExpectEveryFieldIsChecked(Encode(ToDaemon(Loaded{{"a", 1, 1, 1, 1, 1, true}, 1})), DecodeToDaemon);
  ExpectEveryFieldIsChecked(Encode(ToDaemon(LoadFailed{{ErrorCode::kBadModel, "m", "f"}})), DecodeToDaemon);
  ExpectEveryFieldIsChecked(Encode(ToDaemon(Heartbeat{1, 1, 1, 1, 1, 1, 1, 1})), DecodeToDaemon);
}

TEST(Ipc, DescriptorsAreInRangeAndOfOneFileEach) {
  const auto refusal = [](const LoadModel& load) {
    const auto decoded = DecodeToRunner(OneFrame(Encode(ToRunner(load))));
    return decoded ? std::string() : decoded.error().message;
  };
  EXPECT_EQ(refusal({.path = "/m", .files = {{"", kFirstModelFd}, {"a", kLastModelFd}}}), "");
  // The link's own, the standard streams, numbers that no runner has.
  for (const int32_t fd : {-1, 0, 2, 3, 4, kLastModelFd + 1, std::numeric_limits<int32_t>::max()}) {
    EXPECT_THAT(refusal({.path = "/m", .files = {{"", fd}}}), HasSubstr("files[].fd")) << fd;
  }
  EXPECT_THAT(refusal({.path = "/m", .files = {{"a", 5}, {"b", 5}}}), HasSubstr("fd\" is duplicated"));
  EXPECT_THAT(refusal({.path = "/m", .files = {{"a", 5}, {"a", 6}}}), HasSubstr("name\" is duplicated"));
  EXPECT_THAT(refusal({.path = "/m", .files = {{"", 5}}, .draft_path = "/d", .draft_files = {{"", 5}}}),
              HasSubstr("draft_files[].fd"));
  EXPECT_EQ(refusal({.path = "/m", .files = {{"", 5}}, .draft_path = "/d", .draft_files = {{"", 6}}}), "");
  EXPECT_THAT(refusal({.path = "/m", .files = std::vector<ModelFile>(kModelFilesMax + 1)}),
              HasSubstr("too many elements"));
}

TEST(Ipc, EveryCutOfAPayloadIsRefused) {
  for (const auto& bytes : {Encode(ToRunner(FullSubmit())), Encode(ToRunner(Cancel{RequestId{1}}))}) {
    const FrameReader::Frame whole = OneFrame(bytes);
    for (size_t length = 0; length < whole.payload.size(); ++length) {
      EXPECT_FALSE(DecodeToRunner({whole.type, whole.payload.substr(0, length)})) << length;
    }
  }
}

TEST(Ipc, ATokenListOfOddLengthIsRefused) {
  Json payload = {
      {"id", 1},
      {"request",
       {{"prompt", {{"kind", 2}, {"context", Json::binary({'a', 'b', 'c'})}, {"messages", Json::array()}}}}}};
  std::string bytes;
  Json::to_msgpack(payload, nlohmann::detail::output_adapter<char>(bytes));
  const auto decoded = DecodeToRunner({3, bytes});
  ASSERT_FALSE(decoded);
  EXPECT_NE(decoded.error().message.find("context"), std::string::npos) << decoded.error().message;
}

}  // namespace
}  // namespace quire::api::ipc
