#include "runner/engine/process/host.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <future>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "api/base/test_switch.h"
#include "runner/constraint/output_format.h"
#include "runner/engine/encoders/encoder_engine.h"
#include "runner/engine/process/byte_class.h"
#include "runner/engine/process/convert.h"
#include "runner/engine/process/cpu_count.h"
#include "runner/engine/process/heartbeat.h"
#include "runner/engine/process/link.h"
#include "runner/engine/process/machine_memory.h"
#include "runner/engine/process/memory_estimate.h"
#include "runner/engine/process/preparation.h"
#include "runner/engine/process/sandbox.h"
#include "runner/engine/process/weights_budget.h"
#include "runner/engine/prompt/chat_form.h"
#include "runner/engine/prompt/load_request.h"
#include "runner/engine/prompt/loaded_model.h"
#include "runner/engine/prompt/model_defaults.h"
#include "runner/engine/steps/cache_budget.h"
#include "runner/engine/steps/engine.h"
#include "runner/engine/steps/mailbox.h"
#include "runner/engine/steps/tier_link.h"
#include "runner/kernels/batch_invariance.h"
#include "runner/kernels/matmul.h"
#include "runner/kernels/numa_plan.h"
#include "runner/models/sentence_pooling.h"
#include "runner/weights/model_description.h"
#include "runner/weights/output_file.h"
#include "runner/weights/scratch_file.h"
#include "runner/work/log_line.h"

namespace quire::runner::engine {
namespace {

namespace ipc = api::ipc;

constexpr int kExitBadLink = 2;
constexpr int kEncoderNice = 10;
// The files of one load: a converted model and draft model, and the model quantized.
constexpr size_t kScratchFilesMax = 3;
// Less than the daemon waits before it kills the process.
constexpr auto kFlushTime = std::chrono::milliseconds(1500);

struct Setup {
  std::variant<ipc::LoadModel, ipc::InspectModel, ipc::ConvertModel> request;
};

// State shared by the threads. Lives as long as the process.
struct Shared {
  Mailbox<Setup> setup;
  Mailbox<ipc::LoadApproved> load_approved;
  PreparationQueue prompts;
  Mailbox<Input> engine;
  EngineStats engine_stats;
  std::atomic<std::chrono::nanoseconds> preparation_max{};  // of a request, by the model
  int snapshot_fd = -1;                                     // of the tier's socket; -1 = none
  bool require_sandbox = false;
  std::atomic<bool> flushes = false;  // the engine runs, and has a tier
};

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

// I/O thread. The engine is not asked for what the caller has.
void InspectCache(Shared& shared, Link& link, ipc::InspectCache question) {
  const uint64_t version = shared.engine_stats.prefix_changes.load(std::memory_order_relaxed);
  if (version != 0 && version == question.known_version) {
    return link.Send(ipc::CacheInspected{.id = question.id, .version = version, .unchanged = true});
  }
  const auto answer = [&link](ipc::CacheInspected inspected) { link.Send(std::move(inspected)); };
  shared.engine.Post(CacheQuestion{std::move(question), answer});
}

// I/O thread.
void Dispatch(Shared& shared, Link& link, ipc::ToRunner message) {
  std::visit(
      [&]<class T>(T& value) {
        if constexpr (std::is_same_v<T, ipc::LoadModel> || std::is_same_v<T, ipc::InspectModel> ||
                      std::is_same_v<T, ipc::ConvertModel>) {
          // This thread started before: the one that reads the model restricts itself, and reports.
          static_cast<void>(RestrictThread());
          shared.setup.Post({std::move(value)});
        } else if constexpr (std::is_same_v<T, ipc::Submit>) {
          if (!value.request.prompt_only) shared.engine.Post(Arrived{value.id});
          shared.prompts.Push({std::move(value), Clock::now()});
        } else if constexpr (std::is_same_v<T, ipc::Shutdown>) {
          if (!shared.flushes) std::_Exit(EXIT_SUCCESS);
          shared.engine.Post(Stop{});
        } else if constexpr (std::is_same_v<T, ipc::LoadApproved>) {
          shared.load_approved.Post(value);
        } else if constexpr (std::is_same_v<T, ipc::InspectEngine>) {
          shared.engine.Post(
              EngineQuestion{value, [&link](ipc::EngineInspected answer) { link.Send(std::move(answer)); }});
        } else if constexpr (std::is_same_v<T, ipc::InspectCache>) {
          InspectCache(shared, link, std::move(value));
        } else {
          if constexpr (std::is_same_v<T, ipc::Cancel>) shared.prompts.Cancel(value.id);
          shared.engine.Post(value);
        }
      },
      message);
}

// I/O thread. A request whose preparation is stuck fails alone; those beside it go on in the next runner.
ipc::ToDaemon NextHeartbeat(Shared& shared, Link& link) {
  static HeartbeatSource heartbeats(shared.engine_stats, shared.prompts, [&shared, &link](api::RequestId id) {
    shared.prompts.Cancel(id);
    shared.engine.Post(ipc::Cancel{id});
    link.Send(
        ipc::RequestEvent{id, api::Failed{{api::ErrorCode::kInternal,
                                           "preparing the request does not end; its runner is replaced"}}});
  });
  return heartbeats.Next(shared.preparation_max.load());
}

// I/O thread.
void EndProcess(const api::Result<void>& reason) {
  if (reason) std::_Exit(EXIT_SUCCESS);
  LogLine(reason.error().message);
  std::_Exit(kExitBadLink);
}

// What loading takes, and the context that it gives.
void EstimateLoad(const models::Model& model, const DraftParts& draft, const models::VisionTower* tower,
                  const ipc::InspectModel& request, ipc::Inspected& inspected) {
  const EngineLimits limits{.prefix_cache = request.settings.prefix_cache};
  const cache::Layout& layout = model.cache_layout();
  inspected.context_length = model.context_length();
  inspected.memory = EstimateMemory(model, limits, ResidentBytes() + BytesBeside(draft, tower, limits),
                                    model.context_length(), request.settings.cache_bytes, MemoryLimitBytes());
  const auto caches =
      ShareCache(layout, draft.cache_layout(), static_cast<size_t>(inspected.memory->cache_bytes));
  const int32_t fits = ContextThatFits(layout, model.context_length(), caches.model);
  inspected.num_ctx = request.num_ctx > 0 ? std::min(request.num_ctx, fits) : fits;
}

// Its directory may say that texts are shorter than the model could take.
void EstimateEncoderLoad(const weights::ModelFiles& files, const models::Encoder& encoder,
                         ipc::Inspected& inspected) {
  inspected.context_length = SentenceSettings::Of(files).TokensMax(encoder.context_length());
  inspected.num_ctx = inspected.context_length;
  inspected.memory = EstimateEncoder(encoder, ResidentBytes());
}

// The threads of a step, where `asked` were asked for; 0: those that fit this machine.
int ThreadsOf(int asked) { return asked > 0 ? asked : UsableCores(); }

// The files, with what is known of their load. Without check_load, nothing is known of what cannot be loaded.
api::Result<std::shared_ptr<const weights::ModelFiles>> OpenFiles(const ipc::InspectModel& request,
                                                                  LoadOptions options,
                                                                  ipc::Inspected& inspected) {
  const weights::ModelSource source = SourceOf(request.path, request.files);
  const EngineLimits limits{.prefix_cache = request.settings.prefix_cache};
  if (request.check_load) {
    auto opened = Open(
        source, [](float, std::string_view) {}, options);
    if (!opened) return std::unexpected(std::move(opened.error()));
    if (opened->metadata_encoder) {
      EstimateEncoderLoad(*opened->loaded.files, *opened->metadata_encoder, inspected);
      return std::move(opened->loaded.files);
    }
    if (auto fits = FitWeights(*opened, limits, request.settings, options); !fits) {
      return std::unexpected(std::move(fits.error()));
    }
    EstimateLoad(*opened->metadata_model, opened->metadata_draft, opened->metadata_tower.get(), request,
                 inspected);
    return std::move(opened->loaded.files);
  }
  auto files = weights::Open(source);
  if (!files) return files;
  if (models::IsEncoder(**files)) {
    const auto encoder = LoadMetadataEncoder(*files, options);
    if (encoder) EstimateEncoderLoad(**files, **encoder, inspected);
    return files;
  }
  auto model = LoadMetadataModel(*files, options);
  if (!model) return files;
  const auto panels =
      ChoosePanelBytes(*files, options, **model, limits, RoomFor({}, nullptr, limits, request.settings));
  if (panels && *panels != weights::kNoPanelLimit) {
    options.panel_bytes_max = *panels;
    model = LoadMetadataModel(*files, options);
  }
  if (model) EstimateLoad(**model, {}, nullptr, request, inspected);
  return files;
}

// As far as it is required.
api::Result<void> CheckConfined(const Shared& shared) {
  return shared.require_sandbox ? CheckSandbox() : api::Result<void>();
}

ipc::Inspected Inspect(const Shared& shared, const ipc::InspectModel& request) {
  SetComputeThreads(ThreadsOf(request.settings.threads));
  static_cast<void>(RestrictFileSystem(FileAccess::kRead));
  ipc::Inspected load;
  const auto confined = CheckConfined(shared);
  const LoadOptions options = confined ? LoadOptionsOf(request) : LoadOptions{};
  const auto files = confined ? OpenFiles(request, options, load) : std::unexpected(confined.error());
  if (!files) {
    ipc::Inspected failed;
    failed.error = files.error();
    return failed;
  }
  auto description = weights::Describe(**files, request.verbose, request.settings.model_sampling);
  description.memory = load.memory;
  description.context_length = load.context_length;
  description.num_ctx = load.num_ctx;
  const auto go = request.go_template.empty() ? nullptr : PromptTemplate::ParseGo(request.go_template);
  if (!go) description.template_error = go.error().message;
  DescribeChats(**files, request.names, request.go_template, description);
  DescribeTower(*files, options, request.verbose, description);
  return description;
}

ipc::Converted Convert(const Shared& shared, Link& link, const ipc::ConvertModel& request) {
  const int threads = ThreadsOf(request.threads);
  float told = 0;
  const auto on_progress = [&](float fraction) {
    if (fraction < told + 0.01F) return;
    told = fraction;
    link.Send(ipc::LoadProgress{std::min(fraction, 1.0F), "converting"});
  };
  weights::OutputFile to(request.to);
  static_cast<void>(RestrictFileSystem(FileAccess::kReadAndWrite));
  auto done = CheckConfined(shared);
  if (done) {
    done = WriteConverted(SourceOf(request.from, request.files), std::move(to), request.quantization, threads,
                          on_progress);
  }
  ipc::Converted converted;
  if (!done) converted.error = done.error();
  return converted;
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

Preparation::Receivers ReceiversOf(Shared& shared, Link& link) {
  return {.built = [&](PromptBuilt built) { shared.engine.Post(std::move(built)); },
          .described = [&](ipc::RequestEvent event) { link.Send(std::move(event)); },
          .before = WaitForeverIfSet,
          .large_one_built = [&](api::RequestId id) { link.Send(ipc::RequestPrepared{id}); }};
}

void LogStreamed(const models::Model& model) {
  if (model.streamed_bytes() == 0) return;
  LogLine(fmt::format("{:.2f} GiB of the weights stay in the file and are read again for every step",
                      static_cast<double>(model.streamed_bytes()) / (1 << 30)));
}

// Waits until the daemon has granted memory. The size of the caches.
size_t AwaitLoadApproval(Shared& shared) {
  while (true) {
    const auto answers = shared.load_approved.WaitAndPopAll(std::chrono::hours(1));
    if (!answers.empty()) return static_cast<size_t>(std::max<int64_t>(answers.back().cache_bytes, 1));
  }
}

// `missing`: what the kernel does not restrict.
void LogMissing(const std::string& missing) {
  if (!missing.empty()) LogLine("confined without: " + missing);
}

// What only loading needs.
api::Result<void> CloseLoading(const Shared& shared) {
  weights::CloseScratchFiles();
  LogMissing(RestrictToServing());
  return CheckConfined(shared);
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

// The second half of Serve() for an encoder.
void ServeEncoder(Shared& shared, Link& link, OpenedModel opened, const Progress& progress,
                  const LoadOptions& options, Clock::time_point begin) {
  const int32_t context = opened.loaded.sentence->TokensMax(opened.metadata_encoder->context_length());
  link.Send(EstimateEncoder(*opened.metadata_encoder, ResidentBytes()));
  AwaitLoadApproval(shared);
  auto model = Finish(std::move(opened), progress, options);
  if (!model) return link.Send(ipc::LoadFailed{model.error()});
  const models::Encoder& encoder = *model->encoder;
  ipc::ModelInfo info{.architecture = encoder.architecture(),
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
  EncoderEngine engine(std::move(model->encoder), ComputeThreads(), shared.engine, shared.engine_stats,
                       [&link](ipc::RequestEvent event) { link.Send(std::move(event)); });
  shared.preparation_max = PreparationMax(kPreparationCpuTime, context);
  Preparation preparation(shared.prompts, prompts, kPreparationCpuTime, ReceiversOf(shared, link),
                          kEncoderNice);
  if (auto closed = CloseLoading(shared); !closed) return link.Send(ipc::LoadFailed{closed.error()});
  link.Send(ipc::Loaded{info, std::chrono::nanoseconds(Clock::now() - begin).count()});
  engine.Run();
}

// Loads and serves; returns when the engine stops. The error was sent.
void Serve(Shared& shared, Link& link, const ipc::LoadModel& request) {
  const auto begin = Clock::now();
  SetComputeThreads(ThreadsOf(request.settings.threads));
  if (!kernels::CheckBatchInvariance()) {
    LogLine(
        fmt::format("matrix products are not batch-invariant with {}; computing rows one at a time (slow)",
                    kernels::InstructionSet()));
    kernels::ForceSingleRow();
  }
  const auto progress = [&link](float fraction, std::string_view stage) {
    link.Send(ipc::LoadProgress{fraction, std::string(stage)});
  };
  const ipc::RunnerSettings& settings = request.settings;
  LogMissing(RestrictFileSystem(CreateFilesOf(request)));
  if (auto confined = CheckConfined(shared); !confined) return link.Send(ipc::LoadFailed{confined.error()});
  LoadOptions options = LoadOptionsOf(request);
  EngineLimits limits{.prefix_cache = settings.prefix_cache,
                      .state_cache_type = StateTypeOf(settings.state_cache_type),
                      .draft_tokens = TestSetting("QUIRE_DRAFT_TOKENS"),
                      .check_invariants_every = TestSetting("QUIRE_CHECK_INVARIANTS")};
  auto opened = Open(SourceOf(request.path, request.files), progress, options);
  options.draft = {};  // all is mapped: from here on no descriptor of a file is open
  if (!opened) return link.Send(ipc::LoadFailed{opened.error()});
  if (opened->metadata_encoder) {
    // Beside a chat, an encoder gets what the chat leaves. Where it is not allowed, both share.
    static_cast<void>(::setpriority(PRIO_PROCESS, 0, kEncoderNice));
    return ServeEncoder(shared, link, *std::move(opened), progress, options, begin);
  }
  const int32_t context_length = opened->metadata_model->context_length();
  const auto other_task =
      models::IsSavedWithoutHead(*opened->loaded.files) ? ModelTask::kEmbed : ModelTask::kGenerate;
  if (auto fits = FitWeights(*opened, limits, settings, options); !fits) {
    return link.Send(ipc::LoadFailed{fits.error()});
  }
  const DraftParts& draft = opened->metadata_draft;
  const models::VisionTower* const tower = opened->metadata_tower.get();
  const size_t cache_needed =
      BudgetForContext(opened->metadata_model->cache_layout(), draft.cache_layout(), request.context_min);
  link.Send(EstimateMemory(*opened->metadata_model, limits,
                           ResidentBytes() + BytesBeside(draft, tower, limits), context_length,
                           settings.cache_bytes, MemoryLimitBytes(), cache_needed));
  LogStreamed(*opened->metadata_model);
  const weights::GenerationDefaults defaults = LoadModelDefaults(opened->loaded, settings.model_sampling);
  limits.cache_bytes = AwaitLoadApproval(shared);
  auto model = Finish(*std::move(opened), progress, options);
  if (!model) return link.Send(ipc::LoadFailed{model.error()});
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
                      .weight_bytes = model->model->weight_bytes(),
                      .supports_fim = prompt_template->SupportsFim() || FindFimTokens(*tokenizer)};
  info.draft_architecture = model->draft.architecture();
  info.weight_bytes += model->draft.resident_bytes();
  const CacheShares caches =
      ShareCache(model->model->cache_layout(), model->draft.cache_layout(), limits.cache_bytes);
  limits.draft_cache_bytes = caches.draft;
  limits.cache_bytes = caches.model;
  auto engine =
      Engine::Create(std::move(*model), limits, ComputeThreads(), shared.engine, shared.engine_stats,
                     [&link](ipc::RequestEvent event) { link.Send(std::move(event)); });
  if (!engine) return link.Send(ipc::LoadFailed{engine.error()});
  info.cache_bytes = (*engine)->cache_bytes();
  info.num_ctx = std::min(context_length, (*engine)->context_max());
  if (shared.snapshot_fd >= 0) AddTier(**engine, shared.snapshot_fd, context_length);
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
  shared.preparation_max = PreparationMax(kPreparationCpuTime, context_length);
  Preparation preparation(shared.prompts, context, kPreparationCpuTime, ReceiversOf(shared, link));
  if (auto closed = CloseLoading(shared); !closed) return link.Send(ipc::LoadFailed{closed.error()});
  link.Send(ipc::Loaded{info, std::chrono::nanoseconds(Clock::now() - begin).count()});
  shared.flushes = shared.snapshot_fd >= 0;
  (*engine)->Run();
  (*engine)->FlushTier(kFlushTime);
  std::_Exit(EXIT_SUCCESS);
}

}  // namespace

int RunRunner(int fd, int snapshot_fd, bool require_sandbox) {
  Shared shared;
  shared.snapshot_fd = snapshot_fd;
  shared.require_sandbox = require_sandbox;
  Link link(
      fd, ipc::Hello{.pid = static_cast<int32_t>(getpid())},
      {.on_message = [&shared, &link](ipc::ToRunner message) { Dispatch(shared, link, std::move(message)); },
       .heartbeat = [&shared, &link] { return NextHeartbeat(shared, link); },
       .on_end = EndProcess});
  while (true) {
    for (auto& setup : shared.setup.WaitAndPopAll(std::chrono::hours(1))) {
      if (const auto* load = std::get_if<ipc::LoadModel>(&setup.request)) {
        Serve(shared, link, *load);
      } else if (const auto* convert = std::get_if<ipc::ConvertModel>(&setup.request)) {
        link.Send(Convert(shared, link, *convert));
      } else {
        link.Send(Inspect(shared, std::get<ipc::InspectModel>(setup.request)));
      }
    }
  }
}

}  // namespace quire::runner::engine
