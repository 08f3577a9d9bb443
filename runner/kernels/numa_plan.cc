#include "runner/kernels/numa_plan.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>

namespace quire::runner {
namespace {

NumaPlan& Plan() {
  static NumaPlan plan;
  return plan;
}

int compute_threads = 0;  // 0: not set

thread_local size_t node_of_this_thread = 0;

std::vector<int> ProcessorsOf(const NumaNode& node) {
  std::vector<int> all;
  for (const std::vector<int>& core : node.cores) all.insert(all.end(), core.begin(), core.end());
  return all;
}

}  // namespace

std::vector<ThreadPlace> PlanThreads(const NumaPlan& plan, int threads) {
  const auto count = static_cast<size_t>(std::max(threads, 1));
  std::vector<ThreadPlace> places(count);
  if (!plan.spreads()) return places;
  size_t cores = 0;
  for (const NumaNode& node : plan.nodes) cores += std::max<size_t>(node.cores.size(), 1);
  size_t before = 0, next = 0;  // cores of the nodes so far; threads with a place
  for (size_t n = 0; n < plan.nodes.size(); ++n) {
    const NumaNode& node = plan.nodes[n];
    before += std::max<size_t>(node.cores.size(), 1);
    // Rounded up: what is left over begins with the first node, where the caller of a pool is.
    const size_t end = (before * count + cores - 1) / cores, mine = end - next;
    const bool has_all_cores = !node.cores.empty() && mine >= node.cores.size();
    for (size_t i = 0; i < mine; ++i, ++next) {
      places[next] = {n, has_all_cores ? node.cores[i % node.cores.size()] : ProcessorsOf(node)};
    }
  }
  return places;
}

NumaPlan NumaPlan::ForThreads(int threads) const {
  NumaPlan plan{.nodes = {}, .replicates_weights = replicates_weights};
  std::vector<bool> computes(nodes.size(), false);
  for (const ThreadPlace& place : PlanThreads(*this, threads)) {
    if (place.node < computes.size()) computes[place.node] = true;
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (computes[i]) plan.nodes.push_back(nodes[i]);
  }
  return plan;
}

void SetNumaPlan(NumaPlan plan) { Plan() = std::move(plan); }

const NumaPlan& CurrentNumaPlan() { return Plan(); }

void SetComputeThreads(int threads) {
  compute_threads = threads;
  if (Plan().replicates_weights) Plan() = Plan().ForThreads(threads);
}

int ComputeThreads() {
  if (compute_threads > 0) return compute_threads;
  return std::max(static_cast<int>(std::thread::hardware_concurrency()), 1);
}

size_t NodeOfThisThread() { return node_of_this_thread; }

void SetNodeOfThisThread(size_t node) { node_of_this_thread = node; }

bool PinThisThread(std::span<const int> processors) {
  if (processors.empty()) return true;
  const auto size = static_cast<size_t>(*std::ranges::max_element(processors)) + 1;
  const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(size),
                                                             [](cpu_set_t* it) { CPU_FREE(it); });
  const size_t bytes = CPU_ALLOC_SIZE(size);
  CPU_ZERO_S(bytes, set.get());
  for (const int processor : processors) CPU_SET_S(static_cast<size_t>(processor), bytes, set.get());
  return ::sched_setaffinity(0, bytes, set.get()) == 0;
}

PinnedScope::PinnedScope(std::span<const int> processors) {
  if (processors.empty()) return;
  before_bytes_ = ::syscall(SYS_sched_getaffinity, 0, sizeof(before_), before_.data());
  if (before_bytes_ > 0) PinThisThread(processors);
}

PinnedScope::~PinnedScope() {
  if (before_bytes_ > 0) ::syscall(SYS_sched_setaffinity, 0, before_bytes_, before_.data());
}

}  // namespace quire::runner
