#include "runner/engine/encoders/encoder_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <future>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runner/engine/prompt/loaded_model.h"
#include "tests/data/test_data.h"

namespace quire::runner::engine {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string FixtureModel(const std::string& name) {
  return test_data::FixturesPath().string() + "-2/models/" + name;
}

#define QUIRE_ENCODER_OR_SKIP(variable, name)      \
  const std::string variable = FixtureModel(name); \
  if (!fs::exists(variable)) GTEST_SKIP() << variable << " is not there"

// An encoder on a thread of its own, driven as the host drives it.
class EncoderHarness {
 public:
  explicit EncoderHarness(const std::string& path, int threads = 2, std::string_view quantize = {}) {
    auto model = Load(path, [](float, std::string_view) {}, {.quantize_on_load = quantize});
    EXPECT_TRUE(model) << model.error().message;
    tokenizer_ = model->tokenizer;
    template_ = model->prompt_template;
    context_ = model->encoder->context_length();
    task_ = model->encoder->ranks() ? ModelTask::kRank : ModelTask::kEmbed;
    engine_ =
        std::make_unique<EncoderEngine>(std::move(model->encoder), threads, inbox_, stats_,
                                        [this](api::ipc::RequestEvent event) { Receive(std::move(event)); });
  }
  ~EncoderHarness() {
    inbox_.Post(Stop{});
    if (!thread_.joinable()) Start();
    thread_.join();
  }
  EncoderHarness(const EncoderHarness&) = delete;
  EncoderHarness& operator=(const EncoderHarness&) = delete;

  void Start() {
    thread_ = std::thread([this] { engine_->Run(); });
  }
  api::RequestId Submit(api::Request request) {
    const api::RequestId id{++last_};
    inbox_.Post(Arrived{id});
    const PromptContext context{.tokenizer = tokenizer_,
                                .prompt_template = *template_,
                                .turn_start_token = {},
                                .fim_tokens = {},
                                .context_length = context_,
                                .context_max = context_,
                                .task = task_};
    auto prompt = BuildPrompt(context, request);
    inbox_.Post(PromptBuilt{id, std::move(request), std::move(prompt), Clock::now(), {}});
    return id;
  }
  void Cancel(api::RequestId id) { inbox_.Post(api::ipc::Cancel{id}); }
  api::Event Wait(api::RequestId id) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::minutes(2), [&] { return ends_.contains(id); }));
    return ends_[id];
  }
  std::vector<float> Vector(api::RequestId id) {
    const api::Event event = Wait(id);
    const auto* finished = std::get_if<api::Finished>(&event);
    EXPECT_NE(finished, nullptr);
    return finished == nullptr ? std::vector<float>() : finished->embedding;
  }
  api::Error ErrorOf(api::Request request) {
    const api::Event event = Wait(Submit(std::move(request)));
    const auto* failed = std::get_if<api::Failed>(&event);
    return failed == nullptr ? api::Error() : failed->error;
  }
  // What the engine says of itself and of its caches.
  std::pair<api::ipc::EngineInspected, api::ipc::CacheInspected> Inspect() {
    std::promise<api::ipc::EngineInspected> engine;
    std::promise<api::ipc::CacheInspected> cache;
    inbox_.Post(
        EngineQuestion{{.id = 5}, [&](api::ipc::EngineInspected answer) { engine.set_value(answer); }});
    inbox_.Post(CacheQuestion{{.id = 6}, [&](api::ipc::CacheInspected answer) { cache.set_value(answer); }});
    return {engine.get_future().get(), cache.get_future().get()};
  }
  // How many ended before it; those that have not ended are behind all.
  size_t PlaceOf(api::RequestId id) {
    const std::lock_guard lock(mutex_);
    return static_cast<size_t>(std::ranges::find(order_, id) - order_.begin());
  }
  size_t count() {
    const std::lock_guard lock(mutex_);
    return order_.size();
  }

 private:
  void Receive(api::ipc::RequestEvent event) {
    {
      const std::lock_guard lock(mutex_);
      if (!std::holds_alternative<api::PromptReady>(event.event)) {
        ends_[event.id] = event.event;
        order_.push_back(event.id);
      }
    }
    changed_.notify_all();
  }

  Mailbox<Input> inbox_;
  EngineStats stats_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<api::RequestId, api::Event> ends_;
  std::vector<api::RequestId> order_;
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  std::shared_ptr<const PromptTemplate> template_;
  int32_t context_ = 0;
  ModelTask task_ = ModelTask::kEmbed;
  uint64_t last_ = 0;
  std::unique_ptr<EncoderEngine> engine_;
  std::thread thread_;
};

api::Request TextRequest(const std::string& text) {
  api::Request request;
  request.prompt = api::EmbedPrompt{.text = text};
  return request;
}

api::Request PairRequest(const std::string& query, const std::string& document) {
  api::Request request;
  request.prompt = api::EmbedPrompt{.text = query, .rank = true, .document = document};
  return request;
}

// Texts of 1 to about 90 tokens.
std::vector<std::string> MixedTexts(size_t count) {
  constexpr const char* kWords[] = {"river", "Panda", "of", "x", "capital", "species,", "1999", "World!"};
  std::vector<std::string> texts;
  uint32_t state = 1;
  for (size_t i = 0; i < count; ++i) {
    std::string text;
    const size_t words = 1 + (i * 7) % 24;
    for (size_t w = 0; w < words; ++w) {
      state = state * 1664525U + 1013904223U;
      text += std::string(w == 0 ? "" : " ") + kWords[state >> 29U];
    }
    texts.push_back(std::move(text));
  }
  return texts;
}

void ExpectSameBits(const std::string& model, std::string_view quantize) {
  const std::vector<std::string> texts = MixedTexts(256);
  EncoderHarness together(model, 2, quantize), alone(model, 1, quantize);
  std::vector<api::RequestId> ids;
  ids.reserve(texts.size());
  for (const std::string& text : texts) ids.push_back(together.Submit(TextRequest(text)));
  together.Start();
  alone.Start();
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::vector<float> vector = together.Vector(ids[i]);
    EXPECT_FALSE(vector.empty());
    if (i % 5 != 0) continue;
    EXPECT_EQ(vector, alone.Vector(alone.Submit(TextRequest(texts[i])))) << texts[i];
  }
}

TEST(EncoderEngine, AVectorIsTheSameAloneAndAmong256Texts) {
  QUIRE_ENCODER_OR_SKIP(model, "bert");
  ExpectSameBits(model, {});
  ExpectSameBits(model, "q8_0");
}

TEST(EncoderEngine, WindowsAndHeadsOfOtherFamiliesToo) {
  for (const char* family : {"modernbert", "embedding_gemma"}) {
    QUIRE_ENCODER_OR_SKIP(model, family);
    ExpectSameBits(model, {});
  }
}

// Who looks waits for an answer.
TEST(EncoderEngine, AnswersWhoLooks) {
  QUIRE_ENCODER_OR_SKIP(bert, "bert");
  EncoderHarness encoder(bert);
  encoder.Start();
  EXPECT_FALSE(encoder.Vector(encoder.Submit(TextRequest("Hello!"))).empty());
  const auto [engine, cache] = encoder.Inspect();
  EXPECT_EQ(engine.id, 5U);
  EXPECT_EQ(engine.steps, 1U);
  EXPECT_EQ(cache.id, 6U);
  EXPECT_TRUE(cache.nodes.empty());
}

TEST(EncoderEngine, RefusesWhatTheModelDoesNot) {
  QUIRE_ENCODER_OR_SKIP(embedding, "bert");
  QUIRE_ENCODER_OR_SKIP(reranker, "xlm_roberta_rerank");
  EncoderHarness embeds(embedding), ranks(reranker);
  embeds.Start();
  ranks.Start();
  api::Request chat;
  chat.prompt = api::ChatPrompt{.messages = {{.role = "user", .content = "hi"}}};
  EXPECT_THAT(embeds.ErrorOf(chat).message, HasSubstr("does not generate text"));
  EXPECT_THAT(ranks.ErrorOf(chat).message, HasSubstr("does not generate text"));
  EXPECT_THAT(embeds.ErrorOf(PairRequest("a", "b")).message, HasSubstr("does not rank"));
  EXPECT_THAT(ranks.ErrorOf(TextRequest("a")).message, HasSubstr("does not embed"));
  api::Request wide = TextRequest("a");
  std::get<api::EmbedPrompt>(wide.prompt).dimensions = 65;
  EXPECT_EQ(embeds.ErrorOf(wide).field, "dimensions");
}

TEST(EncoderEngine, CutsLongTextsOrRefusesThem) {
  QUIRE_ENCODER_OR_SKIP(model, "xlm_roberta_rerank");
  EncoderHarness ranks(model);
  ranks.Start();
  std::string document;
  for (int i = 0; i < 200; ++i) document += "panda ";
  api::Request request = PairRequest("what is a panda?", document);
  const api::Event event = ranks.Wait(ranks.Submit(request));
  const auto* finished = std::get_if<api::Finished>(&event);
  ASSERT_NE(finished, nullptr);
  EXPECT_EQ(finished->usage.prompt_tokens, 128);
  EXPECT_GT(finished->prompt_dropped, 0);
  request.overflow = api::Overflow::kRefuse;
  EXPECT_EQ(ranks.ErrorOf(request).code, api::ErrorCode::kContextLengthExceeded);
}

TEST(EncoderEngine, PartiesTakeTurnsAndCanceledTextsAreNotComputed) {
  QUIRE_ENCODER_OR_SKIP(model, "bert");
  EncoderHarness embeds(model);
  std::vector<api::RequestId> many;
  for (int i = 0; i < 2000; ++i) many.push_back(embeds.Submit(TextRequest("one of many texts")));
  const api::RequestId canceled = embeds.Submit(TextRequest("nobody waits for this"));
  embeds.Cancel(canceled);
  api::Request other = TextRequest("another client");
  other.client.party = fair::PartyNamed("another");
  const api::RequestId single = embeds.Submit(other);
  embeds.Start();
  EXPECT_FALSE(embeds.Vector(single).empty());
  EXPECT_FALSE(embeds.Vector(many.back()).empty());
  EXPECT_LE(embeds.PlaceOf(single), 1U);
  EXPECT_EQ(embeds.PlaceOf(canceled), embeds.count());
}

}  // namespace
}  // namespace quire::runner::engine
