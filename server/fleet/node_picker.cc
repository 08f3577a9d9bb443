#include "server/fleet/node_picker.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace quire::server {
namespace {

constexpr double kLoadLimit = 1.5;   // requests in flight, of the mean
constexpr double kLoadSlack = 1;     // requests
constexpr double kShareLimit = 1.2;  // conversations of late, of the mean
constexpr double kShareSlack = 2;    // conversations
constexpr double kShareDecay = 0.99;
// Predictions that differ by less are alike.
constexpr double kAlikeRatio = 0.25;
constexpr double kAlikeSeconds = 0.05;
// What a conversation must gain by leaving its prefix: computing it again takes time from others, and memory.
constexpr double kMoveSeconds = 1;
constexpr size_t kPicksMax = 4096;
constexpr double kComputeMax = 3600;  // seconds
// Before anything was measured.
constexpr double kDefaultBytesPerSecond = 1000;
constexpr double kDefaultLoadSeconds = 5;

uint64_t Scramble(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

uint64_t HashName(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : name) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  return hash;
}

}  // namespace

NodePicker::NodePicker(std::vector<std::string> names) : names_(std::move(names)), nodes_(names_.size()) {}

void NodePicker::SetReport(size_t node, NodeReport report, TimePoint now) {
  Node& entry = nodes_[node];
  entry.ready = report.ready;
  entry.report = std::move(report);
  entry.reported = now;
  entry.picks.clear();
}

void NodePicker::SetUnreachable(size_t node) { nodes_[node].ready = false; }

std::string_view NodePicker::Pick(const PromptChain& chain, TimePoint now) {
  std::vector<size_t> nodes = NodesFor(chain.model, now);
  if (nodes.empty()) return {};
  const bool known = std::ranges::any_of(nodes, [&](size_t node) { return Knows(node, chain.conversation); });
  LimitLoad(nodes, now);
  if (!known) LimitShare(nodes);
  std::vector<Candidate> candidates;
  candidates.reserve(nodes.size());
  for (const size_t node : nodes) candidates.push_back(Predict(node, chain, now));
  const Candidate& chosen = candidates[Choose(candidates, known, chain.conversation)];
  Record(chosen, chain, known, now);
  return names_[chosen.node];
}

// Ready ones, less those whose store lacks the model.
std::vector<size_t> NodePicker::NodesFor(const std::string& model, TimePoint now) const {
  std::vector<size_t> nodes;
  nodes.reserve(nodes_.size());
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    if (!node.ready || now - node.reported > kReportLife) continue;
    const auto& stored = node.report.stored;
    if (!model.empty() && std::ranges::find(stored, model) == stored.end()) continue;
    nodes.push_back(i);
  }
  return nodes;
}

// Those with room for one more request below the bound; all, if that is none.
void NodePicker::LimitLoad(std::vector<size_t>& nodes, TimePoint now) const {
  const auto in_flight = [this, now](size_t node) {
    const Node& entry = nodes_[node];
    const auto picks = std::ranges::count_if(entry.picks, [now](TimePoint end) { return end > now; });
    return entry.report.running + entry.report.waiting + static_cast<int>(picks);
  };
  int total = 1;
  for (const size_t node : nodes) total += in_flight(node);
  const double limit = std::ceil(kLoadLimit * total / static_cast<double>(nodes.size())) + kLoadSlack;
  std::vector<size_t> left;
  left.reserve(nodes.size());
  std::ranges::copy_if(nodes, std::back_inserter(left),
                       [&](size_t node) { return in_flight(node) + 1 <= limit; });
  if (!left.empty()) nodes = std::move(left);
}

void NodePicker::LimitShare(std::vector<size_t>& nodes) const {
  double total = 0;
  for (const size_t node : nodes) total += nodes_[node].recent;
  const double limit = kShareLimit * total / static_cast<double>(nodes.size()) + kShareSlack;
  std::vector<size_t> left;
  left.reserve(nodes.size());
  std::ranges::copy_if(nodes, std::back_inserter(left),
                       [&](size_t node) { return nodes_[node].recent <= limit; });
  if (!left.empty()) nodes = std::move(left);
}

NodePicker::Candidate NodePicker::Predict(size_t node, const PromptChain& chain, TimePoint now) const {
  const Node& entry = nodes_[node];
  Candidate candidate{.node = node, .uncached = chain.bytes - CachedBytes(node, chain)};
  candidate.compute = static_cast<double>(candidate.uncached) / RateOf(node, chain.model);
  const auto model = entry.report.models.find(chain.model);
  const bool loaded = model != entry.report.models.end() && model->second.loaded;
  if (!loaded && !chain.model.empty()) candidate.compute += LoadTimeOf(node, chain.model);
  candidate.seconds = candidate.compute + entry.report.pending_prefill_seconds;
  for (const TimePoint end : entry.picks)
    candidate.seconds += std::max(0.0, std::chrono::duration<double>(end - now).count());
  return candidate;
}

// Its own, else that of another node.
double NodePicker::RateOf(size_t node, const std::string& model) const {
  double rate = 0;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const auto it = nodes_[i].report.models.find(model);
    if (it == nodes_[i].report.models.end() || it->second.prefill_bytes_per_second <= 0) continue;
    if (i == node) return it->second.prefill_bytes_per_second;
    rate = it->second.prefill_bytes_per_second;
  }
  return rate > 0 ? rate : kDefaultBytesPerSecond;
}

double NodePicker::LoadTimeOf(size_t node, const std::string& model) const {
  double seconds = 0;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const auto it = nodes_[i].report.models.find(model);
    if (it == nodes_[i].report.models.end() || it->second.load_seconds <= 0) continue;
    if (i == node) return it->second.load_seconds;
    seconds = it->second.load_seconds;
  }
  return seconds > 0 ? seconds : kDefaultLoadSeconds;
}

size_t NodePicker::CachedBytes(size_t node, const PromptChain& chain) const {
  for (auto end = chain.ends.rbegin(); end != chain.ends.rend(); ++end) {
    if (Knows(node, end->hash)) return end->bytes;
  }
  return 0;
}

bool NodePicker::Knows(size_t node, uint64_t end) const {
  const auto it = ends_.find(end);
  return it != ends_.end() && (it->second.nodes >> node & 1) != 0;
}

uint64_t NodePicker::Rank(size_t node, uint64_t conversation) const {
  return Scramble(conversation ^ Scramble(HashName(names_[node])));
}

size_t NodePicker::Choose(const std::vector<Candidate>& candidates, bool known, uint64_t conversation) const {
  const auto soonest = std::ranges::min_element(candidates, {}, &Candidate::seconds);
  const double alike = soonest->seconds * (1 + kAlikeRatio) + (known ? kMoveSeconds : kAlikeSeconds);
  size_t chosen = static_cast<size_t>(soonest - candidates.begin());
  for (size_t i = 0; i < candidates.size(); ++i) {
    const Candidate& candidate = candidates[i];
    const Candidate& best = candidates[chosen];
    if (candidate.seconds > alike) continue;
    const bool more_cached = known && candidate.uncached < best.uncached;
    const bool as_cached = !known || candidate.uncached == best.uncached;
    if (more_cached || (as_cached && Rank(candidate.node, conversation) > Rank(best.node, conversation)))
      chosen = i;
  }
  return chosen;
}

void NodePicker::Record(const Candidate& chosen, const PromptChain& chain, bool known, TimePoint now) {
  Node& node = nodes_[chosen.node];
  // Bounds what an endless stream of requests between two reports costs.
  if (node.picks.size() < kPicksMax) {
    const std::chrono::duration<double> compute(std::min(chosen.compute, kComputeMax));
    node.picks.push_back(now + std::chrono::duration_cast<std::chrono::nanoseconds>(compute));
  }
  if (!known) {
    for (Node& each : nodes_) each.recent *= kShareDecay;
    node.recent += 1;
  }
  RecordEnd(chosen.node, chain.conversation);
  for (const PromptChain::End& end : chain.ends) RecordEnd(chosen.node, end.hash);
}

void NodePicker::RecordEnd(size_t node, uint64_t end) {
  auto [it, added] = ends_.try_emplace(end);
  if (added) {
    used_.push_front(end);
    it->second.used = used_.begin();
  } else {
    used_.splice(used_.begin(), used_, it->second.used);
  }
  it->second.nodes |= uint64_t{1} << node;
  if (ends_.size() <= kEndsMax) return;
  ends_.erase(used_.back());
  used_.pop_back();
}

}  // namespace quire::server
