#include "bench/fork_join_model.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

namespace quire::bench {
namespace {

constexpr double kOwnChange = 0.01;  // microseconds; an atomic change of a line that is at hand

// A cache line: who changed it last, and until when it is taken.
struct Line {
  int owner = -1;  // in the last round, any thread
  double free_at = 0;

  // When `thread`, which asks at `now`, has changed it.
  double Change(double now, int thread, double transfer) {
    free_at = std::max(now, free_at) + (thread == owner ? kOwnChange : transfer);
    owner = thread;
    return free_at;
  }
};

struct Group {
  Line cursor, done;
  int left = 0, unfinished = 0;  // tasks
};

class Round {
 public:
  explicit Round(const ForkJoinShape& shape) : shape_(shape), groups_(static_cast<size_t>(shape.groups)) {}

  double Run() {
    const int tasks = shape_.threads * shape_.tasks_per_thread;
    double now = 0;
    for (int g = 0; g < shape_.groups; ++g) {
      Group& group = groups_[static_cast<size_t>(g)];
      group.left = group.unfinished = tasks * (g + 1) / shape_.groups - tasks * g / shape_.groups;
      now = group.cursor.Change(now, 0, shape_.transfer_us);
      for (int thread = GroupBegin(g); thread < GroupBegin(g + 1); ++thread) {
        if (thread > 0) Arrive(now + shape_.transfer_us, thread);
      }
    }
    unfinished_ = shape_.groups;
    Arrive(now, 0);
    while (!arrivals_.empty()) {
      const auto [time, thread] = arrivals_.top();
      arrivals_.pop();
      RunNext(time, thread);
    }
    return ended_at_ + shape_.transfer_us - shape_.task_us * shape_.tasks_per_thread;
  }

 private:
  int GroupBegin(int g) const { return shape_.threads * g / shape_.groups; }
  void Arrive(double at, int thread) { arrivals_.emplace(at, thread); }

  // What a thread does that looks for a task at `now`.
  void RunNext(double now, int thread) {
    int own = 0;
    while (thread >= GroupBegin(own + 1)) ++own;
    for (int i = 0; i < shape_.groups; ++i) {
      Group& group = groups_[static_cast<size_t>((own + i) % shape_.groups)];
      if (group.left == 0) {
        now += group.cursor.owner == thread
                   ? 0
                   : shape_.transfer_us;  // to see that; reading keeps nobody waiting
        continue;
      }
      --group.left;
      now = group.cursor.Change(now, thread, shape_.transfer_us) + shape_.task_us;
      now = group.done.Change(now, thread, shape_.transfer_us);
      if (--group.unfinished == 0) {
        now = shared_.Change(now, thread, shape_.transfer_us);
        if (--unfinished_ == 0) ended_at_ = now;
      }
      return Arrive(now, thread);
    }
  }

  using Arrival = std::pair<double, int>;

  const ForkJoinShape shape_;
  std::vector<Group> groups_;
  Line shared_;
  int unfinished_ = 0;  // groups
  double ended_at_ = 0;
  std::priority_queue<Arrival, std::vector<Arrival>, std::greater<>> arrivals_;
};

}  // namespace

double ModelForkJoin(const ForkJoinShape& shape) { return shape.threads == 1 ? 0 : Round(shape).Run(); }

}  // namespace quire::bench
