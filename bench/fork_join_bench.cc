// fork_join_bench: what handing out the tasks of a step costs, by threads: measured here with tasks that take no time, and
// simulated for a machine that has a core for each thread (fork_join_model.h) with tasks of `--task` microseconds.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <vector>

#include "bench/fork_join_model.h"
#include "runner/kernels/thread_pool.h"

namespace quire::bench {
namespace {

using runner::ThreadPool;

struct Options {
  std::vector<int> threads = {1, 2, 4, 8, 16, 32, 64, 128, 192};
  int tasks_per_thread = 4, rounds = 2000;
  double transfer_ns = 60, task_us = 2;
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

void Run(const Options& options) {
  fmt::print("threads  groups  measured, us  simulated, us  in one group, us\n");
  for (const int threads : options.threads) {
    const auto groups = static_cast<int>(ThreadPool(threads).groups());
    ForkJoinShape shape{.threads = threads,
                        .groups = groups,
                        .tasks_per_thread = options.tasks_per_thread,
                        .task_us = options.task_us,
                        .transfer_us = 1e-3 * options.transfer_ns};
    const double grouped = ModelForkJoin(shape);
    shape.groups = 1;
    fmt::print("{:7}  {:6}  {:12.2f}  {:13.2f}  {:16.2f}\n", threads, groups, Measured(options, threads),
               grouped, ModelForkJoin(shape));
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
  app.add_option("--task", options.task_us, "Microseconds that a simulated task takes");
  CLI11_PARSE(app, argc, argv);
  quire::bench::Run(options);
}
