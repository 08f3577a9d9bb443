// Whose texts an encoder computes next.
//
// Texts that are computed together are a task. Between two of its turns a task waits, with what it has
// computed, so that a long text gives way to short ones. Parties share the time of turns by weight, and a
// party's exchanges alike (api/base/fair/); a text keeps its place in its exchange until it is done.
//
// What tasks have computed is in memory, so there is a place for each. Tasks are of three sizes by their
// first text: up to kEncoderRows, up to a quarter of the longest, longer. Each size has places of its own,
// and a party at most half of them. So a short text never waits for the end of a long one, nor a party for
// those of another. No clock of its own; engine thread only.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <unordered_map>
#include <vector>

#include "api/base/fair/fair_queue.h"
#include "api/base/fair/quota.h"
#include "api/base/ids.h"
#include "api/base/request.h"
#include "runner/models/encoder_pass.h"

namespace quire::runner::engine {

// Rows of a task, unless one text alone has more.
inline constexpr int64_t kEncoderRows = 512;

struct EncoderJob {
  api::RequestId id;
  std::vector<api::TokenId> tokens;
  std::vector<int32_t> types;
  int32_t dropped = 0, dimensions = 0;
  bool normalize = true, rank = false;
  std::chrono::steady_clock::time_point arrived = {};

  int64_t rows() const { return static_cast<int64_t>(tokens.size()); }
};

class EncoderTurns {
  struct Text;
  using Queue = fair::FairQueue<Text*>;  // a member is an exchange

 public:
  struct Task {
    fair::Quota::Lease place;
    std::vector<Text*> texts = {};  // in the order of the rows
    int64_t rows = 0;
    std::optional<models::EncoderPass> pass = {};  // from its first turn on
    std::chrono::steady_clock::time_point began = {};
    std::chrono::nanoseconds spent = {};  // in its turns
  };

  // `context`: rows of the longest text.
  explicit EncoderTurns(int64_t context) : context_(context) {}

  // Rows of all tasks together.
  static int64_t RowsMax(int64_t context);

  void Add(const api::Client& client, EncoderJob job);
  // A task that nobody waits for any more ends. REQUIRES: no turn.
  void Cancel(api::RequestId id);
  // Whose turn begins, with a new task where it has none. `mixed_rows`: of a task with texts of several
  // exchanges, unless its first text has more: each of them waits for all. Null: there are no texts.
  Task* Choose(int64_t mixed_rows);
  // Charged to those whose texts are in it. `done`: the task ends.
  void EndTurn(Task& task, std::chrono::nanoseconds took, bool done);

  bool empty() const { return texts_.empty(); }
  size_t running() const;                                       // texts in tasks
  size_t waiting() const { return texts_.size() - running(); }  // texts in no task

 private:
  enum Size : uint8_t { kShort, kMedium, kLong, kSizes };
  static constexpr std::array<uint64_t, kSizes> kTasks = {8, 4, 2};

  struct Text {
    EncoderJob job;
    Queue::Turn turn;
    Task* task = nullptr;  // from its first turn on
    bool canceled = false;
  };

  static fair::Quota PlacesOf(Size size) {
    return fair::Quota({.total = kTasks[size], .party = kTasks[size] / 2});
  }
  fair::Quota::Lease PlaceFor(const Text& text);  // which it does not have yet
  Task& Start(Text& first, int64_t mixed_rows);
  void End(Task& task);

  const int64_t context_;
  std::array<fair::Quota, kSizes> places_{PlacesOf(kShort), PlacesOf(kMedium), PlacesOf(kLong)};
  std::unordered_map<api::RequestId, Text> texts_;
  std::list<Task> tasks_;
  Queue queue_{100'000'000};  // a turn is not much longer, in nanoseconds
};

}  // namespace quire::runner::engine
