// Whose texts an encoder computes next.
//
// Texts that are computed together are a task. Between two of its turns a task waits, with what it has
// computed, so that a long text gives way to short ones. Parties share the time by weight (fair_share.h).
// Within a party its exchanges take turns: one that has had no turn yet comes first, but each other turn is
// for one that has had some, so that neither waits for all of the other kind. An exchange has one task at a
// time, and its own order.
//
// What tasks have computed is in memory, so their rows are bounded. Texts are of three sizes: up to
// kEncoderRows, up to a quarter of the longest, longer. Each size has room of its own, and a party at most
// half of it; where there is none, texts of that size start in the order of their arrival. So a short text
// never waits for the end of a long one, nor a party for those of another. No clock of its own; engine thread
// only.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "api/base/ids.h"
#include "api/base/request.h"
#include "runner/engine/shares/fair_share.h"
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
  struct Lane;
  struct Party;

 public:
  struct Part {
    EncoderJob job;
    Lane* lane = nullptr;
    bool canceled = false;
  };
  struct Task {
    std::vector<Part> parts = {};  // in the order of the rows
    int64_t rows = 0;
    std::optional<models::EncoderPass> pass = {};  // from its first turn on
    std::chrono::steady_clock::time_point began = {};
    std::chrono::nanoseconds spent = {};  // in its turns
  };

  // `context`: rows of the longest text.
  explicit EncoderTurns(int64_t context);

  // Rows of all tasks together.
  static int64_t RowsMax(int64_t context);

  void Add(const api::Client& client, EncoderJob job);
  // A task that nobody waits for any more ends.
  void Cancel(api::RequestId id);
  // Whose turn it is, with a new task where it has none. `mixed_rows`: of a task with texts of several
  // exchanges, unless its first text has more: each of them waits for all. Null: there are no texts.
  Task* Choose(int64_t mixed_rows);
  void EndTurn(Task& task, std::chrono::nanoseconds took);
  void End(Task& task);

  bool empty() const { return parties_.empty(); }
  size_t waiting() const;                                                         // texts in no task
  size_t running() const;                                                         // texts in tasks
  int64_t rows() const { return rows_[kShort] + rows_[kMedium] + rows_[kLong]; }  // of tasks

 private:
  enum Size : uint8_t { kShort, kMedium, kLong, kSizes };
  template <class T>
  using OfSizes = std::array<T, kSizes>;
  static constexpr uint64_t kNone = UINT64_MAX;

  // Texts of an exchange.
  struct Lane {
    Party* party = nullptr;
    std::string exchange;
    uint64_t arrival = 0;              // of its first text, or when the one before it went to a task
    std::deque<EncoderJob> jobs = {};  // in no task
    Task* task = nullptr;
    bool fresh = true;  // it has had no turn

    bool waits() const { return task == nullptr && !jobs.empty(); }
  };
  struct Party {
    std::string name;
    std::list<Lane> lanes = {};      // in the order of their turns
    OfSizes<int64_t> rows = {};      // of its texts in tasks
    OfSizes<uint64_t> blocked = {};  // arrival of the first lane for which the party has no room
    bool owes_turn = false;  // to lanes that have had some: a fresh one had the last turn in their stead
  };

  static OfSizes<int64_t> RoomFor(int64_t context);
  Size SizeOf(const EncoderJob& job) const;
  bool FitsParty(const Lane& lane) const;  // its first text
  bool FitsAll(const Lane& lane) const;
  void FindBlocked();
  bool CanGoOn(const Lane& lane) const;
  Lane* ChooseIn(Party& party) const;
  void UpdateShares();
  Task& Start(Lane& leader, int64_t mixed_rows);
  void Move(Lane& lane, Task& task);  // its first text
  void Remove(Lane& lane);            // where it has no texts left

  const int64_t context_;
  const OfSizes<int64_t> room_;
  std::list<Party> parties_;  // none is empty
  std::list<Task> tasks_;
  FairShare shares_;                // of all texts
  OfSizes<int64_t> rows_ = {};      // of tasks_
  OfSizes<uint64_t> blocked_ = {};  // arrival of the first lane for which there is room in its party alone
  uint64_t arrivals_ = 0;
};

}  // namespace quire::runner::engine
