// A dispatcher over fake runners, and the shorthand its tests are written in.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "api/base/file_descriptor.h"
#include "scheduler/dispatcher.h"
#include "scheduler/testing/io_loop.h"

namespace quire::scheduler {

// Everything that came of a request.
struct Outcome {
  std::string text;
  std::optional<api::PromptReady> ready;
  std::optional<api::Finished> finished;
  std::optional<api::Error> failed;
};

// The program that plays a runner in tests.
const char* FakeRunnerPath();

// Each test ends with a drain that leaves no child behind.
class DispatcherFixture : public ::testing::Test {
 protected:
  using TokenStreamResult = api::Result<std::unique_ptr<TokenStream>>;
  using TokenStreamTask = std::shared_ptr<Task<TokenStreamResult>>;

  DispatcherFixture() {
    std::string name = (std::filesystem::temp_directory_path() / "quire-scheduler-XXXXXX").string();
    if (!::mkdtemp(name.data())) throw std::runtime_error("mkdtemp");
    directory_ = name;
    limits_.stop_grace = std::chrono::minutes(1);
    limits_.stall_timeout = std::chrono::minutes(1);
    limits_.probation_time = std::chrono::milliseconds(50);
  }
  ~DispatcherFixture() override { std::filesystem::remove_all(directory_); }

  void TearDown() override {
    if (!dispatcher_) return;
    Drain(std::chrono::steady_clock::now());
    ExpectNoChildren();
  }

  Limits& limits() { return limits_; }  // before the first use of dispatcher()
  Dispatcher& dispatcher() {
    if (!dispatcher_) dispatcher_.emplace(loop_.executor(), FakeRunnerPath(), limits_);
    return *dispatcher_;
  }
  void DestroyDispatcher() { dispatcher_.reset(); }
  IoLoop& loop() { return loop_; }
  const std::filesystem::path& directory() const { return directory_; }

  // An empty file whose name tells a runner what to do.
  std::filesystem::path Model(const std::string& mode) const {
    std::ofstream(directory_ / mode, std::ios::app).flush();
    return directory_ / mode;
  }
  // A model whose load does what `mode` says; `key` tells two of the same mode apart.
  ModelSpec Spec(const std::string& mode, const std::string& key = "") {
    return ModelSpec{key.empty() ? mode : key, key.empty() ? mode : key, Model(mode)};
  }
  static api::Request Raw(std::string text) {
    api::Request request;
    request.prompt = api::RawPrompt{std::move(text)};
    return request;
  }

  TokenStreamTask Submit(const ModelSpec& spec, const std::string& prompt,
                         std::optional<KeepAlive> keep_alive = {}) {
    return loop_.Spawn(dispatcher().Submit(spec, Raw(prompt), keep_alive));
  }
  // Waits for the model and returns its token stream.
  std::unique_ptr<TokenStream> StartGeneration(const ModelSpec& spec, const std::string& prompt,
                                               std::optional<KeepAlive> keep_alive = {}) {
    TokenStreamResult result = loop_.Wait(Submit(spec, prompt, keep_alive));
    if (!result) throw std::runtime_error(result.error().message);
    return *std::move(result);
  }
  api::Event Next(TokenStream& stream) { return loop_.Run(stream.Next()); }
  // The token stream has begun and its PromptReady is taken.
  std::unique_ptr<TokenStream> StartReady(const ModelSpec& spec, const std::string& prompt,
                                          std::optional<KeepAlive> keep_alive = {}) {
    auto stream = StartGeneration(spec, prompt, keep_alive);
    EXPECT_TRUE(std::holds_alternative<api::PromptReady>(Next(*stream)));
    return stream;
  }
  Outcome Finish(TokenStream& stream) {
    Outcome outcome;
    while (!outcome.finished && !outcome.failed) {
      api::Event event = Next(stream);
      if (auto* ready = std::get_if<api::PromptReady>(&event)) outcome.ready = *ready;
      if (auto* delta = std::get_if<api::TextDelta>(&event)) outcome.text += delta->text;
      if (auto* finished = std::get_if<api::Finished>(&event)) outcome.finished = *finished;
      if (auto* failed = std::get_if<api::Failed>(&event)) outcome.failed = failed->error;
    }
    return outcome;
  }
  Outcome Generate(const ModelSpec& spec, const std::string& prompt,
                   std::optional<KeepAlive> keep_alive = {}) {
    auto stream = StartGeneration(spec, prompt, keep_alive);
    return Finish(*stream);
  }
  api::Error RefusalOf(const TokenStreamTask& task) {
    TokenStreamResult result = loop_.Wait(task);
    if (result) throw std::runtime_error("the request was taken");
    return result.error();
  }

  std::vector<std::string> LoadedKeys() {
    std::vector<std::string> keys;
    for (const LoadedModel& model : dispatcher().Loaded()) keys.push_back(model.spec.key);
    return keys;
  }
  void Drain(std::chrono::steady_clock::time_point deadline) { loop_.Run(dispatcher().Drain(deadline)); }

  // The gate that a "gate-load" waits at.
  void MakeGate() {
    const std::filesystem::path gate = directory_ / "gate";
    if (::mkfifo(gate.c_str(), 0600) != 0) throw std::runtime_error("mkfifo");
    gate_ = api::FileDescriptor(
        ::open(gate.c_str(), O_RDWR | O_CLOEXEC));  // both ends, so that opening waits for nobody
  }
  // Lets one through, now or when it comes.
  void OpenGate() const {
    if (::write(gate_.get(), "x", 1) != 1) throw std::runtime_error("write");
  }

  // Zombies count, and are left for their parent to reap.
  static bool HasChildren() {
    siginfo_t info{};
    return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
  }
  static void ExpectNoChildren() {
    EXPECT_FALSE(HasChildren()) << "a runner is left";
    EXPECT_EQ(errno, ECHILD);
  }

 private:
  std::filesystem::path directory_;
  api::FileDescriptor gate_;
  Limits limits_;
  IoLoop loop_;
  std::optional<Dispatcher> dispatcher_;
};

}  // namespace quire::scheduler
