#include "runner/engine/process/model_jobs.h"

#include <sys/resource.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "runner/engine/encoders/encoder_engine.h"
#include "runner/engine/process/convert.h"
#include "runner/engine/process/cpu_count.h"
#include "runner/engine/process/machine_memory.h"
#include "runner/engine/process/memory_estimate.h"
#include "runner/engine/process/weights_budget.h"
#include "runner/engine/prompt/chat_form.h"
#include "runner/engine/prompt/load_request.h"
#include "runner/engine/prompt/loaded_model.h"
#include "runner/engine/steps/cache_budget.h"
#include "runner/engine/steps/engine_state.h"
#include "runner/kernels/numa_plan.h"
#include "runner/models/encoder.h"
#include "runner/weights/model_description.h"
#include "runner/weights/output_file.h"

namespace quire::runner::engine {
namespace {

namespace ipc = api::ipc;

constexpr int kConversionNice = 10;

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

}  // namespace

ipc::Inspected Inspect(const HostState& state, const ipc::InspectModel& request) {
  SetComputeThreads(ThreadsOf(request.settings.threads));
  static_cast<void>(RestrictFileSystem(FileAccess::kRead));
  ipc::Inspected load;
  const auto confined = state.CheckConfined();
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

// It uses all cores for as long as it takes: beside chats, it gets what they leave.
ipc::Converted Convert(const HostState& state, Link& link, const ipc::ConvertModel& request) {
  static_cast<void>(::setpriority(PRIO_PROCESS, 0, kConversionNice));
  const int threads = ThreadsOf(request.threads);
  float told = 0;
  const auto on_progress = [&](float fraction) {
    if (fraction < told + 0.01F) return;
    told = fraction;
    link.Send(ipc::LoadProgress{std::min(fraction, 1.0F), "converting"});
  };
  weights::OutputFile to(request.to);
  static_cast<void>(RestrictFileSystem(FileAccess::kReadAndWrite));
  auto done = state.CheckConfined();
  if (done) {
    done = WriteConverted(SourceOf(request.from, request.files), std::move(to), request.quantization, threads,
                          on_progress);
  }
  ipc::Converted converted;
  if (!done) converted.error = done.error();
  return converted;
}

}  // namespace quire::runner::engine
