// Which node of a fleet a request goes to: the one that is predicted to give the first token first. Pure: no sockets, no
// clock of its own. One thread.
//
// A node's time to first token is its pending prefill, plus the bytes of the prompt that it does not hold divided by its
// measured rate, plus the load of the model where it is not loaded. What a node holds is what was sent to it: an LRU of
// prompt chains for all nodes together.
//
// Bounds: a node whose requests in flight exceed 1.5 x the mean is chosen only where all do; a conversation that no node
// knows goes to none that got more than its share of late. Among nodes that would be about as quick, rendezvous hashing
// of the conversation decides: a picker that has lost its memory, or another one, chooses alike.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "server/fleet/node_report.h"
#include "server/fleet/prompt_chain.h"

namespace quire::server {

class NodePicker {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  static constexpr size_t kNodesMax = 64;
  static constexpr size_t kEndsMax = size_t{1} << 18;  // that are remembered, of all nodes
  static constexpr std::chrono::seconds kReportLife{5};

  // REQUIRES: 1 to kNodesMax names.
  explicit NodePicker(std::vector<std::string> names);

  const std::vector<std::string>& names() const { return names_; }
  void SetReport(size_t node, NodeReport report, TimePoint now);
  // It did not answer. Its prefixes are remembered: they may be on its disk.
  void SetUnreachable(size_t node);

  // The node's name, and records that it gets the prompt; empty: none is ready that has the model.
  std::string_view Pick(const PromptChain& chain, TimePoint now);

 private:
  struct Node {
    NodeReport report = {};
    bool ready = false;
    TimePoint reported = {};
    std::vector<TimePoint> picks = {};  // since the report: when the prefill of each is predicted to end
    double recent = 0;                  // conversations that began here, the older the less
  };
  struct End {
    uint64_t nodes = 0;  // bit mask
    std::list<uint64_t>::iterator used = {};
  };
  struct Candidate {
    size_t node = 0;
    size_t uncached = 0;  // bytes
    double compute = 0;   // seconds of prefill and of loading the model
    double seconds = 0;   // to the first token
  };

  std::vector<size_t> NodesFor(const std::string& model, TimePoint now) const;
  void LimitLoad(std::vector<size_t>& nodes, TimePoint now) const;
  void LimitShare(std::vector<size_t>& nodes) const;
  Candidate Predict(size_t node, const PromptChain& chain, TimePoint now) const;
  double RateOf(size_t node, const std::string& model) const;
  double LoadTimeOf(size_t node, const std::string& model) const;
  size_t CachedBytes(size_t node, const PromptChain& chain) const;
  bool Knows(size_t node, uint64_t end) const;
  uint64_t Rank(size_t node, uint64_t conversation) const;
  size_t Choose(const std::vector<Candidate>& candidates, bool known, uint64_t conversation) const;
  void Record(const Candidate& chosen, const PromptChain& chain, bool known, TimePoint now);
  void RecordEnd(size_t node, uint64_t end);

  std::vector<std::string> names_;
  std::vector<Node> nodes_;
  std::unordered_map<uint64_t, End> ends_;
  std::list<uint64_t> used_;  // ends, latest first
};

}  // namespace quire::server
