// The memory that preparing one request takes, with requests that are made to take much. Linked with
// counted_memory.cc.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <string>
#include <vector>

#include "api/base/request_memory.h"
#include "runner/constraint/output_format.h"
#include "runner/engine/process/preparation.h"
#include "runner/engine/prompt/loaded_model.h"
#include "runner/engine/testing/engine_harness.h"
#include "runner/work/work_memory.h"

namespace quire::runner::engine {
namespace {

using ::testing::HasSubstr;

constexpr size_t kMiB = size_t{1} << 20;

std::string Repeated(int count, std::string_view separator, auto text) {
  std::string all;
  for (int i = 0; i < count; ++i) all += fmt::format("{}{}", i == 0 ? "" : separator, text(i));
  return all;
}
std::string Repeated(int count, std::string_view text) {
  return Repeated(count, ",", [text](int) { return text; });
}

api::Request Chat(std::string content) {
  api::Request request;
  request.prompt = api::ChatPrompt{{{"user", std::move(content)}}};
  return request;
}

std::string SchemaOf(int values) { return R"({"enum":[[)" + Repeated(values, "[]") + "]]}"; }

class PreparationMemory : public ::testing::Test {
 protected:
  PreparationMemory()
      : model_(*Load(kDemoModel, [](float, std::string_view) {})),
        constraints_([this] { return IndexVocabulary(*model_.tokenizer, model_.end_of_generation); },
                     64 * kMiB) {}

  PromptContext context() {
    return {model_.tokenizer,
            *model_.prompt_template,
            model_.turn_start_token,
            FindFimTokens(*model_.tokenizer),
            model_.model->context_length(),
            model_.format,
            &constraints_};
  }
  static PreparationJob JobOf(api::Request request) {
    return {{api::RequestId{1}, std::move(request), {}}, Clock::now()};
  }
  // "built" without one.
  std::string ErrorOf(api::Request request, size_t bytes = kPreparationBytes) {
    const PromptContext context = this->context();
    const PreparationJob job = JobOf(std::move(request));
    const WorkMemory memory(size_t{16} << 30);
    const auto built = Prepare(context, job, {.cpu_time = std::chrono::hours(1), .bytes = bytes});
    peak_ = memory.peak();
    return *built ? "built" : built->error().message;
  }

  LoadedModel model_;
  constraint::ConstraintCache constraints_;
  size_t peak_ = 0;
};

TEST_F(PreparationMemory, ARequestThatNeedsMoreIsRefused) {
  api::Request request = Chat("Hello!");
  request.format = {api::OutputFormat::Kind::kSchema, SchemaOf(200'000), "format"};
  EXPECT_THAT(ErrorOf(std::move(request), 2 * kMiB), HasSubstr("more than 2 MiB of memory"));
  EXPECT_LE(peak_, 2 * kMiB);
  EXPECT_EQ(ErrorOf(Chat("Hello!"), 2 * kMiB), "built");
}

// The template says that there is no memory, and not why.
TEST_F(PreparationMemory, ATemplateThatNeedsMoreIsRefusedForIt) {
  api::Request request;
  request.prompt = api::ChatPrompt{std::vector<api::Message>(20'000, {"user", "a"})};
  EXPECT_THAT(ErrorOf(std::move(request), 2 * kMiB), HasSubstr("more than 2 MiB of memory"));
}

TEST_F(PreparationMemory, ToolsOf8MiBDoNotTakeMore) {
  api::Request request = Chat("Hello!");
  const std::string schema = R"({"const":[)" + Repeated(2'000'000, "[]") + "]}";
  std::get<api::ChatPrompt>(request.prompt).tools = {
      {.name = "f",
       .parameters_json = schema,
       .definition_json = R"({"type":"function","function":{"name":"f","parameters":)" + schema + "}}"}};
  EXPECT_THAT(ErrorOf(std::move(request)), HasSubstr("more than 256 MiB of memory"));
  EXPECT_LE(peak_, kPreparationBytes);
}

TEST_F(PreparationMemory, AnAllowedTextDoesNotTakeMore) {
  std::string text;
  while (text.size() < 15 * kMiB) text += " hello";
  api::Request request;
  request.prompt = api::RawPrompt{text};
  request.prompt_only = true;
  EXPECT_THAT(ErrorOf(request), HasSubstr("more than 4000000 tokens"));
  EXPECT_EQ(ErrorOf(Chat(text)), "built") << "its end is";
  EXPECT_LE(peak_, kPreparationBytes);
}

// Tries have less memory than the whole.
TEST_F(PreparationMemory, ATryIsNoRefusal) {
  PreparationQueue queue;
  const PromptContext shared = context();
  std::promise<std::string> refused;
  Preparation preparation(
      queue, shared, std::chrono::hours(1),
      {.built = [&](PromptBuilt built) { refused.set_value(built.prompt.error().message); },
       .described = {}});
  api::Request request = Chat("Hello!");
  request.format = {api::OutputFormat::Kind::kSchema, SchemaOf(300'000), "format"};
  queue.Push(JobOf(std::move(request)));
  EXPECT_THAT(refused.get_future().get(),
              HasSubstr("format: the format is too large: compiling it takes more than 128 MiB"));
}

TEST_F(PreparationMemory, APreparedRequestHasNoTexts) {
  const PromptContext shared = context();
  PreparationQueue queue;
  std::promise<size_t> left;
  const Preparation preparation(
      queue, shared, std::chrono::hours(1),
      {.built = [&](const PromptBuilt& built) { left.set_value(api::MemoryBytes(built.request)); },
       .described = {}});
  queue.Push(JobOf(Chat(std::string(size_t{1} << 20, ' '))));
  EXPECT_LE(left.get_future().get(), size_t{1} << 12);
}

}  // namespace
}  // namespace quire::runner::engine
