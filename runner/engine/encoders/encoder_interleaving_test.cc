// Texts of an encoder give way to each other, and no number of any changes by that.
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runner/engine/encoders/encoder_engine.h"
#include "runner/models/testing/random_encoders.h"

namespace quire::runner::engine {
namespace {

constexpr int32_t kInterleavedContext = 2048;

// A turn is one slice of at most 64 rows, and takes a millisecond.
EncoderLimits OneSliceATurn() {
  return {.slice = {.time = std::chrono::milliseconds(100), .rows_min = 64, .rows_max = 64},
          .turn = {},
          .clock = [now = Clock::time_point()]() mutable { return now += std::chrono::milliseconds(1); }};
}

class Interleaving {
 public:
  explicit Interleaving(const std::shared_ptr<const weights::ModelFiles>& files, EncoderLimits limits = {},
                        int threads = 2) {
    auto encoder = models::LoadEncoder(files);
    EXPECT_TRUE(encoder) << encoder.error().message;
    engine_ = std::make_unique<EncoderEngine>(
        *std::move(encoder), threads, inbox_, stats_,
        [this](api::ipc::RequestEvent event) { Receive(std::move(event)); }, std::move(limits));
  }
  ~Interleaving() {
    inbox_.Post(Stop{});
    if (!thread_.joinable()) Start();
    thread_.join();
  }
  Interleaving(const Interleaving&) = delete;
  Interleaving& operator=(const Interleaving&) = delete;

  void Start() {
    thread_ = std::thread([this] { engine_->Run(); });
  }
  // Before Start(): in this order.
  api::RequestId Submit(std::vector<api::TokenId> tokens, const std::string& address,
                        const std::string& exchange) {
    const api::RequestId id{++last_};
    inbox_.Post(Arrived{id});
    api::Request request;
    request.prompt = api::EmbedPrompt{};
    request.client.party = fair::PartyNamed(address);
    request.client.exchange = exchange;
    inbox_.Post(
        PromptBuilt{id, std::move(request), BuiltPrompt{.tokens = std::move(tokens)}, Clock::now(), {}});
    return id;
  }
  // On the engine's thread, when one has ended.
  void CancelAfter(api::RequestId ended, api::RequestId canceled) { cancels_[ended] = canceled; }
  std::vector<float> Vector(api::RequestId id) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::minutes(2), [&] { return vectors_.contains(id); }));
    return vectors_[id];
  }
  std::vector<api::RequestId> order() {
    const std::lock_guard lock(mutex_);
    return order_;
  }
  int32_t running() const { return running_; }

 private:
  void Receive(api::ipc::RequestEvent event) {
    const auto* finished = std::get_if<api::Finished>(&event.event);
    if (finished == nullptr) return;
    if (const auto found = cancels_.find(event.id); found != cancels_.end()) {
      inbox_.Post(api::ipc::Cancel{found->second});
    }
    {
      const std::lock_guard lock(mutex_);
      vectors_[event.id] = finished->embedding;
      order_.push_back(event.id);
      running_ = stats_.running;
    }
    changed_.notify_all();
  }

  Mailbox<Input> inbox_;
  EngineStats stats_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<api::RequestId, std::vector<float>> vectors_;
  std::vector<api::RequestId> order_;
  std::map<api::RequestId, api::RequestId> cancels_;  // the engine thread's, once it runs
  int32_t running_ = 0;                               // as the engine said before the last end
  uint64_t last_ = 0;
  std::unique_ptr<EncoderEngine> engine_;
  std::thread thread_;
};

TEST(EncoderInterleaving, AShortTextThatCameLaterEndsFirst) {
  for (const std::string address : {"another", "the same"}) {
    Interleaving texts(models::test::MakeLongBert(kInterleavedContext), OneSliceATurn());
    const auto longest = texts.Submit(models::test::RandomTokens(kInterleavedContext, 1), "the same", "1");
    std::vector<api::RequestId> order;
    for (uint32_t i = 0; i < 5; ++i) {
      order.push_back(texts.Submit(models::test::RandomTokens(10 + i, 5), address, "2." + std::to_string(i)));
    }
    order.push_back(longest);
    texts.Start();
    texts.Vector(longest);
    EXPECT_EQ(texts.order(), order) << address;
  }
}

TEST(EncoderInterleaving, NoNumberChanges) {
  // Loading an encoder gives the memory of its files back.
  for (const auto make : {models::test::MakeLongBert, models::test::MakeLongModernBert}) {
    Interleaving together(make(kInterleavedContext), OneSliceATurn()),
        alone(make(kInterleavedContext), {}, 1);
    std::vector<std::pair<api::RequestId, std::vector<api::TokenId>>> texts;
    for (uint32_t i = 0; i < 60; ++i) {
      const size_t rows = i % 20 == 0 ? kInterleavedContext - i : i % 7 == 0 ? 513 + i : 1 + i * 5;
      std::vector<api::TokenId> tokens = models::test::RandomTokens(rows, i);
      const auto id = together.Submit(tokens, std::to_string(i % 3), std::to_string(i % 8));
      texts.emplace_back(id, std::move(tokens));
    }
    together.Start();
    alone.Start();
    for (auto& [id, tokens] : texts) {
      const size_t rows = tokens.size();
      const std::vector<float> vector = together.Vector(id);
      EXPECT_EQ(vector.size(), 64U);
      EXPECT_EQ(vector, alone.Vector(alone.Submit(std::move(tokens), "a", "b"))) << rows << " tokens";
    }
  }
}

TEST(EncoderInterleaving, ATextThatIsCanceledInTheMiddleLeaves) {
  Interleaving texts(models::test::MakeLongBert(kInterleavedContext), OneSliceATurn());
  const auto longest = texts.Submit(models::test::RandomTokens(kInterleavedContext, 1), "a", "1");
  const auto first = texts.Submit(models::test::RandomTokens(10, 2), "b", "2");
  texts.CancelAfter(first, longest);
  texts.Start();
  texts.Vector(first);
  EXPECT_EQ(texts.running(), 2);  // the long one has begun
  const auto second = texts.Submit(models::test::RandomTokens(10, 3), "b", "3");
  texts.Vector(second);
  EXPECT_EQ(texts.running(), 1);
  EXPECT_EQ(texts.order(), (std::vector{first, second}));
}

TEST(EncoderInterleaving, TheEstimateHasWhatTextsInProgressTake) {
  for (const int32_t context : {512, 8192}) {
    const auto encoder = models::LoadEncoder(models::test::MakeLongBert(context));
    ASSERT_TRUE(encoder) << encoder.error().message;
    const auto estimate = EstimateEncoder(**encoder, 1000);
    EXPECT_EQ(estimate.scratch_bytes, 1000 + (*encoder)->scratch_bytes(512) +
                                          (*encoder)->pass_bytes(EncoderTurns::RowsMax(context) + 512));
  }
}

}  // namespace
}  // namespace quire::runner::engine
