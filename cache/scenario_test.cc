// Timelines of requests over one cache and its store, as an engine runs them, with a bound on tokens computed
// again: exactly the new tokens plus the boundary cost that cache/README.md documents.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "cache/snapshot_store.h"
#include "cache/testing/fake_model.h"

namespace quire::cache {
namespace {

struct Mix {
  const char* name;
  Layout layout;
  bool sliceable;  // may be restored at any matched token
};

std::vector<Mix> Mixes() {
  const Layout causal{.page_tokens = 8, .groups = {FullGroup()}};
  const Layout windows{.page_tokens = 8, .groups = {FullGroup(), WindowGroup(12)}};
  const Layout recurrent{.page_tokens = 8, .groups = {FullGroup()}, .recurrent = {ConvLayer(), DeltaLayer()}};
  Layout all = windows;
  all.groups.push_back(WindowGroup(16));
  all.recurrent = recurrent.recurrent;
  return {{"causal", causal, true},
          {"window", windows, false},
          {"recurrent", recurrent, false},
          {"all", all, false}};
}

// A conversation as token lists: messages, then the header of the assistant's turn.
struct Prompt {
  std::vector<TokenList> messages;
  TokenList header = {7001, 7002, 7003};

  TokenList tokens() const {
    TokenList all;
    for (const TokenList& message : messages) all.insert(all.end(), message.begin(), message.end());
    all.insert(all.end(), header.begin(), header.end());
    return all;
  }
  // Message boundaries; the last of them is just before the assistant's header.
  std::vector<Position> boundaries() const {
    std::vector<Position> ends;
    Position at = 0;
    for (const TokenList& message : messages) ends.push_back(at += static_cast<Position>(message.size()));
    return ends;
  }
};

// Runs requests to their end or in steps, several at a time.
class Server {
 public:
  struct Request {
    Sequence sequence;
    TokenList tokens;  // prompt and what was generated
    TokenList prompt;
    Position restored = 0;
    Position computed = 0;  // prompt tokens
    Lease lease;
    std::string key;
  };

  Server(const Layout& layout, Capacity capacity, size_t budget)
      : layout_(layout),
        cache_(std::move(*HybridCache::Create(layout, std::move(capacity)))),
        store_(*cache_, {.budget_bytes = budget}) {}
  explicit Server(const Layout& layout) : Server(layout, {.bytes = 64 << 20}, 32 << 20) {}

  SnapshotStore& store() { return store_; }
  HybridCache& cache() { return *cache_; }

  std::unique_ptr<Request> Start(const Prompt& prompt, std::string key = "") {
    auto request = std::make_unique<Request>();
    request->sequence = cache_->NewSequence();
    request->prompt = request->tokens = prompt.tokens();
    request->key = std::move(key);
    Restored hit = store_.Restore(request->key, request->prompt, request->sequence);
    request->restored = hit.restored;
    request->lease = std::move(hit.lease);
    std::vector<Position> captures = prompt.boundaries();
    captures.push_back(hit.matched);  // where the tree was left: others may come this way too
    std::ranges::sort(captures);
    captures.erase(std::ranges::unique(captures).begin(), captures.end());
    for (const Position at : captures) {
      if (at <= hit.restored) continue;
      EXPECT_TRUE(cache_->ScheduleCapture(request->sequence, at).has_value());
    }
    return request;
  }

  // Continues a request that was ended while it generated; `tokens` are all its tokens.
  std::unique_ptr<Request> Resume(const Prompt& prompt, TokenList tokens) {
    auto request = std::make_unique<Request>();
    request->sequence = cache_->NewSequence();
    request->prompt = prompt.tokens();
    request->tokens = std::move(tokens);
    Restored hit = store_.Restore("", request->tokens, request->sequence);
    request->restored = hit.restored;
    request->lease = std::move(hit.lease);
    return request;
  }

  // One step over all requests: a prefill chunk, or the next token. False when memory ran out; nothing
  // changed then.
  bool Step(std::span<Request* const> requests, int32_t chunk) {
    std::vector<Append> appends;
    std::vector<TokenList> tokens;
    for (Request* request : requests) {
      const Position at = request->sequence.offset();
      if (at == static_cast<Position>(request->tokens.size()))
        request->tokens.push_back(NextToken(request->tokens));
      const auto left = static_cast<Position>(request->tokens.size()) - at;
      const auto count = static_cast<int32_t>(std::min<Position>(left, chunk));
      appends.push_back({&request->sequence, count});
      tokens.emplace_back(request->tokens.begin(), request->tokens.begin() + at + count);
    }
    auto step = cache_->Begin(appends);
    if (!step) return false;
    EXPECT_EQ(RunStep(layout_, **step, tokens), "");
    (*step)->Commit();
    for (size_t i = 0; i < appends.size(); ++i) {
      Request& request = *requests[i];
      const Position end = request.sequence.offset();
      const auto prompt = static_cast<Position>(request.prompt.size());
      request.computed += std::min(end, prompt) - std::min(end - appends[i].tokens, prompt);
    }
    step->reset();
    store_.AdvanceClock();
    Check();
    return true;
  }

  // Prefills and generates `count` tokens; of the last one nothing is computed yet.
  void Finish(Request& request, size_t count) {
    Request* const only[] = {&request};
    while (request.sequence.offset() < static_cast<Position>(request.prompt.size() + count) - 1) {
      ASSERT_TRUE(Step(only, 16));
    }
    if (count > 0 && request.tokens.size() < request.prompt.size() + count)
      request.tokens.push_back(NextToken(request.tokens));
  }

  // Keeps what the request computed, whether it came to its end or was canceled.
  void End(std::unique_ptr<Request> request) {
    std::vector<Snapshot> captures = cache_->TakeCaptures(request->sequence);
    auto last = cache_->CaptureSnapshot(request->sequence);
    if (last && !last->empty() && last->whole()) captures.push_back(std::move(*last));
    for (Snapshot& capture : captures) {
      if (!capture.empty()) (void)store_.Insert(request->key, request->tokens, std::move(capture));
    }
    request.reset();
    Check();
  }

  struct Outcome {
    Position computed;
    TokenList reply;
  };
  Outcome Serve(const Prompt& prompt, size_t count = 6, std::string key = "") {
    auto request = Start(prompt, std::move(key));
    Finish(*request, count);
    Outcome outcome{request->computed, {}};
    outcome.reply.assign(request->tokens.begin() + static_cast<std::ptrdiff_t>(request->prompt.size()),
                         request->tokens.end());
    End(std::move(request));
    return outcome;
  }

  void Check() {
    const auto cache_ok = cache_->CheckInvariants();
    ASSERT_TRUE(cache_ok.has_value()) << cache_ok.error();
    const auto store_ok = store_.CheckInvariants();
    ASSERT_TRUE(store_ok.has_value()) << store_ok.error();
    ASSERT_LE(store_.stats().bytes_peak, store_.stats().budget_bytes);
  }

  // A message of `count` tokens that no other message shares a first token with.
  TokenList Message(size_t count) {
    TokenList tokens(count);
    std::iota(tokens.begin(), tokens.end(), next_);
    next_ += 1000;
    return tokens;
  }

 private:
  // The "model": its next token depends on all tokens so far.
  static TokenId NextToken(const TokenList& tokens) {
    uint32_t hash = 17;
    for (const TokenId token : tokens) hash = hash * 31 + static_cast<uint32_t>(token);
    return static_cast<TokenId>(1000000 + hash % 1000000);
  }

  Layout layout_;
  std::unique_ptr<HybridCache> cache_;
  SnapshotStore store_;
  TokenId next_ = 10000;
};

Position Size(const TokenList& tokens) { return static_cast<Position>(tokens.size()); }

class Scenario : public testing::TestWithParam<size_t> {
 protected:
  Mix mix_ = Mixes()[GetParam()];
};

INSTANTIATE_TEST_SUITE_P(Mixes, Scenario, testing::Values(0, 1, 2, 3),
                         [](const auto& mix) { return Mixes()[mix.param].name; });

// Boundary cost of a next turn: the last generated token, which was never computed.
TEST_P(Scenario, MultiTurn) {
  Server server(mix_.layout);
  Prompt prompt{.messages = {server.Message(30)}};
  TokenList header = prompt.header;
  Position previous = 0;
  for (int turn = 0; turn < 12; ++turn) {
    prompt.messages.push_back(server.Message(9));
    const Server::Outcome outcome = server.Serve(prompt);
    const Position total = Size(prompt.tokens());
    EXPECT_EQ(outcome.computed, turn == 0 ? total : total - previous + 1) << "turn " << turn;
    previous = total + Size(outcome.reply);
    TokenList reply = header;
    reply.insert(reply.end(), outcome.reply.begin(), outcome.reply.end());
    prompt.messages.push_back(reply);
  }
}

// Boundary cost of an edit: nothing, the boundary before the edited message is a restore point.
TEST_P(Scenario, EditAnEarlierMessage) {
  Server server(mix_.layout);
  Prompt prompt{.messages = {server.Message(30), server.Message(20), server.Message(15), server.Message(25)}};
  server.Serve(prompt);
  for (size_t edited = 1; edited < 4; ++edited) {
    Prompt changed = prompt;
    changed.messages[edited] = server.Message(11);
    const Position before = prompt.boundaries()[edited - 1];
    EXPECT_EQ(server.Serve(changed).computed, Size(changed.tokens()) - before) << "message " << edited;
  }
}

// Boundary cost of asking again: the assistant's header; one token where KV can be cut anywhere, or as far as
// the pages of the windows reach.
TEST_P(Scenario, Regenerate) {
  Server server(mix_.layout);
  const Prompt prompt{.messages = {server.Message(30), server.Message(20)}};
  const Server::Outcome first = server.Serve(prompt, 30);
  for (int again = 0; again < 5; ++again) {
    const Server::Outcome outcome = server.Serve(prompt, 30);
    const Position header = Size(prompt.header);
    EXPECT_LE(outcome.computed, header);
    if (mix_.sliceable) {
      EXPECT_EQ(outcome.computed, 1);
    }
    if (!mix_.layout.recurrent.empty()) {
      EXPECT_EQ(outcome.computed, header);
    }
    EXPECT_EQ(outcome.reply, first.reply);
  }
}

TEST_P(Scenario, SixteenBranchesAtFourDepths) {
  Server server(mix_.layout);
  const Prompt trunk{
      .messages = {server.Message(24), server.Message(24), server.Message(24), server.Message(24)}};
  server.Serve(trunk);
  for (size_t depth = 1; depth <= 4; ++depth) {
    for (int branch = 0; branch < 16; ++branch) {
      Prompt prompt = trunk;
      prompt.messages.resize(depth);
      prompt.messages.push_back(server.Message(10));
      EXPECT_EQ(server.Serve(prompt).computed, 10 + Size(prompt.header)) << "depth " << depth;
    }
  }
  EXPECT_EQ(server.store().stats().evictions, 0u);
}

// A branch in the middle of a message: the first one leaves a restore point where it left, so that only it
// pays.
TEST_P(Scenario, TheSecondBranchInsideAMessageIsFree) {
  Server server(mix_.layout);
  Prompt prompt{.messages = {server.Message(20), server.Message(40)}};
  server.Serve(prompt);
  for (int branch = 0; branch < 4; ++branch) {
    Prompt changed = prompt;
    changed.messages[1].resize(25);
    const TokenList tail = server.Message(12);
    changed.messages[1].insert(changed.messages[1].end(), tail.begin(), tail.end());
    const Position boundary_cost = branch == 0 && !mix_.sliceable ? 25 : 0;
    EXPECT_EQ(server.Serve(changed).computed, 12 + Size(prompt.header) + boundary_cost)
        << "branch " << branch;
  }
}

TEST_P(Scenario, InterleavedAgents) {
  Server server(mix_.layout);
  const TokenList system = server.Message(48);
  struct Agent {
    Prompt prompt;
    Position previous = 0;
    std::unique_ptr<Server::Request> request;
  };
  std::vector<Agent> agents(6);
  for (Agent& agent : agents) agent.prompt.messages = {system};
  for (int turn = 0; turn < 5; ++turn) {
    // All run at once in ragged batches: prefill chunks beside decodes.
    for (size_t a = 0; a < agents.size(); ++a) {
      agents[a].prompt.messages.push_back(server.Message(7 + a));
      agents[a].request = server.Start(agents[a].prompt);
    }
    std::vector<Server::Request*> running;
    for (Agent& agent : agents) running.push_back(agent.request.get());
    while (!running.empty()) {
      ASSERT_TRUE(server.Step(running, 9));
      std::erase_if(running, [](const Server::Request* request) {
        return request->sequence.offset() >= Size(request->prompt) + 4;
      });
    }
    for (size_t a = 0; a < agents.size(); ++a) {
      Agent& agent = agents[a];
      const Position total = Size(agent.prompt.tokens());
      EXPECT_EQ(agent.request->computed, turn == 0 ? total : total - agent.previous) << "turn " << turn;
      TokenList reply = agent.prompt.header;
      reply.insert(reply.end(), agent.request->tokens.begin() + total, agent.request->tokens.end());
      agent.previous = agent.request->sequence.offset();
      agent.prompt.messages.push_back(reply);
      server.End(std::move(agent.request));
    }
  }
}

// The store holds two of four conversations: who returns in time pays its new tokens, who does not pays
// everything, and answers never change.
TEST_P(Scenario, EvictionPressure) {
  Server unbounded(mix_.layout);
  Prompt probe{.messages = {unbounded.Message(64)}};
  unbounded.Serve(probe);
  const size_t one = unbounded.store().stats().bytes;
  Server server(mix_.layout, {.bytes = 64 << 20}, 2 * one + one / 2);
  std::vector<Prompt> prompts;
  std::vector<TokenList> replies;
  for (int i = 0; i < 4; ++i) {
    prompts.push_back({.messages = {server.Message(64)}});
    replies.push_back(server.Serve(prompts.back()).reply);
  }
  const Position all = Size(prompts[0].tokens());
  const Position returning = mix_.sliceable ? 1 : Size(prompts[0].header);
  EXPECT_EQ(server.Serve(prompts[3]).computed, returning);
  EXPECT_EQ(server.Serve(prompts[2]).computed, returning);
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < 4; ++i) {
      const Server::Outcome outcome = server.Serve(prompts[i]);
      EXPECT_EQ(outcome.computed, all);
      EXPECT_EQ(outcome.reply, replies[i]);
    }
  }
  EXPECT_GT(server.store().stats().evictions, 0u);
}

// Boundary cost of a canceled prefill: nothing, what was computed is kept to the last committed chunk.
TEST_P(Scenario, CancelledPrefill) {
  Server server(mix_.layout);
  const Prompt prompt{.messages = {server.Message(30), server.Message(60), server.Message(40)}};
  auto request = server.Start(prompt);
  Server::Request* const only[] = {request.get()};
  for (int step = 0; step < 4; ++step) ASSERT_TRUE(server.Step(only, 16));
  server.End(std::move(request));
  // Others may come back to the boundary it had passed,
  Prompt other = prompt;
  other.messages[1] = server.Message(5);
  EXPECT_EQ(server.Serve(other).computed, 5 + 40 + Size(prompt.header));
  // and the same request to the very chunk.
  EXPECT_EQ(server.Serve(prompt).computed, Size(prompt.tokens()) - 64);
}

// A sequence that outgrows memory is preempted to a snapshot and resumed with nothing but its next token to
// compute.
TEST_P(Scenario, PreemptedToASnapshotAndResumed) {
  Server server(mix_.layout);
  const Prompt prompt{.messages = {server.Message(50)}};
  auto request = server.Start(prompt);
  server.Finish(*request, 10);
  TokenList tokens = request->tokens;
  server.End(std::move(request));
  server.Serve({.messages = {server.Message(70)}});
  auto resumed = server.Resume(prompt, tokens);
  EXPECT_EQ(resumed->restored, Size(tokens) - 1);
  server.Finish(*resumed, 25);
  EXPECT_EQ(resumed->computed, 0);
  tokens = resumed->tokens;
  server.End(std::move(resumed));
  // As if it had never been preempted.
  Server other(mix_.layout);
  auto uninterrupted = other.Start(prompt);
  other.Finish(*uninterrupted, 25);
  EXPECT_EQ(uninterrupted->tokens, tokens);
}

TEST_P(Scenario, AnotherKeyComputesEverythingAgain) {
  Server server(mix_.layout);
  const Prompt prompt{.messages = {server.Message(40)}};
  server.Serve(prompt, 6, "alice");
  EXPECT_EQ(server.Serve(prompt, 6, "bob").computed, Size(prompt.tokens()));
  EXPECT_EQ(server.Serve(prompt, 6, "alice").computed, mix_.sliceable ? 1 : Size(prompt.header));
}

}  // namespace
}  // namespace quire::cache
