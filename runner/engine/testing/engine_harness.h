// An engine driven as the host drives it, without processes, for tests.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runner/constraint/output_format.h"
#include "runner/engine/steps/engine.h"

namespace quire::runner::engine {

inline constexpr const char* kDemoModel = "packaging/models/quire-demo-F16.gguf";
inline constexpr size_t kPlenty = size_t{256} << 20;

// A new folder: cases run at once, each in a process of its own, and must not meet in one.
inline std::filesystem::path OwnFolder() {
  std::string name = testing::TempDir() + "quire-engine-XXXXXX";
  EXPECT_NE(nullptr, ::mkdtemp(name.data()));
  return name;
}

struct Outcome {
  std::vector<api::TextDelta> deltas;
  std::vector<int32_t> progress;  // computed tokens of the prompt, as reported
  std::optional<api::PromptReady> ready;
  std::optional<api::Finished> finished;
  std::optional<api::Failed> failed;

  bool ended() const { return finished || failed; }
  std::string text() const {
    std::string joined;
    for (const auto& delta : deltas) joined += delta.text;
    return joined;
  }
  std::vector<api::TokenLogprob> prompt() const {
    std::vector<api::TokenLogprob> tokens;
    for (const auto& delta : deltas) tokens.insert(tokens.end(), delta.prompt.begin(), delta.prompt.end());
    return tokens;
  }
  std::vector<float> logprobs() const {
    std::vector<float> values;
    for (const auto& delta : deltas) {
      for (const auto& token : delta.logprobs) values.push_back(token.chosen.logprob);
    }
    return values;
  }
};

struct EngineHarnessSetup {
  std::string model = kDemoModel;
  EngineLimits limits = {.cache_bytes = kPlenty};
  int32_t threads = 2;
  bool model_stops = true;  // false: no token ends an answer
  api::KvType kv_cache_type = api::kDefaultKvType;
  std::string draft = {};                                         // a draft model
  std::function<std::unique_ptr<draft::Drafter>()> drafter = {};  // or makes the drafter instead
  bool starts = true;  // false: requests wait for Start(), so that all are there at the first step
  std::function<std::unique_ptr<TierLink>(const cache::Layout&)> tier = {};  // where prefixes go, too
  int64_t panel_bytes_max = weights::kNoPanelLimit;
  std::function<std::unique_ptr<models::VisionTower>(int32_t hidden_size)> tower = {};
};

// An engine on a thread of its own; the test's thread submits and waits.
class EngineHarness {
 public:
  explicit EngineHarness(EngineHarnessSetup setup = {}) {
    auto model = Load(setup.model, [](float, std::string_view) {},
                      {.kv_cache_type = setup.kv_cache_type,
                       .draft = setup.draft,
                       .panel_bytes_max = setup.panel_bytes_max});
    EXPECT_TRUE(model.has_value()) << model.error().message;
    if (!setup.model_stops) model->end_of_generation.clear();
    tokenizer_ = model->tokenizer;
    template_ = model->prompt_template;
    turn_start_token_ = model->turn_start_token;
    sentence_ = model->sentence;
    format_ = model->format;
    context_length_ = model->model->context_length();
    layout_ = model->model->cache_layout();
    layout_.stored_state = setup.limits.state_cache_type;
    if (setup.drafter) model->drafter = setup.drafter();
    if (setup.tower) model->tower = setup.tower(model->model->hidden_size());
    constraints_ = std::make_unique<constraint::ConstraintCache>(
        [this, ends = model->end_of_generation] { return IndexVocabulary(*tokenizer_, ends); }, kPlenty);
    auto engine = Engine::Create(std::move(*model), setup.limits, setup.threads, inbox_, engine_stats_,
                                 [this](api::ipc::RequestEvent event) { Receive(std::move(event)); });
    EXPECT_TRUE(engine.has_value());
    engine_ = std::move(*engine);
    if (setup.tier) engine_->AddTier(setup.tier(layout_));
    if (setup.starts) Start();
  }
  ~EngineHarness() { Stopped(); }

  void Start() {
    thread_ = std::thread([this] { engine_->Run(); });
  }

  // A cache of this many bytes holds one sequence of this many tokens.
  size_t SequenceBytesOf(int64_t tokens) const {
    return SequenceBytes(layout_, tokens, StepTarget().tokens_max);
  }

  int32_t context_max() const { return engine_->context_max(); }

  // Ends the engine; what it holds can then be looked at.
  const Engine& Stopped() {
    if (thread_.joinable()) {
      inbox_.Post(Stop{});
      thread_.join();
    }
    return *engine_;
  }

  // Ends the engine, and stores what its tier has not got yet.
  void Flush() {
    Stopped();
    engine_->FlushTier(std::chrono::minutes(2));
  }

  // `early_credit` comes before the prompt is built.
  api::RequestId Submit(api::Request request, api::ipc::Resume resume = {}, int32_t early_credit = 0) {
    auto prompt = Build(request);
    return SubmitBuilt(std::move(request), std::move(prompt), std::move(resume), early_credit);
  }
  api::Result<BuiltPrompt> Build(const api::Request& request) {
    PromptContext context{tokenizer_,      *template_, turn_start_token_, FindFimTokens(*tokenizer_),
                          context_length_, format_,    constraints_.get()};
    context.sentence = sentence_.get();
    return BuildPrompt(context, request);
  }
  api::RequestId SubmitBuilt(api::Request request, api::Result<BuiltPrompt> prompt,
                             api::ipc::Resume resume = {}, int32_t early_credit = 0) {
    const api::RequestId id{++last_id_};
    inbox_.Post(Arrived{id});
    if (early_credit > 0) inbox_.Post(api::ipc::Credit{id, early_credit});
    inbox_.Post(PromptBuilt{id, std::move(request), std::move(prompt), Clock::now(), std::move(resume)});
    return id;
  }
  const EngineStats& engine_stats() const { return engine_stats_; }
  void Post(Input input) { inbox_.Post(std::move(input)); }

  Outcome Wait(api::RequestId id) {
    return WaitUntil(id, [](const Outcome& outcome) { return outcome.ended(); });
  }
  template <class Condition>
  Outcome WaitUntil(api::RequestId id, Condition condition) {
    std::unique_lock lock(mutex_);
    const bool met =
        changed_.wait_for(lock, std::chrono::minutes(2), [&] { return condition(outcomes_[id]); });
    EXPECT_TRUE(met) << "no more events";
    return outcomes_[id];
  }
  Outcome Now(api::RequestId id) {
    return WaitUntil(id, [](const Outcome&) { return true; });
  }
  // Who has ended, in order.
  std::vector<api::RequestId> Ended() {
    const std::lock_guard lock(mutex_);
    return ended_;
  }
  Outcome Generate(api::Request request) { return Wait(Submit(std::move(request))); }

 private:
  void Receive(api::ipc::RequestEvent event) {
    {
      std::lock_guard lock(mutex_);
      Outcome& outcome = outcomes_[event.id];
      EXPECT_FALSE(outcome.ended()) << "an event after the end";
      if (auto* ready = std::get_if<api::PromptReady>(&event.event)) outcome.ready = *ready;
      if (auto* delta = std::get_if<api::TextDelta>(&event.event)) outcome.deltas.push_back(*delta);
      if (auto* progress = std::get_if<api::PrefillProgress>(&event.event)) {
        outcome.progress.push_back(progress->computed_tokens);
      }
      if (auto* finished = std::get_if<api::Finished>(&event.event)) outcome.finished = *finished;
      if (auto* failed = std::get_if<api::Failed>(&event.event)) outcome.failed = *failed;
      if (outcome.ended()) ended_.push_back(event.id);
    }
    changed_.notify_all();
  }

  Mailbox<Input> inbox_;
  EngineStats engine_stats_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<api::RequestId, Outcome> outcomes_;
  std::vector<api::RequestId> ended_;
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  std::shared_ptr<const PromptTemplate> template_;
  std::shared_ptr<const SentenceSettings> sentence_;
  std::unique_ptr<constraint::ConstraintCache> constraints_;
  std::optional<api::TokenId> turn_start_token_;
  int32_t context_length_ = 0;
  output::Format format_;
  cache::Layout layout_;
  uint64_t last_id_ = 0;
  std::unique_ptr<Engine> engine_;
  std::thread thread_;
};

inline api::Request Greedy(std::string question, int32_t num_predict = 40) {
  api::Request request;
  request.prompt = api::ChatPrompt{.messages = {{.role = "user", .content = std::move(question)}}};
  request.params.temperature = 0;
  request.params.num_predict = num_predict;
  return request;
}

inline api::Request Logged(api::Request request) {
  request.logprobs = true;
  return request;
}

}  // namespace quire::runner::engine
