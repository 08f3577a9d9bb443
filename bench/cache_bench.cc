// The cost of forks, snapshots, restores, splits, merges, matches, appends and evictions, and how many bytes
// they copy. Argument: tokens of the sequence. `copied` is bytes per iteration, from the cache's own count;
// `bound` is one page per attention group and one slot. bench/results/cache_bench.md says how to run it and
// what came out.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <iostream>
#include <numeric>
#include <random>

#include "cache/hybrid_cache.h"
#include "cache/prefix_tree.h"
#include "cache/snapshot_store.h"

namespace quire::cache {
namespace {

constexpr int32_t kWindow = 512;

// The shape of a small hybrid model: full attention, a window and recurrent layers. Pages are reserved, not
// touched, until something is copied, so that the figures are the cache's own.
Layout HybridLayout() {
  Layout layout{.page_tokens = 32};
  layout.groups.push_back({.layers = 6, .kv_heads = 8, .head_dim = 64, .element = ElementType::kF16});
  layout.groups.push_back(
      {.layers = 2, .kv_heads = 8, .head_dim = 64, .element = ElementType::kF16, .window = kWindow});
  for (int i = 0; i < 10; ++i) layout.recurrent.push_back({.conv_tail = 2, .conv_dim = 1024});
  return layout;
}

Layout SmallLayout() {
  return {.page_tokens = 32,
          .groups = {{.layers = 1, .kv_heads = 1, .head_dim = 2, .element = ElementType::kF16}}};
}

template <class T>
T OrDie(Result<T> result) {
  if (!result) {
    std::cerr << result.error().message << "\n";
    std::exit(1);
  }
  return std::move(*result);
}

void Grow(HybridCache& cache, Sequence& sequence, int32_t tokens) {
  const Append append[] = {{&sequence, tokens}};
  OrDie(cache.Begin(append))->Commit();
}

struct World {
  explicit World(int64_t tokens, Layout layout = HybridLayout())
      : cache(OrDie(HybridCache::Create(std::move(layout), {.bytes = size_t{64} << 30}))),
        sequence(cache->NewSequence()) {
    Grow(*cache, sequence, static_cast<int32_t>(tokens));
  }
  std::unique_ptr<HybridCache> cache;
  Sequence sequence;
};

class CopyCounter {
 public:
  CopyCounter(benchmark::State& state, HybridCache& cache)
      : state_(state), cache_(cache), before_(cache.stats().bytes_copied) {}
  ~CopyCounter() {
    const auto copied = static_cast<double>(cache_.stats().bytes_copied - before_);
    state_.counters["copied"] = benchmark::Counter(copied / static_cast<double>(state_.iterations()));
  }

 private:
  benchmark::State& state_;
  HybridCache& cache_;
  uint64_t before_;
};

void Fork(benchmark::State& state) {
  World world(state.range(0));
  const CopyCounter copied(state, *world.cache);
  for (auto _ : state) benchmark::DoNotOptimize(OrDie(world.cache->Fork(world.sequence, state.range(0))));
}

void ForkInTheMiddle(benchmark::State& state) {
  World world(state.range(0));
  const CopyCounter copied(state, *world.cache);
  for (auto _ : state)
    benchmark::DoNotOptimize(OrDie(world.cache->Fork(world.sequence, state.range(0) / 2 + 7)));
}

// The first token after a fork in the middle of a page: copies one page per group and one slot.
void ForkAndWrite(benchmark::State& state) {
  World world(state.range(0) + 7);
  const CopyCounter copied(state, *world.cache);
  for (auto _ : state) {
    Sequence fork = OrDie(world.cache->Fork(world.sequence, state.range(0) + 7));
    Grow(*world.cache, fork, 1);
  }
  size_t bound = SlotBytes(world.cache->layout());
  for (size_t g = 0; g < 2; ++g) bound += PageBytes(world.cache->layout(), g);
  state.counters["bound"] = benchmark::Counter(static_cast<double>(bound));
}

void CaptureSnapshot(benchmark::State& state) {
  World world(state.range(0));
  const CopyCounter copied(state, *world.cache);
  for (auto _ : state) benchmark::DoNotOptimize(OrDie(world.cache->CaptureSnapshot(world.sequence)));
}

void RestoreSnapshot(benchmark::State& state) {
  World world(state.range(0));
  const auto snapshot = OrDie(world.cache->CaptureSnapshot(world.sequence));
  Sequence other = world.cache->NewSequence();
  const CopyCounter copied(state, *world.cache);
  for (auto _ : state) {
    benchmark::DoNotOptimize(OrDie(world.cache->Restore(other, snapshot)));
    other = world.cache->NewSequence();
  }
}

void SplitAndMerge(benchmark::State& state) {
  World world(state.range(0));
  auto snapshot = OrDie(world.cache->CaptureSnapshot(world.sequence));
  const CopyCounter copied(state, *world.cache);
  for (auto _ : state) {
    auto front = snapshot.SplitFront(state.range(0) / 2 + 7);
    snapshot.MergeFront(std::move(front));
  }
}

// The same on the edge of the prefix tree: token ids are not copied either.
void TreeSplitAndMerge(benchmark::State& state) {
  World world(state.range(0));
  std::vector<TokenId> tokens(static_cast<size_t>(state.range(0)));
  std::iota(tokens.begin(), tokens.end(), 0);
  PrefixTree tree;
  PrefixNode* leaf = tree.AddLeaf(tree.root(), tokens, state.range(0));
  for (auto _ : state) tree.MergeIntoChild(tree.Split(leaf, state.range(0) / 2 + 7));
}

// One decoded token on top of a long sequence.
void DecodeStep(benchmark::State& state) {
  World world(state.range(0));
  for (auto _ : state) Grow(*world.cache, world.sequence, 1);
}

// A branch that leaves a trunk of `range(0)` tokens near its beginning: inserting it splits the trunk's edge,
// evicting it merges the halves again.
void StoreSplitAndMerge(benchmark::State& state) {
  World world(state.range(0));
  SnapshotStore store(*world.cache, {.budget_bytes = SIZE_MAX});
  std::vector<TokenId> tokens(static_cast<size_t>(state.range(0)));
  std::iota(tokens.begin(), tokens.end(), 0);
  const Lease trunk = OrDie(store.Insert("", tokens, OrDie(world.cache->CaptureSnapshot(world.sequence))));
  tokens.resize(200);
  tokens[103] = -1;
  Sequence branch = world.cache->NewSequence();
  Grow(*world.cache, branch, 200);
  const CopyCounter copied(state, *world.cache);
  for (auto _ : state) {
    OrDie(store.Insert("", tokens, OrDie(world.cache->CaptureSnapshot(branch))));
    if (store.stats().nodes != 3) state.SkipWithError("no split");
    store.Clear();
    if (store.stats().nodes != 1) state.SkipWithError("no merge");
  }
}

void Lengths(benchmark::internal::Benchmark* benchmark) {
  for (const int64_t tokens : {512, 2048, 8192, 32768, 131072}) benchmark->Arg(tokens);
}

BENCHMARK(Fork)->Apply(Lengths);
BENCHMARK(ForkInTheMiddle)->Apply(Lengths);
BENCHMARK(ForkAndWrite)->Apply(Lengths);
BENCHMARK(CaptureSnapshot)->Apply(Lengths);
BENCHMARK(RestoreSnapshot)->Apply(Lengths);
BENCHMARK(SplitAndMerge)->Apply(Lengths);
BENCHMARK(TreeSplitAndMerge)->Apply(Lengths);
BENCHMARK(StoreSplitAndMerge)->Apply(Lengths);
BENCHMARK(DecodeStep)->Apply(Lengths)->Iterations(20000);

// Argument: pages. Items are pages: the time per item must not grow with their number.
void AppendPages(benchmark::State& state) {
  World world(1, SmallLayout());
  for (auto _ : state) {
    Sequence sequence = world.cache->NewSequence();
    for (int64_t page = 0; page < state.range(0); ++page) Grow(*world.cache, sequence, 32);
    state.PauseTiming();
    sequence = Sequence();
    state.ResumeTiming();
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

// Argument: leaves of 16 pages each in the store; all are evicted. Items are pages.
void EvictPages(benchmark::State& state) {
  constexpr int32_t kTokens = 512;
  World world(1, SmallLayout());
  SnapshotStore store(*world.cache, {.budget_bytes = SIZE_MAX});
  for (auto _ : state) {
    state.PauseTiming();
    for (TokenId leaf = 0; leaf < state.range(0); ++leaf) {
      std::vector<TokenId> tokens(kTokens, 1);
      tokens[0] = leaf;
      Sequence sequence = world.cache->NewSequence();
      Grow(*world.cache, sequence, kTokens);
      (void)store.Insert("", tokens, OrDie(world.cache->CaptureSnapshot(sequence)));
    }
    state.ResumeTiming();
    store.Clear();
  }
  state.SetItemsProcessed(state.iterations() * state.range(0) * kTokens / 32);
}

BENCHMARK(AppendPages)->RangeMultiplier(4)->Range(64, 16384);
BENCHMARK(EvictPages)->RangeMultiplier(4)->Range(16, 4096)->Unit(benchmark::kMicrosecond);

// A store of many nodes around one trunk of 32k tokens, with a restore point every `range(0)` tokens of it.
void MatchAgainstManyNodes(benchmark::State& state) {
  constexpr int64_t kTrunk = 32768;
  constexpr size_t kNodes = 100000;
  World world(1, SmallLayout());
  SnapshotStore store(*world.cache, {.budget_bytes = SIZE_MAX});
  std::mt19937 random(1);
  std::vector<TokenId> trunk(kTrunk);
  for (TokenId& token : trunk) token = static_cast<TokenId>(random() % 65536);
  Sequence sequence = world.cache->NewSequence();
  Grow(*world.cache, sequence, kTrunk);
  const int64_t every = state.range(0);
  const auto insert = [&](const Sequence& from, std::span<const TokenId> tokens) {
    (void)store.Insert("", tokens, OrDie(world.cache->CaptureSnapshot(from)));
  };
  for (int64_t at = every; at <= kTrunk; at += every) {
    insert(OrDie(world.cache->Fork(sequence, at)), std::span(trunk).first(static_cast<size_t>(at)));
  }
  // Branches leave the trunk anywhere, and elsewhere begin with other tokens.
  while (store.stats().nodes < kNodes) {
    const int64_t at =
        static_cast<int64_t>(random() % 2) * static_cast<int64_t>(random() % (kTrunk / every)) * every;
    Sequence branch = OrDie(world.cache->Fork(sequence, at));
    std::vector<TokenId> tokens(trunk.begin(), trunk.begin() + at);
    for (int i = 0; i < 8; ++i) tokens.push_back(static_cast<TokenId>(65536 + random() % 100000));
    Grow(*world.cache, branch, 8);
    insert(branch, tokens);
  }
  for (auto _ : state) {
    const Probed probed = store.Probe("", trunk);
    if (probed.matched != kTrunk || probed.restorable != kTrunk - 1) state.SkipWithError("wrong match");
  }
  state.counters["nodes"] = benchmark::Counter(static_cast<double>(store.stats().nodes));
}

BENCHMARK(MatchAgainstManyNodes)->Arg(2048)->Arg(256)->Arg(32)->Arg(8)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace quire::cache

BENCHMARK_MAIN();
