#include "server/routes/inspector.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <utility>

#include "server/http/awaitable.h"

namespace quire::server {
namespace {

constexpr size_t kEntriesMax = 8;  // a verbose one holds a whole vocabulary
constexpr size_t kSummariesMax = 20'000;
constexpr std::chrono::seconds kFailureKept{60};

// True for an error of the file, not of the runner that was to look at it.
bool IsOfTheFile(const api::Error& error) {
  return error.code == api::ErrorCode::kBadModel || error.code == api::ErrorCode::kUnsupported;
}

// What a description depends on: blobs are named by their content.
std::string KeyOf(const StoredModel& model) {
  std::string key = model.weights.filename().string();
  if (!model.projector.empty()) key += " " + model.projector.filename().string();
  if (!model.TemplateInUse().empty()) key += " " + model.template_blob;
  const auto& [renderer, parser] = model.PromptNames();
  if (!renderer.empty() || !parser.empty()) key += fmt::format(" {} {}", renderer, parser);
  return key;
}

}  // namespace

Inspector::Inspector(scheduler::Backend& backend, const boost::asio::any_io_executor& executor)
    : backend_(backend),
      slots_(std::make_shared<scheduler::JobSlots>(
          executor, scheduler::JobSlots::Limits{.slots = scheduler::JobSlots::kNoLimit,
                                                .slots_of_one = 1,
                                                .waiting_max = scheduler::JobSlots::kNoLimit})) {}

Inspector::Description Inspector::Kept(const std::string& key) {
  const auto found = std::ranges::find(entries_, key, &Entry::key);
  if (found == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found);
  return found->description;
}

Awaitable<api::Result<Inspector::Description>> Inspector::Describe(const StoredModel& model, bool verbose,
                                                                   fair::PartyId party) {
  const std::string key = KeyOf(model) + (verbose ? " verbose" : "");
  const std::filesystem::path weights = model.weights, projector = model.projector;
  std::string go_template(model.TemplateInUse());
  api::ipc::PromptNames names = model.PromptNames();
  if (Description kept = Kept(key)) co_return kept;
  const auto slot = co_await scheduler::JobSlots::Acquire(slots_, party);
  if (!slot) co_return std::unexpected(slot.error());
  if (Description kept = Kept(key)) co_return kept;  // made meanwhile
  api::ipc::InspectModel request;
  request.path = weights;
  request.projector_path = projector;
  request.verbose = verbose;
  request.go_template = std::move(go_template);
  request.names = std::move(names);
  auto inspected = co_await backend_.Inspect(std::move(request), std::move(party));
  if (!inspected) co_return std::unexpected(std::move(inspected.error()));
  if (inspected->error) co_return std::unexpected(std::move(*inspected->error));
  auto description = std::make_shared<const api::ipc::Inspected>(*std::move(inspected));
  entries_.push_front({key, description});
  if (entries_.size() > kEntriesMax) entries_.pop_back();
  Remember(KeyOf(model), {description->capabilities, description->context_length, description->num_ctx});
  co_return Description(std::move(description));
}

void Inspector::Remember(const std::string& key, Summary summary) {
  summaries_[key] = std::move(summary);
  if (summaries_.size() <= kSummariesMax) return;
  const auto first = summaries_.begin();
  summaries_.erase(first->first == key ? std::next(first) : first);
}

Awaitable<Inspector::Summary> Inspector::Summarize(const StoredModel& model, fair::PartyId party) {
  if (!model.refusal.empty()) co_return Summary{};
  const std::string key = KeyOf(model);
  const auto found = summaries_.find(key);
  if (found != summaries_.end()) {
    const auto& failed_at = found->second.failed_at;
    if (!failed_at || Clock::now() - *failed_at < kFailureKept) co_return found->second;
  }
  const auto description = co_await Describe(model, /*verbose=*/false, std::move(party));
  Summary summary;
  if (description) {
    summary = {(*description)->capabilities, (*description)->context_length, (*description)->num_ctx};
  } else if (IsOfTheFile(description.error())) {
    summary.failed_at = Clock::now();
    Remember(key, summary);
  }
  co_return summary;
}

Awaitable<std::vector<std::string>> Inspector::Capabilities(const StoredModel& model, fair::PartyId party) {
  Summary summary = co_await Summarize(model, std::move(party));
  if (summary.capabilities.empty()) summary.capabilities.emplace_back("completion");
  co_return std::move(summary.capabilities);
}

Awaitable<api::Result<bool>> Inspector::Can(const StoredModel& model, std::string_view capability,
                                            fair::PartyId party) {
  Summary summary = co_await Summarize(model, party);
  if (summary.capabilities.empty()) {
    const auto description = co_await Describe(model, /*verbose=*/false, std::move(party));
    if (!description) co_return std::unexpected(description.error());
    summary.capabilities = (*description)->capabilities;
  }
  co_return std::ranges::find(summary.capabilities, capability) != summary.capabilities.end();
}

Awaitable<int32_t> Inspector::DefaultContext(const StoredModel& model, fair::PartyId party) {
  Summary summary = co_await Summarize(model, std::move(party));
  for (const scheduler::LoadedModel& loaded : backend_.Loaded()) {
    if (loaded.spec.key == model.digest && loaded.info.num_ctx > 0) summary.num_ctx = loaded.info.num_ctx;
  }
  const int32_t parameter = model.parameters.num_ctx.value_or(0);
  if (parameter <= 0) co_return summary.num_ctx;
  co_return summary.trained > 0 ? std::min(parameter, summary.trained) : parameter;
}

Awaitable<api::Result<api::ipc::Inspected>> Inspector::CheckLoad(const StoredModel& model,
                                                                 fair::PartyId party) {
  api::ipc::InspectModel request;
  request.path = model.weights;
  request.go_template = model.TemplateInUse();
  request.names = model.PromptNames();
  request.check_load = true;
  request.draft_path = model.draft;
  request.projector_path = model.projector;
  auto inspected = co_await backend_.Inspect(std::move(request), std::move(party));
  co_return inspected;
}

}  // namespace quire::server
