#include "runner/engine/host.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <thread>
#include <variant>

#include "runner/engine/cpu_count.h"
#include "runner/engine/engine.h"
#include "runner/engine/link.h"
#include "runner/engine/loaded_model.h"
#include "runner/engine/mailbox.h"
#include "runner/engine/prepare.h"
#include "runner/weights/model_description.h"

namespace quire::runner::engine {
namespace {

namespace ipc = api::ipc;

constexpr int kExitBadLink = 2;
// Cache for this many sequences of the default context; longer ones take the place of several.
constexpr int32_t kSequences = 16;
constexpr int32_t kDefaultContext = 4096;

struct Setup {
  std::variant<ipc::LoadModel, ipc::InspectModel> request;
};
struct Preparation {
  ipc::Submit submit;
  Clock::time_point arrived;
};

// What the three threads share. Lives as long as the process.
struct Shared {
  Mailbox<Setup> setup;
  Mailbox<std::optional<Preparation>> prepare;  // nothing = end
  Mailbox<Input> engine;
};

// I/O thread.
void Dispatch(Shared& shared, ipc::ToRunner message) {
  std::visit(
      [&]<class T>(T& value) {
        if constexpr (std::is_same_v<T, ipc::LoadModel> || std::is_same_v<T, ipc::InspectModel>) {
          shared.setup.Post({std::move(value)});
        } else if constexpr (std::is_same_v<T, ipc::Submit>) {
          shared.engine.Post(Arrived{value.id});
          shared.prepare.Post(Preparation{std::move(value), Clock::now()});
        } else if constexpr (std::is_same_v<T, ipc::Shutdown>) {
          std::_Exit(EXIT_SUCCESS);
        } else {
          shared.engine.Post(value);
        }
      },
      message);
}

// I/O thread.
void EndProcess(const api::Result<void>& reason) {
  if (reason) std::_Exit(EXIT_SUCCESS);
  fmt::print(stderr, "quire-runner: {}\n", reason.error().message);
  std::_Exit(kExitBadLink);
}

// Prepare thread. `tokenizer` and `prompt_template` are immutable.
void PrepareAll(Shared& shared, const tokenizer::Tokenizer& tokenizer, const PromptTemplate& prompt_template,
                int32_t context_length) {
  while (true) {
    for (auto& item : shared.prepare.WaitAndTakeAll(std::chrono::hours(1))) {
      if (!item) return;
      auto prompt = Prepare(tokenizer, prompt_template, context_length, item->submit.request);
      shared.engine.Post(
          Prepared{item->submit.id, std::move(item->submit.request), std::move(prompt), item->arrived});
    }
  }
}

ipc::Inspected Inspect(const ipc::InspectModel& request) {
  const auto files = weights::Open(request.path);
  if (!files) {
    ipc::Inspected failed;
    failed.error = files.error();
    return failed;
  }
  auto description = weights::Describe(**files, request.verbose);
  description.chat_template = (*files)->chat_template();
  return description;
}

EngineLimits LimitsFor(int32_t context_length) {
  EngineLimits limits;
  limits.running_max = kSequences;
  limits.cache_tokens =
      std::max<int64_t>(int64_t{kSequences} * std::min(context_length, kDefaultContext), context_length) +
      int64_t{kSequences} * 64;
  return limits;
}

// Loads and serves; returns when the engine stops. The error was sent.
void Serve(Shared& shared, Link& link, const ipc::LoadModel& request) {
  const auto begin = Clock::now();
  auto model = Load(request.path, [&link](float fraction, std::string_view stage) {
    link.Send(ipc::LoadProgress{fraction, std::string(stage)});
  });
  if (!model) return link.Send(ipc::LoadFailed{model.error()});
  const int32_t trained = model->model->context_length();
  const int32_t context_length = request.num_ctx > 0 ? std::min(request.num_ctx, trained) : trained;
  const auto tokenizer = model->tokenizer;
  const auto prompt_template = model->prompt_template;
  ipc::ModelInfo info{.architecture = model->model->architecture(),
                      .context_length = trained,
                      .num_ctx = context_length,
                      .parameters = model->model->parameters(),
                      .weight_bytes = model->model->weight_bytes()};

  const int32_t threads = request.threads > 0 ? request.threads : UsableCores();
  auto engine = Engine::Create(std::move(*model), LimitsFor(context_length), threads, shared.engine,
                               [&link](ipc::ToDaemon message) { link.Send(message); });
  if (!engine) return link.Send(ipc::LoadFailed{engine.error()});
  info.cache_bytes = (*engine)->cache_bytes();
  std::jthread preparer([&] { PrepareAll(shared, *tokenizer, *prompt_template, context_length); });
  link.Send(
      ipc::Loaded{info, std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count()});
  (*engine)->Run();
  shared.prepare.Post(std::nullopt);
}

}  // namespace

int RunRunner(int fd) {
  Shared shared;
  Link link(
      fd, [&shared](ipc::ToRunner message) { Dispatch(shared, std::move(message)); }, EndProcess);
  link.Send(ipc::Hello{.pid = static_cast<int32_t>(getpid())});
  while (true) {
    for (auto& setup : shared.setup.WaitAndTakeAll(std::chrono::hours(1))) {
      if (const auto* load = std::get_if<ipc::LoadModel>(&setup.request)) {
        Serve(shared, link, *load);
      } else {
        link.Send(Inspect(std::get<ipc::InspectModel>(setup.request)));
      }
    }
  }
}

}  // namespace quire::runner::engine
