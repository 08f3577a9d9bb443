// What sharing out the tasks of a step would cost on a machine that has a core for each thread: a simulation of events.
#pragma once

namespace quire::bench {

struct ForkJoinShape {
  int threads = 1;
  int groups = 1;  // of equal size, as ThreadPool makes them
  int tasks_per_thread = 4;
  double task_us = 0;         // time of a task
  double transfer_us = 0.06;  // in which a cache line moves from the core that changed it last to another
};

// Microseconds from the caller's first write until it sees that the last task ended, less the tasks' own time of a thread.
//
// A line that several cores change is at one of them at a time; those that want it wait in turn. The caller writes a line per
// group; the group's threads see it, take tasks from one line and count them on another; a thread without a task looks at the
// other groups' lines in turn; the last task of a group changes a line that all share, which the caller reads.
double ModelForkJoin(const ForkJoinShape& shape);

}  // namespace quire::bench
