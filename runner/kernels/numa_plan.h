// How the threads and the weights of this process lie on the NUMA nodes of the machine.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

namespace quire::runner {

struct NumaNode {
  std::vector<std::vector<int>> cores;  // the processors of each physical core
};

struct NumaPlan {
  // Nodes that compute with this number of threads, of which the others need no weights.
  NumaPlan ForThreads(int threads) const;

  std::vector<NumaNode>
      nodes;  // those that this process may compute on; with fewer than two nothing is spread
  bool replicates_weights = false;  // every node has weights of its own

  bool spreads() const { return nodes.size() > 1; }
  // Copies of every panel, one per node.
  size_t weight_copies() const { return spreads() && replicates_weights ? nodes.size() : 1; }
};

// Where a thread of a pool runs.
struct ThreadPlace {
  size_t node = 0;
  std::vector<int> processors;  // none: wherever the kernel wants

  bool operator==(const ThreadPlace&) const = default;
};

// Places of `threads` threads, those of a node side by side: shared out in proportion to the nodes' cores. A
// thread has a core for itself where the pool has a thread for every core of the node, and else all
// processors of the node, so that pools of several processes do not meet on the same cores.
std::vector<ThreadPlace> PlanThreads(const NumaPlan& plan, int threads);

// The plan of pools and weights of this process. Set it once, before the first of them and before threads
// read it; before, there is one node.
void SetNumaPlan(NumaPlan plan);
const NumaPlan& CurrentNumaPlan();

// The threads of a step, and of loading. Set it after the plan and before the first pool, the first weights
// and what tells their memory: where weights are replicated, nodes without a thread leave the plan. Before:
// one per processor of the machine.
void SetComputeThreads(int threads);
int ComputeThreads();

// The node, an index of NumaPlan::nodes, whose memory this thread is to read. Zero outside of pools.
size_t NodeOfThisThread();
void SetNodeOfThisThread(size_t node);

// Lets this thread run on these processors only; none: does nothing. Whether the kernel agreed.
bool PinThisThread(std::span<const int> processors);

// While it lives, this thread runs on these processors; none: where it did.
class PinnedScope {
 public:
  explicit PinnedScope(std::span<const int> processors);
  ~PinnedScope();
  PinnedScope(const PinnedScope&) = delete;
  PinnedScope& operator=(const PinnedScope&) = delete;

 private:
  static constexpr size_t kProcessorsMax = 8192;  // of any kernel today
  std::array<unsigned long, kProcessorsMax / (8 * sizeof(unsigned long))> before_{};
  long before_bytes_ = 0;  // of the mask; none: nothing to go back to
};

}  // namespace quire::runner
