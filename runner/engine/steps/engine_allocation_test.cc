// Decoding allocates no memory on the engine's thread: operator new counts here.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <future>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "api/ipc/messages.h"
#include "runner/engine/steps/engine.h"
#include "runner/engine/testing/engine_harness.h"

namespace {

thread_local uint64_t allocations = 0;

void* Allocate(size_t size, size_t alignment) {
  ++allocations;
  void* const memory = alignment <= alignof(std::max_align_t)
                           ? std::malloc(std::max<size_t>(size, 1))
                           : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (memory == nullptr) std::abort();
  return memory;
}

}  // namespace

void* operator new(size_t size) { return Allocate(size, 1); }
void* operator new[](size_t size) { return Allocate(size, 1); }
void* operator new(size_t size, std::align_val_t alignment) {
  return Allocate(size, static_cast<size_t>(alignment));
}
void* operator new[](size_t size, std::align_val_t alignment) {
  return Allocate(size, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace quire::runner::engine {
namespace {

constexpr int32_t kTokens = 200;  // less than a reader's first credit
const size_t kInPlace = std::string().capacity();

// The allocations of the engine for `requests` answers: after each step that gave the first of them a token,
// how much had been allocated, and whether some sequence then stood before a new page.
class Steps {
 public:
  Steps(size_t requests, int32_t page_tokens) : page_tokens_(page_tokens), positions_(requests) {
    frames_.reserve(1 << 20);
    seen_.reserve(kTokens + 1);
  }

  // Engine thread.
  void OnEvent(api::ipc::RequestEvent event) {
    const auto index = static_cast<size_t>(event.id) - 1;
    const api::ipc::ToDaemon message(std::move(event));
    const api::Event& what = std::get<api::ipc::RequestEvent>(message).event;
    if (const auto* ready = std::get_if<api::PromptReady>(&what)) {
      positions_[index] = ready->prompt_tokens;
      ++running_;
    } else if (const auto* delta = std::get_if<api::TextDelta>(&what)) {
      long_text_ = long_text_ || delta->text.size() > kInPlace;
      if (index == 0) seen_.push_back({allocations, TurnsPage(), std::exchange(long_text_, false), running_});
      positions_[index] += delta->tokens;
      api::ipc::AppendFrame(message, frames_);
      frames_.clear();
    } else {
      --running_;
      if (++ended_ == positions_.size()) done_.set_value();
    }
  }
  void Wait() { ASSERT_EQ(done_.get_future().wait_for(std::chrono::minutes(2)), std::future_status::ready); }

  // Allocations of the steps during which all answers were decoding, none began a page and no token's text
  // was longer than a string holds in place; and their number.
  std::pair<uint64_t, size_t> WithinPages() const {
    constexpr size_t kWarmUp = 4;
    uint64_t allocated = 0;
    size_t steps = 0, together = 0;
    for (size_t i = 0; i + 1 < seen_.size(); ++i) {
      together = seen_[i].running == positions_.size() ? together + 1 : 0;
      if (together <= kWarmUp || seen_[i].turns_page || seen_[i + 1].turns_page) continue;
      if (seen_[i + 1].running != positions_.size() || seen_[i + 1].long_text) continue;
      allocated += seen_[i + 1].allocations - seen_[i].allocations;
      ++steps;
    }
    return {allocated, steps};
  }

 private:
  struct Seen {
    uint64_t allocations;
    bool turns_page;
    bool long_text;  // since the one before
    size_t running;
  };

  bool TurnsPage() const {
    return std::ranges::any_of(positions_, [this](int32_t at) {
      return at % page_tokens_ == 0 || at % page_tokens_ == page_tokens_ - 1;
    });
  }

  const int32_t page_tokens_;
  std::vector<int32_t> positions_;  // [requests] tokens of the prompt and the answer so far
  std::vector<Seen> seen_;
  std::string frames_;
  bool long_text_ = false;
  size_t running_ = 0, ended_ = 0;
  std::promise<void> done_;
};

class Allocation : public testing::TestWithParam<size_t> {
 protected:
  // Allocations while this many answers were decoding together, and in how many steps.
  // `draft_tokens`: in each round that has any, profitable or not.
  static std::pair<uint64_t, size_t> Decode(size_t requests, int32_t draft_tokens);
};

std::pair<uint64_t, size_t> Allocation::Decode(size_t requests, int32_t draft_tokens) {
  auto model = Load(kDemoModel, [](float, std::string_view) {});
  EXPECT_TRUE(model);
  model->end_of_generation.clear();
  const auto tokenizer = model->tokenizer;
  const auto prompt_template = model->prompt_template;
  const auto turn_start_token = model->turn_start_token;
  const auto format = model->format;
  const int32_t context = model->model->context_length();
  Steps steps(requests, model->model->cache_layout().page_tokens);
  Mailbox<Input> inbox;
  EngineStats engine_stats;
  auto engine = Engine::Create(
      std::move(*model), {.prefill_tokens = 2048, .cache_bytes = kPlenty, .draft_tokens = draft_tokens}, 2,
      inbox, engine_stats, [&](api::ipc::RequestEvent event) { steps.OnEvent(std::move(event)); });
  EXPECT_TRUE(engine);
  for (size_t i = 0; i < requests; ++i) {
    api::Request request;
    request.prompt = api::TokenPrompt{std::vector<api::TokenId>(20, static_cast<api::TokenId>(300 + i))};
    request.params.num_predict = kTokens;
    request.params.temperature = 0.8F;
    request.params.seed = static_cast<int64_t>(i);
    request.params.draft_num_predict = draft_tokens;
    request.delta_per_token = true;
    const api::RequestId id{i + 1};
    inbox.Post(Arrived{id});
    auto prompt =
        BuildPrompt({tokenizer, *prompt_template, turn_start_token, std::nullopt, context, format}, request);
    EXPECT_TRUE(prompt) << prompt.error().message;
    inbox.Post(PromptBuilt{id, std::move(request), std::move(prompt), Clock::now()});
  }
  std::thread thread([&] { (*engine)->Run(); });
  steps.Wait();
  inbox.Post(Stop{});
  thread.join();
  return steps.WithinPages();
}

TEST_P(Allocation, DecodingAllocatesNothing) {
  const auto [allocated, counted] = Decode(GetParam(), /*draft_tokens=*/0);
  EXPECT_GT(counted, size_t{50});
  EXPECT_EQ(allocated, 0U) << "in " << counted << " steps";
}

// The memory for the drafts of a sequence grows to the largest round and stays.
TEST_P(Allocation, DraftingKeepsItsMemory) {
  const auto [allocated, counted] = Decode(GetParam(), /*draft_tokens=*/4);
  EXPECT_GT(counted, size_t{30});
  EXPECT_LE(allocated, 16 + 4 * GetParam()) << "in " << counted << " steps";
}

INSTANTIATE_TEST_SUITE_P(Sequences, Allocation, testing::Values(1, 32), testing::PrintToStringParamName());

}  // namespace
}  // namespace quire::runner::engine
