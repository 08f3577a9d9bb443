// fork_join_bench: what handing out the tasks of a step costs, by threads: measured here, and modeled for a machine that
// has a core for each thread.
//
// The model counts what waits for what. A cache line that several cores change is at one of them at a time, and moving
// it takes `--transfer` nanoseconds. The caller writes a line per group; in each group, threads take tasks from one line
// and count them on another, one change after the other; groups work at the same time, and the last thread of each one
// changes a line that all share. Tasks themselves take no time, so that this is an upper bound: threads that are busy do
// not meet.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <vector>

#include "runner/kernels/thread_pool.h"

namespace quire::bench {
namespace {

using runner::ThreadPool;

struct Options {
  std::vector<int> threads = {1, 2, 4, 8, 16, 32, 64, 128, 192};
  int tasks_per_thread = 4, rounds = 2000;
  double transfer_ns = 60;
};

// The median of some repeats, in microseconds.
double Measured(const Options& options, int threads) {
  ThreadPool pool(threads);
  const size_t tasks = static_cast<size_t>(threads) * static_cast<size_t>(options.tasks_per_thread);
  const int rounds = options.rounds / 9 + 1;
  std::vector<double> times;
  for (int repeat = 0; repeat < 9; ++repeat) {
    const auto begin = std::chrono::steady_clock::now();
    for (int round = 0; round < rounds; ++round) pool.ParallelFor(tasks, [](size_t) {});
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
    times.push_back(time.count() / rounds);
  }
  std::ranges::nth_element(times, times.begin() + 4);
  return times[4];
}

// Microseconds with `groups` groups of equal size.
double Modeled(const Options& options, int threads, int groups) {
  const double tasks = static_cast<double>(threads * options.tasks_per_thread) / groups;
  const double transfers = groups + 2 * tasks + groups;
  return threads == 1 ? 0 : 1e-3 * options.transfer_ns * transfers;
}

void Run(const Options& options) {
  fmt::print("threads  groups  measured, us  modeled, us  modeled as one group, us\n");
  for (const int threads : options.threads) {
    const auto groups = static_cast<int>(ThreadPool(threads).groups());
    fmt::print("{:7}  {:6}  {:12.2f}  {:11.2f}  {:24.2f}\n", threads, groups, Measured(options, threads),
               Modeled(options, threads, groups), Modeled(options, threads, 1));
  }
}

}  // namespace
}  // namespace quire::bench

int main(int argc, char** argv) {
  quire::bench::Options options;
  CLI::App app("The cost of sharing out the tasks of a step", "fork_join_bench");
  app.add_option("-t,--threads", options.threads, "Threads")->delimiter(',');
  app.add_option("--tasks-per-thread", options.tasks_per_thread, "Tasks, for each thread");
  app.add_option("-r,--rounds", options.rounds, "Rounds that are measured");
  app.add_option("--transfer", options.transfer_ns, "Nanoseconds in which a cache line moves between cores");
  CLI11_PARSE(app, argc, argv);
  quire::bench::Run(options);
}
