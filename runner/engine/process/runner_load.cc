#include "runner/engine/process/runner_load.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <future>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "api/base/file_descriptor.h"
#include "api/base/test_switch.h"
#include "runner/constraint/output_format.h"
#include "runner/engine/encoders/encoder_engine.h"
#include "runner/engine/process/byte_class.h"
#include "runner/engine/process/cpu_count.h"
#include "runner/engine/process/machine_memory.h"
#include "runner/engine/process/memory_estimate.h"
#include "runner/engine/process/sandbox.h"
#include "runner/engine/process/weights_budget.h"
#include "runner/engine/prompt/load_request.h"
#include "runner/engine/prompt/model_defaults.h"
#include "runner/engine/steps/cache_budget.h"
#include "runner/engine/steps/tier_link.h"
#include "runner/kernels/batch_invariance.h"
#include "runner/kernels/matmul.h"
#include "runner/kernels/numa_plan.h"
#include "runner/models/sentence_pooling.h"
#include "runner/weights/scratch_file.h"
#include "runner/work/log_line.h"

namespace quire::runner::engine {
namespace {

namespace ipc = api::ipc;

constexpr int kEncoderNice = 10;
// The files of one load: a converted model and draft model, and the model quantized.
constexpr size_t kScratchFilesMax = 3;
// Less than the daemon waits before it kills the process.
constexpr auto kFlushTime = std::chrono::milliseconds(1500);

// Creates the files that loading writes, while files can be created: what converts weights, by option or a
// directory's quantization, needs temporary ones.
FileAccess CreateFilesOf(const ipc::LoadModel& request) {
  const auto directory = [](const std::vector<ipc::ModelFile>& files) {
    return std::ranges::find(files, "config.json", &ipc::ModelFile::name) != files.end();
  };
  const bool converts = directory(request.files) || directory(request.draft_files) ||
                        !request.settings.quantize_on_load.empty();
  if (!converts) return FileAccess::kRead;
  weights::CreateScratchFiles(kScratchFilesMax);
  return FileAccess::kReadAndWrite;
}

// For tests: QUIRE_CHECK_INVARIANTS=N checks the caches every N steps, QUIRE_DRAFT_TOKENS=N drafts N tokens
// in every step, profitable or not. 0: not set.
int32_t TestSetting(const char* name) {
  const char* value = api::TestSwitch(name);
  return value != nullptr ? std::max(std::atoi(value), 1) : 0;
}

// For tests: preparing a raw prompt that is QUIRE_STUCK_PREPARATION never ends.
void WaitForeverIfSet(const PreparationJob& job) {
  static const char* const text = api::TestSwitch("QUIRE_STUCK_PREPARATION");
  const auto* prompt = std::get_if<api::RawPrompt>(&job.submit.request.prompt);
  if (text != nullptr && prompt != nullptr && prompt->text == text) std::promise<void>().get_future().wait();
}

void LogStreamed(const models::Model& model) {
  if (model.streamed_bytes() == 0) return;
  LogLine(fmt::format("{:.2f} GiB of the weights stay in the file and are read again for every step",
                      static_cast<double>(model.streamed_bytes()) / (1 << 30)));
}

// `missing`: what the kernel does not restrict.
void LogMissing(const std::string& missing) {
  if (!missing.empty()) LogLine("confined without: " + missing);
}

cache::ElementType StateTypeOf(api::KvType type) {
  if (type == api::KvType::kBF16) return cache::ElementType::kBF16;
  if (type == api::KvType::kQ8_0) return cache::ElementType::kQ8_0;
  return cache::ElementType::kF32;
}

void AddTier(Engine& engine, int snapshot_fd, int32_t context) {
  api::FileDescriptor socket(snapshot_fd);
  const api::FileDescriptor memory(snapshot_fd + 1);
  auto link = TierLink::Open(std::move(socket), memory, engine.cache_layout(),
                             ByteClass(engine.cache_layout(), context));
  if (!link) return LogLine("no snapshot tier: its memory cannot be mapped");
  engine.AddTier(std::move(link));
}

}  // namespace

RunnerLoad::RunnerLoad(HostState& state, Link& link, const ipc::LoadModel& request)
    : state_(state),
      link_(link),
      request_(request),
      progress_([&link](float fraction, std::string_view stage) {
        link.Send(ipc::LoadProgress{fraction, std::string(stage)});
      }),
      limits_{.prefix_cache = request.settings.prefix_cache,
              .state_cache_type = StateTypeOf(request.settings.state_cache_type),
              .draft_tokens = TestSetting("QUIRE_DRAFT_TOKENS"),
              .check_invariants_every = TestSetting("QUIRE_CHECK_INVARIANTS")} {}

api::Result<void> RunnerLoad::Serve() {
  SetComputeThreads(ThreadsOf(request_.settings.threads));
  if (!kernels::CheckBatchInvariance()) {
    LogLine(
        fmt::format("matrix products are not batch-invariant with {}; computing rows one at a time (slow)",
                    kernels::InstructionSet()));
    kernels::ForceSingleRow();
  }
  auto opened = OpenConfined();
  if (!opened) return std::unexpected(std::move(opened.error()));
  return opened->metadata_encoder ? ServeEncoder(*std::move(opened)) : ServeDecoder(*std::move(opened));
}

api::Result<OpenedModel> RunnerLoad::OpenConfined() {
  LogMissing(RestrictFileSystem(CreateFilesOf(request_)));
  if (auto confined = state_.CheckConfined(); !confined) return std::unexpected(std::move(confined.error()));
  options_ = LoadOptionsOf(request_);
  auto opened = Open(SourceOf(request_.path, request_.files), progress_, options_);
  options_.draft = {};  // all is mapped: from here on no descriptor of a file is open
  return opened;
}

api::Result<LoadedModel> RunnerLoad::Finish(OpenedModel opened, const ipc::MemoryEstimate& estimate) {
  link_.Send(estimate);
  std::vector<ipc::LoadApproved> answers;
  while (answers.empty()) answers = state_.load_approved.WaitAndPopAll(std::chrono::hours(1));
  limits_.cache_bytes = static_cast<size_t>(std::max<int64_t>(answers.back().cache_bytes, 1));
  return engine::Finish(std::move(opened), progress_, options_);
}

Preparation::Receivers RunnerLoad::Receivers() const {
  return {.built = [this](PromptBuilt built) { state_.engine.Post(std::move(built)); },
          .described = [this](ipc::RequestEvent event) { link_.Send(std::move(event)); },
          .before = WaitForeverIfSet};
}

api::Result<void> RunnerLoad::EndLoading(const ipc::ModelInfo& info) {
  weights::CloseScratchFiles();
  LogMissing(RestrictToServing());
  if (auto confined = state_.CheckConfined(); !confined) return confined;
  link_.Send(ipc::Loaded{info, std::chrono::nanoseconds(Clock::now() - begin_).count()});
  return {};
}

// Beside a chat, an encoder gets what the chat leaves. Where it is not allowed, both share.
api::Result<void> RunnerLoad::ServeEncoder(OpenedModel opened) {
  static_cast<void>(::setpriority(PRIO_PROCESS, 0, kEncoderNice));
  const int32_t context = opened.loaded.sentence->TokensMax(opened.metadata_encoder->context_length());
  const ipc::MemoryEstimate estimate = EstimateEncoder(*opened.metadata_encoder, ResidentBytes());
  auto model = Finish(std::move(opened), estimate);
  if (!model) return std::unexpected(std::move(model.error()));
  const models::Encoder& encoder = *model->encoder;
  const ipc::ModelInfo info{.architecture = encoder.architecture(),
                            .context_length = context,
                            .num_ctx = context,
                            .parameters = encoder.parameters(),
                            .weight_bytes = encoder.weight_bytes()};
  const PromptContext prompts{.tokenizer = model->tokenizer,
                              .prompt_template = *model->prompt_template,
                              .turn_start_token = {},
                              .fim_tokens = {},
                              .context_length = context,
                              .format = model->format,
                              .context_max = context,
                              .task = encoder.ranks() ? ModelTask::kRank : ModelTask::kEmbed,
                              .sentence = model->sentence.get()};
  EncoderEngine engine(std::move(model->encoder), ComputeThreads(), state_.engine, state_.engine_stats,
                       [this](ipc::RequestEvent event) { link_.Send(std::move(event)); });
  state_.preparation_max = PreparationMax(kPreparationCpuTime, context);
  const Preparation preparation(state_.prompts, prompts, kPreparationCpuTime, Receivers(), kEncoderNice);
  if (auto loaded = EndLoading(info); !loaded) return loaded;
  engine.Run();
  return {};
}

ipc::MemoryEstimate RunnerLoad::EstimateDecoder(const OpenedModel& opened) const {
  const models::Model& model = *opened.metadata_model;
  const DraftParts& draft = opened.metadata_draft;
  const size_t cache_needed =
      BudgetForContext(model.cache_layout(), draft.cache_layout(), request_.context_min);
  return EstimateMemory(
      model, limits_, ResidentBytes() + BytesBeside(draft, opened.metadata_tower.get(), limits_),
      model.context_length(), request_.settings.cache_bytes, MemoryLimitBytes(), cache_needed);
}

api::Result<void> RunnerLoad::ServeDecoder(OpenedModel opened) {
  const ModelTask other_task =
      models::IsSavedWithoutHead(*opened.loaded.files) ? ModelTask::kEmbed : ModelTask::kGenerate;
  if (auto fits = FitWeights(opened, limits_, request_.settings, options_); !fits) return fits;
  const int32_t context_length = opened.metadata_model->context_length();
  const ipc::MemoryEstimate estimate = EstimateDecoder(opened);
  LogStreamed(*opened.metadata_model);
  const weights::GenerationDefaults defaults =
      LoadModelDefaults(opened.loaded, request_.settings.model_sampling);
  auto model = Finish(std::move(opened), estimate);
  if (!model) return std::unexpected(std::move(model.error()));
  const auto tokenizer = model->tokenizer;
  const auto prompt_template = model->prompt_template;
  const auto turn_start_token = model->turn_start_token;
  const auto end_of_generation = model->end_of_generation;
  const output::Format format = model->format;
  const std::shared_ptr<const models::RankHead> rank = model->rank;
  const std::shared_ptr<const SentenceSettings> sentence = model->sentence;
  const ImageContext images = model->images;
  ipc::ModelInfo info{.architecture = model->model->architecture(),
                      .context_length = context_length,
                      .parameters = model->model->parameters(),
                      .weight_bytes = model->model->weight_bytes() + model->draft.resident_bytes(),
                      .supports_fim = prompt_template->SupportsFim() || FindFimTokens(*tokenizer)};
  info.draft_architecture = model->draft.architecture();
  const CacheShares caches =
      ShareCache(model->model->cache_layout(), model->draft.cache_layout(), limits_.cache_bytes);
  limits_.draft_cache_bytes = caches.draft;
  limits_.cache_bytes = caches.model;
  auto engine =
      Engine::Create(*std::move(model), limits_, ComputeThreads(), state_.engine, state_.engine_stats,
                     [this](ipc::RequestEvent event) { link_.Send(std::move(event)); });
  if (!engine) return std::unexpected(std::move(engine.error()));
  info.cache_bytes = (*engine)->cache_bytes();
  info.num_ctx = std::min(context_length, (*engine)->context_max());
  if (state_.snapshot_fd >= 0) AddTier(**engine, state_.snapshot_fd, context_length);
  constraint::ConstraintCache constraints([&] { return IndexVocabulary(*tokenizer, end_of_generation); },
                                          std::max(caches.constraints, kConstraintBytesMin));
  const PromptContext context{.tokenizer = tokenizer,
                              .prompt_template = *prompt_template,
                              .turn_start_token = turn_start_token,
                              .fim_tokens = FindFimTokens(*tokenizer),
                              .context_length = context_length,
                              .format = format,
                              .constraints = &constraints,
                              .context_max = info.num_ctx,
                              .task = rank ? ModelTask::kRank : other_task,
                              .rank_prompt = rank ? &rank->prompt : nullptr,
                              .end_of_generation = &end_of_generation,
                              .sentence = sentence.get(),
                              .defaults = &defaults,
                              .images = images};
  state_.preparation_max = PreparationMax(kPreparationCpuTime, context_length);
  const Preparation preparation(state_.prompts, context, kPreparationCpuTime, Receivers());
  if (auto loaded = EndLoading(info); !loaded) return loaded;
  state_.flushes = state_.snapshot_fd >= 0;
  (*engine)->Run();
  (*engine)->FlushTier(kFlushTime);
  std::_Exit(EXIT_SUCCESS);
}

}  // namespace quire::runner::engine
