// Memory of a chat and its branches in the prefix cache, for the layouts of published hybrid models: no
// weights, no tensor math. A chat of 10,000 tokens is answered, then 16 branches end it with messages of
// their own, one after the other, as the engine does it: snapshots where PrefixReuse takes them, restored at
// the deepest point.
//
// An argument, bf16 or q8_0, is the type of states in the cache (quired --state-cache-type).
//
// Pages and slots are counted, and weighed with the real layout; the cache itself has a small one.
#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cache/hybrid_cache.h"
#include "cache/layout.h"
#include "cache/snapshot_store.h"
#include "runner/engine/steps/prefix_reuse.h"

namespace quire::bench {
namespace {

constexpr int32_t kChat = 10'000, kMessage = 250, kBranches = 16, kTurn = 300, kChunk = 500;

struct Shape {
  std::string name;
  int32_t attention_layers, kv_heads, head_dim;  // KV in F16
  int32_t recurrent_layers, conv_tail, conv_dim, heads, rows, columns;
  int32_t latent = 0;
};

// config.json of the smallest published model of each family.
const std::vector<Shape> kShapes = {
    {"LFM2-350M", 6, 8, 64, 10, 2, 1024, 0, 0, 0},
    {"Qwen3.5-0.8B", 6, 2, 256, 18, 3, 6144, 16, 128, 128},
    {"Granite 4.0-H-350M", 4, 4, 64, 28, 3, 1792, 48, 128, 32},
    {"Falcon-H1-0.5B", 36, 2, 64, 36, 3, 1792, 24, 128, 64},
    {"Nemotron-H-4B", 4, 8, 128, 21, 3, 9216, 112, 128, 64},
    {"Zamba2-1.2B", 6, 32, 128, 38, 3, 4224, 64, 64, 64},
    {"Bamba-9B", 3, 8, 128, 29, 3, 8448, 128, 128, 64},
    {"Jamba-Reasoning-3B", 2, 1, 128, 26, 3, 5120, 1, 16, 5120},
    {"Mamba-2-130M", 0, 0, 0, 24, 3, 1792, 24, 128, 64},
    {"PLaMo-2-1B", 8, 1, 128, 8, 3, 4096, 32, 64, 128},
    {"RWKV-7-0.1B", 0, 0, 0, 12, 1, 1536, 12, 64, 64},
    {"OLMo-Hybrid-7B", 8, 30, 128, 24, 3, 15360, 30, 256, 128},
    {"Kimi-Linear-48B-A3B", 7, 1, 576, 20, 3, 12288, 32, 128, 128, 512},
    {"MiniMax-Text-01", 10, 8, 128, 70, 0, 0, 64, 128, 128},
};

cache::Layout LayoutOf(const Shape& shape, cache::ElementType state_type) {
  cache::Layout layout;
  layout.stored_state = state_type;
  if (shape.attention_layers > 0) {
    layout.groups.push_back({.layers = shape.attention_layers,
                             .kv_heads = shape.kv_heads,
                             .head_dim = shape.head_dim,
                             .element = cache::ElementType::kF16,
                             .latent = shape.latent});
  }
  for (int32_t i = 0; i < shape.recurrent_layers; ++i) {
    layout.recurrent.push_back({.conv_tail = shape.conv_tail,
                                .conv_dim = shape.conv_dim,
                                .delta_heads = shape.heads,
                                .delta_value_dim = shape.rows,
                                .delta_key_dim = shape.columns});
  }
  return layout;
}

// The same pools with blocks of a few bytes.
cache::Layout Small(const cache::Layout& real) {
  cache::Layout layout;
  if (!real.groups.empty()) layout.groups.push_back({.layers = 1, .kv_heads = 1, .head_dim = 2});
  layout.recurrent.push_back({.conv_tail = 1, .conv_dim = 1});
  return layout;
}

[[noreturn]] void Fail(const std::string& message) {
  fmt::print(stderr, "branch_memory: {}\n", message);
  std::exit(1);
}

class Simulation {
 public:
  explicit Simulation(const cache::Layout& real)
      : real_(real), interval_(runner::engine::SnapshotInterval(real)) {
    auto made = cache::HybridCache::Create(Small(real), {.bytes = 64 << 20});
    if (!made) Fail(made.error().message);
    cache_ = *std::move(made);
    store_ = std::make_unique<cache::SnapshotStore>(*cache_, cache::StoreOptions{.budget_bytes = 64 << 20});
  }

  // Answers `tokens`, with messages that end at `boundaries`; the tokens that were computed.
  int32_t Answer(const std::vector<cache::TokenId>& tokens, const std::vector<int32_t>& boundaries) {
    cache::Sequence sequence = cache_->NewSequence();
    const auto size = static_cast<int32_t>(tokens.size());
    const auto diverged = static_cast<int32_t>(store_->Probe("", tokens).matched);
    const cache::Restored restored = store_->Restore("", tokens, sequence);
    const auto reused = static_cast<int32_t>(restored.restored);
    for (const int32_t at : runner::engine::SnapshotOffsets(boundaries, reused, diverged, size, interval_)) {
      if (!cache_->ScheduleCapture(sequence, at)) Fail("a capture was refused");
    }
    for (int32_t at = reused; at < size; at += kChunk) {
      const cache::Append append{.sequence = &sequence, .tokens = std::min(kChunk, size - at)};
      auto step = cache_->Begin({&append, 1});
      if (!step) Fail(step.error().message);
      (*step)->Commit();
    }
    const auto keep = [&](cache::Snapshot snapshot) {
      const auto to = static_cast<size_t>(snapshot.to());
      if (!store_->Insert("", std::span(tokens).first(to), std::move(snapshot)))
        Fail("a snapshot was refused");
    };
    for (cache::Snapshot& snapshot : cache_->TakeCaptures(sequence)) keep(std::move(snapshot));
    if (auto last = cache_->CaptureSnapshot(sequence)) keep(std::move(*last));
    return size - reused;
  }

  size_t slots() const { return store_->stats().slot_bytes / cache::SlotBytes(cache_->layout()); }
  double KvMegabytes() const {
    if (real_.groups.empty()) return 0;
    const size_t pages = store_->stats().full_bytes / cache::PageBytes(cache_->layout(), 0);
    return static_cast<double>(pages) * static_cast<double>(cache::PageBytes(real_, 0)) / 1e6;
  }
  int32_t interval() const { return interval_; }

 private:
  const cache::Layout real_;
  const int32_t interval_;
  std::unique_ptr<cache::HybridCache> cache_;
  std::unique_ptr<cache::SnapshotStore> store_;
};

void Report(const Shape& shape, cache::ElementType state_type) {
  const cache::Layout layout = LayoutOf(shape, state_type);
  Simulation simulation(layout);
  std::vector<cache::TokenId> chat(kChat);
  std::vector<int32_t> boundaries;
  for (int32_t i = 0; i < kChat; ++i) chat[static_cast<size_t>(i)] = i;
  for (int32_t at = kMessage; at < kChat; at += kMessage) boundaries.push_back(at);
  simulation.Answer(chat, boundaries);
  const double first_kv = simulation.KvMegabytes();
  const size_t first_slots = simulation.slots();
  boundaries.push_back(kChat);
  int32_t computed = 0;
  for (int32_t branch = 0; branch < kBranches; ++branch) {
    std::vector<cache::TokenId> tokens = chat;
    for (int32_t i = 0; i < kTurn; ++i) tokens.push_back(100'000 + branch * kTurn + i);
    computed += simulation.Answer(tokens, boundaries);
  }
  const double state = static_cast<double>(cache::StoredSlotBytes(layout)) / 1e6;
  const double slots = static_cast<double>(simulation.slots());
  fmt::print("| {} | {:.1f} | {} | {} | {:.0f} | {:.0f} | {} | {:.0f} | {:.0f} | {:.2f} |\n", shape.name,
             state, simulation.interval(), first_slots, first_kv, static_cast<double>(first_slots) * state,
             simulation.slots(), simulation.KvMegabytes(), slots * state,
             static_cast<double>(computed) / (kBranches * kTurn));
}

cache::ElementType TypeOf(std::string_view name) {
  if (name == "f32") return cache::ElementType::kF32;
  if (name == "bf16") return cache::ElementType::kBF16;
  if (name == "q8_0") return cache::ElementType::kQ8_0;
  Fail(fmt::format("no type of states: {}", name));
}

int Main(std::string_view state_type) {
  fmt::print("{} tokens in messages of {}, then {} branches of {} tokens; MB\n\n", kChat, kMessage, kBranches,
             kTurn);
  fmt::print(
      "| model | state | interval | chat: states | KV | states | with branches: states | KV | states | "
      "computed / new tokens |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
  for (const Shape& shape : kShapes) Report(shape, TypeOf(state_type));
  return 0;
}

}  // namespace
}  // namespace quire::bench

int main(int count, char** arguments) { return quire::bench::Main(count > 1 ? arguments[1] : "f32"); }
