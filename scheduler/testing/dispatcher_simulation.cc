#include "scheduler/testing/dispatcher_simulation.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "api/base/testing/simulation_seeds.h"
#include "api/ipc/messages.h"
#include "scheduler/clock.h"
#include "scheduler/dispatcher.h"
#include "scheduler/scheduler.h"
#include "scheduler/testing/simulated_runner.h"
#include "scheduler/testing/simulated_world.h"

namespace quire::scheduler::simulation {
namespace {

using boost::asio::awaitable;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr milliseconds kStep{250};
constexpr seconds kFaultyTime{60};
constexpr uint32_t kLongAnswer = api::ipc::kInitialCredit + 4;  // tokens, at least
constexpr seconds kAnswerTime = minutes(40);                    // of a request, once the faults have stopped

// What a client does, and what came of it.
struct Client {
  Script script;
  std::string model;
  api::Client who;
  std::optional<KeepAliveClaim> keep_alive;
  int32_t leaves_at = -1;  // disconnects before this token
  bool reads_slowly = false;
  uint64_t faults_before = 0;  // of its model
  World::Time since{};
  bool may_be_refused = false;  // its place in the queue
  boost::asio::cancellation_signal cancel;
  bool cancelled = false;
  bool done = false;
  int64_t tokens = 0;
  std::optional<api::Error> failed;
};

class Simulation {
 public:
  explicit Simulation(uint64_t seed) : world_(seed, DrawFaults(seed)) {
    poison_ = world_.OneIn(4);
    long_answers_ = world_.OneIn(3);
    unloads_ = world_.OneIn(4);
    parties_ = 2 + world_.Below(3);
    limits_.models_max = 1 + static_cast<int32_t>(world_.Below(3));
    limits_.queue_max = world_.OneIn(4) ? 4 : 100;
    limits_.model_queue_max = world_.OneIn(4) ? 3 : 0;
    limits_.queue_timeout = seconds(world_.OneIn(4) ? 30 : 0);
    limits_.memory_bytes = world_.OneIn(2) ? int64_t{64} << 20 : 0;
    limits_.load_timeout = seconds(20);
    limits_.drain_limit = seconds(world_.OneIn(3) ? 0 : 5);
    limits_.default_keep_alive = seconds(world_.Below(8));
    dispatcher_.emplace(context_->get_executor(), "simulated", limits_);
  }
  ~Simulation() {
    dispatcher_.reset();
    Poll();
    context_.reset();  // coroutines go before the world that they refer to
  }

  // The first thing that is wrong; empty if nothing is.
  std::string Run() {
    const World::Time begin = world_.now();
    while (broken_.empty() && world_.now() < begin + kFaultyTime) {
      Act();
      Step();
    }
    world_.EndFaults();
    const World::Time calm = world_.now();
    while (broken_.empty() && open_ > 0) {
      Step();
      if (world_.now() > calm + kAnswerTime) Break("a request is stuck: " + Stuck());
    }
    if (broken_.empty()) Drain();
    return broken_;
  }

  uint64_t digest() const { return digest_; }
  uint64_t runners() const { return world_.runners_started(); }

 private:
  static Faults DrawFaults(uint64_t seed) {
    const uint64_t bits = seed * 0x9E3779B97F4A7C15U >> 40U;
    return {.deaths = (bits & 1U) != 0,
            .hangs = (bits & 2U) != 0,
            .load_failures = (bits & 4U) != 0,
            .start_failures = (bits & 8U) != 0,
            .garbage = (bits & 16U) != 0,
            .stubborn = (bits & 32U) != 0};
  }

  void Break(std::string what) {
    if (broken_.empty()) broken_ = std::move(what);
  }
  std::string Stuck() const {
    for (const Client& client : clients_) {
      if (!client.done) return fmt::format("{} of model {}", client.script.Text(), client.model);
    }
    return "none";
  }

  // ---- time ----

  void Poll() {
    context_->restart();
    context_->poll();
  }
  void Step() {
    world_.ReadLinks();
    world_.Advance(kStep);
    Poll();
    Check();
  }
  void Check() {
    if (broken_.empty()) broken_ = world_.broken();
    if (broken_.empty()) broken_ = dispatcher_->CheckInvariants();
    int64_t bytes = 0;
    int32_t processes = 0;
    for (const auto& [pid, runner] : world_.runners()) {
      if (!runner->alive()) continue;
      bytes += runner->memory_bytes();
      ++processes;
    }
    if (processes > limits_.models_max) Break("more processes than model slots");
    if (limits_.memory_bytes > 0 && bytes > limits_.memory_bytes) Break("more memory granted than there is");
    if (dispatcher_->Stuck(world_.now() - minutes(1))) Break("a runner is stuck");
    digest_ = digest_ * 1'000'003 + static_cast<uint64_t>(world_.now().time_since_epoch().count()) +
              static_cast<uint64_t>(bytes) + open_;
  }
  void Drain() {
    bool drained = false;
    boost::asio::co_spawn(*context_, dispatcher_->Drain(world_.now() + seconds(1)),
                          [&drained](const std::exception_ptr&) { drained = true; });
    const World::Time begin = world_.now();
    while (broken_.empty() && !drained) {
      Step();
      if (world_.now() > begin + minutes(2)) Break("draining does not end");
    }
    if (!world_.runners().empty()) Break("a runner is left");
  }

  // ---- clients ----

  std::string Model() { return std::string(1, static_cast<char>('a' + world_.Below(4))); }

  void Act() {
    if (world_.OneIn(8)) Arrive();
    if (unloads_ && world_.OneIn(100)) {
      const std::string model = Model();
      world_.CountFault(model);
      dispatcher_->Unload(model);
    }
    if (unloads_ && world_.OneIn(50)) dispatcher_->EndClaim(Model(), Party().party);
    if (!clients_.empty() && world_.OneIn(60)) {
      Client& client = clients_[world_.Below(static_cast<uint32_t>(clients_.size()))];
      if (client.done) return;
      client.cancelled = true;
      client.cancel.emit(boost::asio::cancellation_type::terminal);
    }
  }

  // A key, or an address behind which several people may be.
  api::Client Party() {
    const uint32_t party = world_.Below(parties_);
    const fair::PartyId id = fair::PartyNamed("party " + std::to_string(party));
    if (party % 2 == 0) return {.party = id, .has_key = true};
    return {.party = id, .exchange = std::to_string(clients_.size())};
  }
  // Whether the queue's limits may cost these clients their places: there are more of them, and one's party
  // has more than its share. Clients that are being answered are counted, too: there may be room without its
  // being expected. Only who arrives makes it less.
  void FindThoseThatMayBeRefused(const std::vector<Client*>& clients, int32_t places) {
    if (places < 1 || std::ssize(clients) <= places) return;
    std::map<fair::PartyId, int32_t> counts;
    for (const Client* client : clients) ++counts[client->who.party];
    for (Client* client : clients)
      client->may_be_refused |= counts.at(client->who.party) * std::ssize(counts) > places;
  }
  void FindThoseThatMayBeRefused() {
    std::vector<Client*> all;
    std::map<std::string, std::vector<Client*>> of_models;
    for (Client& client : clients_) {
      if (client.done) continue;
      all.push_back(&client);
      of_models[client.model].push_back(&client);
    }
    FindThoseThatMayBeRefused(all, limits_.queue_max);
    for (const auto& [model, clients] : of_models)
      FindThoseThatMayBeRefused(clients, limits_.model_queue_max);
  }

  void Arrive() {
    Client& client = clients_.emplace_back();
    client.script.number = static_cast<uint32_t>(clients_.size());
    // A long one outlasts the credit of a client that does not read.
    const bool is_long = long_answers_ && world_.OneIn(8);
    client.script.tokens = static_cast<int32_t>(is_long ? kLongAnswer + world_.Below(100) : world_.Below(20));
    if (poison_ && world_.OneIn(8)) {
      client.script.deadly_at =
          static_cast<int32_t>(world_.Below(static_cast<uint32_t>(client.script.tokens) + 1));
    }
    client.model = Model();
    client.who = Party();
    if (world_.OneIn(4)) {
      client.keep_alive.emplace(seconds(static_cast<int>(world_.Below(6)) - 1), world_.OneIn(4));
      const bool pins = client.keep_alive->keep_alive < KeepAlive::zero();
      if (pins) pinned_by_.insert(client.keep_alive->by_admin ? "an admin" : client.who.party.name());
    }
    if (world_.OneIn(8)) client.leaves_at = static_cast<int32_t>(world_.Below(20));
    client.reads_slowly = world_.OneIn(6);
    client.faults_before = world_.FaultsBefore(client.model);
    client.since = world_.now();
    ++open_;
    FindThoseThatMayBeRefused();
    boost::asio::co_spawn(
        *context_, Serve(*this, client),
        boost::asio::bind_cancellation_slot(
            client.cancel.slot(), [this, &client](const std::exception_ptr& error) { End(client, error); }));
  }

  static awaitable<void> Serve(Simulation& self, Client& client) {
    api::Request request;
    request.prompt = api::RawPrompt{client.script.Text()};
    request.params.seed = client.script.number;
    request.params.num_predict = client.script.tokens;
    request.client = client.who;
    // Not within the call: GCC 12 destroys such an argument of co_await twice.
    ModelSpec spec{client.model, client.model, client.model};
    auto stream = co_await self.dispatcher_->Submit(std::move(spec), std::move(request), client.keep_alive);
    if (!stream) {
      client.failed = std::move(stream).error();
      co_return;
    }
    bool ready = false;
    while (true) {
      if (client.leaves_at >= 0 && client.tokens >= client.leaves_at) co_return;
      if (client.reads_slowly && self.world_.OneIn(8)) co_await self.Pause();
      const api::Event event = co_await (*stream)->Next();
      if (const auto* delta = std::get_if<api::TextDelta>(&event)) {
        self.CheckDelta(client, *delta, ready);
      } else if (const auto* failed = std::get_if<api::Failed>(&event)) {
        client.failed = failed->error;
        co_return;
      } else if (std::holds_alternative<api::Finished>(event)) {
        if (client.tokens != client.script.tokens)
          self.Break("an answer ended early: " + client.script.Text());
        co_return;
      } else {
        if (ready) self.Break("a second PromptReady: " + client.script.Text());
        ready = true;
      }
    }
  }
  awaitable<void> Pause() {
    Timer timer(*context_, world_.now() + milliseconds(world_.Below(5000)));
    co_await timer.async_wait(boost::asio::as_tuple(boost::asio::use_awaitable));
  }
  void CheckDelta(Client& client, const api::TextDelta& delta, bool ready) {
    if (!ready) Break("text before PromptReady: " + client.script.Text());
    const bool right = delta.token_ids.size() == 1 &&
                       delta.token_ids.front() == TokenOf(client.script.number, client.tokens) &&
                       delta.text == std::to_string(client.tokens);
    if (!right)
      Break(fmt::format("a token is lost, doubled or wrong: {} at {}", client.script.Text(), client.tokens));
    ++client.tokens;
    digest_ = digest_ * 31 + client.script.number;
  }

  void End(Client& client, const std::exception_ptr& error) {
    client.done = true;
    --open_;
    if (error && !client.cancelled) Break("a client's coroutine failed: " + client.script.Text());
    if (client.failed && !client.cancelled) CheckFailure(client);
  }
  void CheckFailure(const Client& client) {
    const api::Error& error = *client.failed;
    const bool disturbed = world_.FaultsOf(client.model) > client.faults_before;
    const auto unless = [&](bool allowed) {
      if (!allowed)
        Break(fmt::format("{} of {} failed without a reason: {}", client.script.Text(), client.model,
                          error.message));
    };
    switch (error.code) {
      case api::ErrorCode::kOverloaded:  // no place, or none left for it, or in time
        return unless(error.message == kBusy ? client.may_be_refused : limits_.queue_timeout > seconds(0));
      case api::ErrorCode::kUnavailable:  // no room but what its own party or an admin has pinned, or a fault
        if (disturbed) return;
        if (error.message.contains("keep_alive"))
          return unless(pinned_by_.contains(client.who.party.name()) || pinned_by_.contains("an admin"));
        return unless(error.message.contains("memory"));
      case api::ErrorCode::kBadModel:
      case api::ErrorCode::kRunnerDied:
        return unless(disturbed);
      default:
        return unless(false);
    }
  }

  World world_;
  std::optional<boost::asio::io_context> context_{std::in_place, 1};
  Limits limits_;
  std::optional<Dispatcher> dispatcher_;
  std::deque<Client> clients_;
  uint32_t open_ = 0;
  bool poison_ = false;
  bool unloads_ = false;
  uint32_t parties_ = 0;
  std::set<std::string> pinned_by_;  // parties, or "an admin"
  bool long_answers_ = false;
  uint64_t digest_ = 0;
  std::string broken_;
};

}  // namespace

Outcome RunSeed(uint64_t seed) {
  spdlog::set_level(spdlog::level::off);
  Simulation simulation(seed);
  std::string broken = simulation.Run();
  return {std::move(broken), simulation.digest()};
}

std::string RunSeeds(uint64_t by_default) {
  std::string broken;
  api::test::ForEachSimulationSeed(by_default, [&](uint64_t seed) {
    const Outcome outcome = RunSeed(seed);
    if (!outcome.broken.empty()) broken = fmt::format("seed {}: {}", seed, outcome.broken);
    return broken.empty();
  });
  return broken;
}

std::string CheckThatAllFollowsFromTheSeed(uint64_t seeds) {
  std::set<uint64_t> digests;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    const Outcome once = RunSeed(seed);
    const Outcome again = RunSeed(seed);
    if (!once.broken.empty()) return fmt::format("seed {}: {}", seed, once.broken);
    if (once.digest != again.digest) return fmt::format("seed {} has two runs", seed);
    if (!digests.insert(once.digest).second) return fmt::format("seed {} runs as another one", seed);
  }
  return "";
}

}  // namespace quire::scheduler::simulation
