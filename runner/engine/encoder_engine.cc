#include "runner/engine/encoder_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>
#include <variant>

namespace quire::runner::engine {
namespace {

constexpr auto kEncoderIdle = std::chrono::milliseconds(500);
constexpr size_t kTextsMax = 256;  // of a step

int64_t NanosecondsOf(Clock::duration time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

}  // namespace

EncoderEngine::EncoderEngine(std::unique_ptr<models::Encoder> encoder, int32_t threads, Mailbox<Input>& inbox,
                             EngineStats& engine_stats, std::function<void(api::ipc::RequestEvent)> emit)
    : encoder_(std::move(encoder)),
      pool_(threads),
      inbox_(inbox),
      engine_stats_(engine_stats),
      emit_(std::move(emit)) {
  pool_.CountIn(engine_stats_.progress);
}

void EncoderEngine::Run() {
  pool_.PinCaller();
  while (true) {
    UpdateStats();
    for (auto& input : parties_.empty() ? inbox_.WaitAndPopAll(kEncoderIdle) : inbox_.PopAll()) {
      if (!HandleInput(std::move(input))) return;
    }
    if (!parties_.empty()) Step();
  }
}

bool EncoderEngine::HandleInput(Input input) {
  if (const auto* arrived = std::get_if<Arrived>(&input)) {
    building_.insert(static_cast<uint64_t>(arrived->id));
  } else if (auto* built = std::get_if<PromptBuilt>(&input)) {
    Enter(std::move(*built));
  } else if (const auto* cancel = std::get_if<api::ipc::Cancel>(&input)) {
    Cancel(cancel->id);
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
  Job job{.id = built.id,
          .tokens = std::move(built.prompt->tokens),
          .types = std::move(built.prompt->types),
          .dropped = built.prompt->dropped,
          .dimensions = embed->dimensions,
          .normalize = embed->normalize,
          .rank = embed->rank,
          .arrived = built.arrived};
  const std::string party = built.request.client.Party();
  auto found = std::ranges::find(parties_, party, &Party::name);
  if (found == parties_.end()) found = parties_.insert(found, {party, {}});
  found->jobs.push_back(std::move(job));
}

void EncoderEngine::Cancel(api::RequestId id) {
  building_.erase(static_cast<uint64_t>(id));
  for (Party& party : parties_) std::erase_if(party.jobs, [&](const Job& job) { return job.id == id; });
  std::erase_if(parties_, [](const Party& party) { return party.jobs.empty(); });
}

// One text of each party in turn, while there is room.
std::vector<EncoderEngine::Job> EncoderEngine::PickJobs() {
  std::vector<Job> jobs;
  size_t rows = 0;
  while (!parties_.empty() && jobs.size() < kTextsMax) {
    Party& party = parties_.front();
    const size_t more = party.jobs.front().tokens.size();
    if (!jobs.empty() && rows + more > kEncoderRows) break;
    rows += more;
    jobs.push_back(std::move(party.jobs.front()));
    party.jobs.pop_front();
    Party turned = std::move(party);
    parties_.pop_front();
    if (!turned.jobs.empty()) parties_.push_back(std::move(turned));
  }
  return jobs;
}

void EncoderEngine::Step() {
  const auto began = Clock::now();
  const std::vector<Job> jobs = PickJobs();
  models::EncoderBatch batch;
  batch.row_begin.reserve(jobs.size() + 1);
  batch.row_begin.push_back(0);
  for (const Job& job : jobs) {
    batch.tokens.insert(batch.tokens.end(), job.tokens.begin(), job.tokens.end());
    batch.types.insert(batch.types.end(), job.types.begin(), job.types.end());
    batch.types.resize(batch.tokens.size());
    batch.row_begin.push_back(static_cast<int32_t>(batch.tokens.size()));
  }
  const auto width = static_cast<size_t>(encoder_->hidden_size());
  hidden_.resize(batch.tokens.size() * width);
  encoder_->Forward(batch, pool_, hidden_);
  ++steps_;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const auto first = static_cast<size_t>(batch.row_begin[i]) * width;
    Finish(jobs[i], std::span(hidden_).subspan(first, jobs[i].tokens.size() * width), began);
  }
}

void EncoderEngine::Finish(const Job& job, std::span<const float> hidden, Clock::time_point began) {
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
  finished.usage.prompt_ns = NanosecondsOf(Clock::now() - began);
  finished.embedding = std::move(vector);
  emit_({job.id, std::move(finished)});
}

size_t EncoderEngine::waiting() const {
  size_t count = building_.size();
  for (const Party& party : parties_) count += party.jobs.size();
  return count;
}

void EncoderEngine::UpdateStats() {
  engine_stats_.progress.fetch_add(1, std::memory_order_relaxed);
  engine_stats_.steps.store(steps_, std::memory_order_relaxed);
  engine_stats_.waiting.store(static_cast<int32_t>(waiting()), std::memory_order_relaxed);
}

int64_t EncoderRowsMax(const models::Encoder& encoder) {
  return std::max(static_cast<int64_t>(kEncoderRows), int64_t{encoder.context_length()});
}

api::ipc::MemoryEstimate EstimateEncoder(const models::Encoder& encoder, int64_t process) {
  const int64_t rows = EncoderRowsMax(encoder);
  const int64_t hidden = rows * encoder.hidden_size() * static_cast<int64_t>(sizeof(float));
  return {.weight_bytes = encoder.resident_bytes(),
          .scratch_bytes = process + encoder.scratch_bytes(rows) + hidden,
          .cache_bytes = 1,  // an estimate without caches is none
          .cache_min_bytes = 1};
}

}  // namespace quire::runner::engine
