// step_bench: what an engine's decode steps take beside their kernels: planning, the caches, sampling, text,
// events. One line per number of sequences.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "api/ipc/messages.h"
#include "runner/engine/cpu_count.h"
#include "runner/engine/engine.h"

namespace quire::bench {
namespace {

namespace engine = runner::engine;

struct Options {
  std::string model;
  std::vector<int> sequences = {1, 32};
  int threads = 0, prompt = 64, tokens = 128;
  double temperature = 0.8;
};

// Ends when all answers have; what they held goes as frames into memory that is reused.
struct Sink {
  void OnEvent(api::ipc::RequestEvent event) {
    const bool ends = std::holds_alternative<api::Finished>(event.event) ||
                      std::holds_alternative<api::Failed>(event.event);
    frames.clear();
    api::ipc::AppendFrame(api::ipc::ToDaemon(std::move(event)), frames);
    if (!ends) return;
    if (--running == 0) done.set_value();
  }
  int running = 0;
  std::string frames;
  std::promise<void> done;
};

void Measure(const Options& options, int sequences) {
  auto model = engine::Load(options.model, [](float, std::string_view) {});
  if (!model) throw std::runtime_error(model.error().message);
  model->end_of_generation.clear();
  const auto tokenizer = model->tokenizer;
  const auto prompt_template = model->prompt_template;
  const auto format = model->format;
  const int32_t context = model->model->context_length();
  const int32_t vocabulary = model->model->vocab_size();
  Sink sink;
  sink.running = sequences;
  engine::Mailbox<engine::Input> inbox;
  engine::EngineStats engine_stats;
  auto made = engine::Engine::Create(
      std::move(*model), {.prefill_tokens = 512, .cache_bytes = size_t{2} << 30},
      options.threads > 0 ? options.threads : engine::UsableCores(), inbox, engine_stats,
      [&](api::ipc::RequestEvent event) { sink.OnEvent(std::move(event)); });
  if (!made) throw std::runtime_error(made.error().message);
  const auto run = [&](uint64_t first, int32_t tokens) {
    sink.running = sequences;
    sink.done = {};
    for (int i = 0; i < sequences; ++i) {
      api::Request request;
      std::vector<api::TokenId> prompt;
      for (int t = 0; t < options.prompt; ++t) {
        prompt.push_back(static_cast<api::TokenId>((i * 7919 + t * 104729 + 1) % vocabulary));
      }
      request.prompt = api::TokenPrompt{prompt};
      request.params.num_predict = tokens;
      request.params.temperature = static_cast<float>(options.temperature);
      request.params.seed = i;
      request.delta_per_token = true;
      const api::RequestId id{first + static_cast<uint64_t>(i)};
      inbox.Post(engine::Arrived{id});
      auto built =
          engine::BuildPrompt({tokenizer, *prompt_template, {}, std::nullopt, context, format}, request);
      inbox.Post(engine::PromptBuilt{id, std::move(request), std::move(built), engine::Clock::now()});
    }
    std::thread thread([&] { (*made)->Run(); });
    sink.done.get_future().wait();
    inbox.Post(engine::Stop{});
    thread.join();
    return (*made)->stats();
  };
  // The same prompts again: what is computed beyond the first run are steps of decoding, but for a few.
  const auto before = run(1, 2), after = run(1000, options.tokens);
  using Milliseconds = std::chrono::duration<double, std::milli>;
  const auto steps = static_cast<double>(after.steps - before.steps);
  const double whole = Milliseconds(after.step_time - before.step_time).count() / steps;
  const double kernels = Milliseconds(after.kernel_time - before.kernel_time).count() / steps;
  fmt::print("| {} | {:.0f} | {:.3f} | {:.3f} | {:.1f} % |\n", sequences, steps, whole, kernels,
             100 * (whole - kernels) / whole);
}

}  // namespace
}  // namespace quire::bench

int main(int argc, char** argv) {
  quire::bench::Options options;
  CLI::App app{"Measures decode step overhead outside the kernels."};
  app.add_option("-m,--model", options.model, "GGUF file or Hugging Face directory")->required();
  app.add_option("-b,--sequences", options.sequences, "sequences decoded together")
      ->delimiter(',')
      ->check(CLI::Range(1, 32));
  app.add_option("-t,--threads", options.threads, "0 = one per core")->check(CLI::Range(0, 1024));
  app.add_option("-p,--n-prompt", options.prompt, "prompt tokens")->check(CLI::Range(1, 4096));
  app.add_option("-n,--n-gen", options.tokens, "tokens to decode")->check(CLI::Range(2, 250));
  app.add_option("--temperature", options.temperature, "0 = greedy")->check(CLI::Range(0.0, 2.0));
  CLI11_PARSE(app, argc, argv);
  fmt::print("| sequences | steps | ms a step | in kernels | outside |\n| --: | --: | --: | --: | --: |\n");
  try {
    for (const int sequences : options.sequences) quire::bench::Measure(options, sequences);
  } catch (const std::exception& error) {
    fmt::print(stderr, "step_bench: {}\n", error.what());
    return 1;
  }
  return 0;
}
