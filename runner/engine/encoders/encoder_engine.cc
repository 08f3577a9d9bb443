#include "runner/engine/encoders/encoder_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>
#include <vector>

namespace quire::runner::engine {
namespace {

constexpr auto kEncoderIdle = std::chrono::milliseconds(500);

int64_t NanosecondsOf(Clock::duration time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

}  // namespace

EncoderEngine::EncoderEngine(std::unique_ptr<models::Encoder> encoder, int32_t threads, Mailbox<Input>& inbox,
                             EngineStats& engine_stats, std::function<void(api::ipc::RequestEvent)> emit,
                             EncoderLimits limits)
    : encoder_(std::move(encoder)),
      limits_(std::move(limits)),
      pool_(threads),
      inbox_(inbox),
      engine_stats_(engine_stats),
      emit_(std::move(emit)),
      turns_(encoder_->context_length()),
      slices_(limits_.slice) {
  pool_.CountIn(engine_stats_.progress);
}

void EncoderEngine::Run() {
  pool_.PinCaller();
  while (true) {
    UpdateStats();
    for (auto& input : turns_.empty() ? inbox_.WaitAndPopAll(kEncoderIdle) : inbox_.PopAll()) {
      if (!HandleInput(std::move(input))) return;
    }
    if (!turns_.empty()) Step();
  }
}

bool EncoderEngine::HandleInput(Input input) {
  if (const auto* arrived = std::get_if<Arrived>(&input)) {
    building_.insert(static_cast<uint64_t>(arrived->id));
  } else if (auto* built = std::get_if<PromptBuilt>(&input)) {
    Enter(std::move(*built));
  } else if (const auto* cancel = std::get_if<api::ipc::Cancel>(&input)) {
    Cancel(cancel->id);
  } else if (const auto* about_engine = std::get_if<EngineQuestion>(&input)) {
    about_engine->answer({.id = about_engine->question.id,
                          .building = static_cast<int32_t>(building_.size()),
                          .steps = steps_});
  } else if (const auto* about_cache = std::get_if<CacheQuestion>(&input)) {
    about_cache->answer({.id = about_cache->question.id});  // there is none
  } else {
    return !std::holds_alternative<Stop>(input);
  }
  return true;
}

void EncoderEngine::Enter(PromptBuilt built) {
  if (building_.erase(static_cast<uint64_t>(built.id)) == 0) return;  // canceled meanwhile
  const auto fail = [&](api::Error error) { emit_({built.id, api::Failed{std::move(error)}}); };
  if (!built.prompt) return fail(built.prompt.error());
  const auto* embed = std::get_if<api::EmbedPrompt>(&built.request.prompt);
  if (embed == nullptr) return fail({api::ErrorCode::kUnsupported, "this model does not generate text"});
  if (embed->dimensions > encoder_->vector_size()) {
    return fail({api::ErrorCode::kInvalidArgument,
                 fmt::format("field \"dimensions\" is {}; the embeddings of this model have {} dimensions",
                             embed->dimensions, encoder_->vector_size()),
                 "dimensions"});
  }
  EncoderJob job{.id = built.id,
                 .tokens = std::move(built.prompt->tokens),
                 .types = std::move(built.prompt->types),
                 .dropped = built.prompt->dropped,
                 .dimensions = embed->dimensions,
                 .normalize = embed->normalize,
                 .rank = embed->rank,
                 .arrived = built.arrived};
  turns_.Add(built.request.client, std::move(job));
}

void EncoderEngine::Cancel(api::RequestId id) {
  building_.erase(static_cast<uint64_t>(id));
  turns_.Cancel(id);
}

models::EncoderPass EncoderEngine::StartPass(const EncoderTurns::Task& task) {
  models::EncoderBatch batch;
  batch.tokens.reserve(static_cast<size_t>(task.rows));
  batch.row_begin.reserve(task.texts.size() + 1);
  batch.row_begin.push_back(0);
  for (const auto* const text : task.texts) {
    const EncoderJob& job = text->job;
    batch.tokens.insert(batch.tokens.end(), job.tokens.begin(), job.tokens.end());
    batch.types.insert(batch.types.end(), job.types.begin(), job.types.end());
    batch.types.resize(batch.tokens.size());
    batch.row_begin.push_back(static_cast<int32_t>(batch.tokens.size()));
  }
  if (task.rows > kEncoderRows) return encoder_->Start(std::move(batch));
  return encoder_->Start(std::move(batch), std::exchange(spare_, {}));
}

void EncoderEngine::Step() {
  EncoderTurns::Task* const task = turns_.Choose(passes_.Tokens(0));
  if (task == nullptr) return;
  const auto began = limits_.clock();
  if (!task->pass) {
    task->pass = StartPass(*task);
    task->began = began;
  }
  models::EncoderPass& pass = *task->pass;
  auto now = began;
  do {
    const auto slice_began = now;
    const int32_t keys = encoder_->KeysOfNext(pass);
    const int64_t rows = encoder_->Advance(pass, pool_, slices_.Rows(keys));
    now = limits_.clock();
    slices_.Observe(keys, rows, now - slice_began);
  } while (!pass.done() && now - began < limits_.turn);
  const bool done = pass.done();
  task->spent += now - began;
  if (done) FinishTask(*task);
  turns_.EndTurn(*task, now - began, done);
}

void EncoderEngine::FinishTask(EncoderTurns::Task& task) {
  ++steps_;
  if (task.rows <= kEncoderRows) {
    passes_.Observe(0, static_cast<int32_t>(task.rows), task.spent);
  }
  const auto width = static_cast<size_t>(encoder_->hidden_size());
  size_t row = 0;
  for (const auto* const text : task.texts) {
    const auto rows = static_cast<size_t>(text->job.rows());
    if (!text->canceled)
      Finish(text->job, task.pass->hidden().subspan(row * width, rows * width), task.began);
    row += rows;
  }
  if (task.rows <= kEncoderRows) spare_ = *std::move(task.pass);
}

void EncoderEngine::Finish(const EncoderJob& job, std::span<const float> hidden, Clock::time_point began) {
  std::vector<float> vector;
  const models::EncoderHead& head = encoder_->head();
  if (job.rank) {
    vector.push_back(head.Score(pool_, hidden, encoder_->hidden_size()));
  } else {
    vector = models::EncoderHead::Finish(head.Pool(pool_, hidden, encoder_->hidden_size()), job.dimensions,
                                         job.normalize);
  }
  if (!std::ranges::all_of(vector, [](float value) { return std::isfinite(value); })) {
    return emit_({job.id, api::Failed{{api::ErrorCode::kInternal,
                                       "the model's hidden states for this text are not finite"}}});
  }
  const auto tokens = static_cast<int32_t>(job.tokens.size());
  emit_({job.id, api::PromptReady{.prompt_tokens = tokens}});
  api::Finished finished{
      .reason = api::FinishReason::kStop, .stop_string = {}, .usage = {}, .prompt_dropped = job.dropped};
  finished.usage.prompt_tokens = tokens;
  finished.usage.queue_ns = NanosecondsOf(began - job.arrived);
  finished.usage.prompt_ns = NanosecondsOf(limits_.clock() - began);
  finished.embedding = std::move(vector);
  emit_({job.id, std::move(finished)});
}

void EncoderEngine::UpdateStats() {
  engine_stats_.progress.fetch_add(1, std::memory_order_relaxed);
  engine_stats_.steps.store(steps_, std::memory_order_relaxed);
  engine_stats_.running.store(static_cast<int32_t>(turns_.running()), std::memory_order_relaxed);
  engine_stats_.waiting.store(static_cast<int32_t>(building_.size() + turns_.waiting()),
                              std::memory_order_relaxed);
}

api::ipc::MemoryEstimate EstimateEncoder(const models::Encoder& encoder, int64_t process) {
  const int64_t context = encoder.context_length(),
                rows = EncoderTurns::RowsMax(context) + kEncoderRows;  // those of the spare pass too
  // Some heads map every state before they pool.
  const int64_t head =
      encoder.head().score.late ? context * encoder.hidden_size() * static_cast<int64_t>(sizeof(float)) : 0;
  const int64_t scratch = encoder.scratch_bytes(SliceTarget().rows_max) + encoder.pass_bytes(rows) + head;
  return {.weight_bytes = encoder.resident_bytes(),
          .scratch_bytes = process + scratch,
          .cache_bytes = 1,  // an estimate without caches is none
          .cache_min_bytes = 1};
}

}  // namespace quire::runner::engine
