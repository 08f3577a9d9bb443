#include "server/self_test.h"

#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <spdlog/spdlog.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "scheduler/dispatcher.h"
#include "server/program_files.h"
#include "server/store/bundled_models.h"

namespace quire::server {
namespace {

namespace asio = boost::asio;
namespace fs = std::filesystem;
using api::ipc::SelfTestStatus;

constexpr std::string_view kQuestion = "What is a prefix cache?";
// Greedy: the same on every machine and with every instruction set.
constexpr std::string_view kAnswer =
    "A prefix cache keeps the state of prompts that were already processed. When a new prompt starts with "
    "the same "
    "tokens, Quire reuses that state instead of computing it again.";
constexpr int32_t kTokensMax = 64;
constexpr int32_t kContext = 256;
constexpr std::chrono::seconds kStopTime(10);

void Print(std::string_view subject, std::string_view result, std::string_view text) {
  fmt::print("{:<9}{:<9}{}\n", subject, result, text);
  std::fflush(stdout);
}

// What the runner's own checks ended with. A runner that a signal ends has met an instruction that this CPU
// does not have, or worse.
SelfTestStatus CheckRunner(const fs::path& runner) {
  std::string path = runner.string(), flag = "--selftest";
  char* const arguments[] = {path.data(), flag.data(), nullptr};
  pid_t pid = 0;
  if (const int error = ::posix_spawn(&pid, path.c_str(), nullptr, nullptr, arguments, environ); error != 0) {
    Print("runner", "FAILED", fmt::format("cannot start {}: {}", path, std::strerror(error)));
    return SelfTestStatus::kNotRun;
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return SelfTestStatus::kNotRun;
  }
  if (WIFSIGNALED(status)) {
    Print("runner", "FAILED",
          fmt::format("ended by signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status))));
    return SelfTestStatus::kKernels;
  }
  const auto result = static_cast<SelfTestStatus>(WEXITSTATUS(status));
  switch (result) {
    case SelfTestStatus::kPassed:
    case SelfTestStatus::kKernels:
    case SelfTestStatus::kSandbox:
      return result;
    case SelfTestStatus::kNotRun:
    case SelfTestStatus::kAnswer:
      break;
  }
  Print("runner", "FAILED", fmt::format("{} --selftest exited with status {}", path, WEXITSTATUS(status)));
  return SelfTestStatus::kNotRun;
}

scheduler::Awaitable<api::Result<std::string>> Answer(scheduler::Dispatcher& dispatcher, fs::path model) {
  scheduler::ModelSpec spec{.key = "selftest", .name = "quire-demo", .path = std::move(model)};
  api::Message message{.role = "user", .content = std::string(kQuestion)};
  api::Request request;
  request.prompt = api::ChatPrompt{.messages = {std::move(message)}};
  request.params.temperature = 0;
  request.params.num_predict = kTokensMax;
  request.params.num_ctx = kContext;
  auto stream = co_await dispatcher.Submit(std::move(spec), std::move(request), std::nullopt);
  if (!stream) co_return std::unexpected(std::move(stream).error());
  std::string text;
  for (;;) {
    api::Event event = co_await (*stream)->Next();
    if (auto* const delta = std::get_if<api::TextDelta>(&event)) text += delta->text;
    if (auto* const failed = std::get_if<api::Failed>(&event))
      co_return std::unexpected(std::move(failed->error));
    if (std::holds_alternative<api::Finished>(event)) co_return text;
  }
}

// The coroutine's result, nothing if it never came.
scheduler::Awaitable<void> AnswerAndStop(scheduler::Dispatcher& dispatcher, fs::path model,
                                         std::optional<api::Result<std::string>>& result) {
  result = co_await Answer(dispatcher, std::move(model));
  co_await dispatcher.Drain(std::chrono::steady_clock::now() + kStopTime);
}

api::Result<std::string> RunBundledModel(const fs::path& runner, const fs::path& model) {
  std::optional<api::Result<std::string>> result;
  {
    asio::io_context io(1);
    scheduler::Dispatcher dispatcher(io.get_executor(), runner, {});
    asio::co_spawn(io, AnswerAndStop(dispatcher, model, result),
                   [&io](const std::exception_ptr&) { io.stop(); });
    io.run();
  }
  if (!result) return api::Fail(api::ErrorCode::kInternal, "the request was given up");
  return *std::move(result);
}

SelfTestStatus CheckAnswer(const fs::path& runner) {
  const auto models = FindBundledModels(ExecutableDirectory());
  if (!models) {
    Print("answer", "FAILED", "the bundled model is not installed");
    return SelfTestStatus::kNotRun;
  }
  const auto answer = RunBundledModel(runner, BundledWeights(*models));
  if (!answer) {
    Print("answer", "FAILED", answer.error().message);
    return SelfTestStatus::kAnswer;
  }
  if (*answer != kAnswer) {
    Print("answer", "FAILED", fmt::format("quire-demo answers \"{}\", recorded is \"{}\"", *answer, kAnswer));
    return SelfTestStatus::kAnswer;
  }
  Print("answer", "ok", "quire-demo answers as recorded");
  return SelfTestStatus::kPassed;
}

}  // namespace

SelfTestStatus RunSelfTest(const OptionTable& table) {
  spdlog::set_level(spdlog::level::err);
  const auto options = table.Resolve(ProcessEnvironment());
  const auto runner = options ? FindRunner(*options) : std::unexpected(options.error());
  if (!runner) {
    Print("runner", "FAILED", runner.error().message);
    return SelfTestStatus::kNotRun;
  }
  ::signal(SIGPIPE, SIG_IGN);
  const SelfTestStatus checked = CheckRunner(*runner);
  if (checked != SelfTestStatus::kPassed && checked != SelfTestStatus::kSandbox) return checked;
  const SelfTestStatus answered = CheckAnswer(*runner);
  return answered == SelfTestStatus::kPassed ? checked : answered;
}

}  // namespace quire::server
