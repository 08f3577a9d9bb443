#include "api/ollama/lists.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "api/json/option_fields.h"
#include "api/ollama/chat.h"
#include "server/http/party.h"
#include "server/routes/handlers.h"
#include "server/routes/private_paths.h"
#include "server/routes/request_steps.h"
#include "server/routes/resident_memory.h"
#include "server/store/model_manifest.h"
#include "server/store/model_text.h"

namespace quire::server {
namespace {

namespace ollama = api::ollama;

// A system prompt and options, which the reply repeats.
constexpr uint64_t kShowBodyBytesMax = uint64_t{1} << 20;

ollama::ModelDetails DetailsOf(const ModelDetails& details) {
  return {.format = details.format,
          .family = details.family,
          .families = details.families,
          .parameter_size = details.parameter_size,
          .quantization_level = details.quantization_level};
}

Awaitable<ollama::TagEntry> TagOf(Services& services, Exchange& exchange, const StoredModel& model) {
  auto capabilities = co_await services.inspector.Capabilities(model, PartyOf(exchange));
  co_return ollama::TagEntry{.name = model.name.Display(),
                             .modified_at = model.modified_at,
                             .size = model.size,
                             .digest = model.digest,
                             .details = DetailsOf(model.details),
                             .capabilities = std::move(capabilities)};
}

using StoredModels = std::vector<SharedModel>;

void SetDetails(const StoredModels* stored, ollama::PsEntry& entry) {
  if (stored == nullptr) return;
  const auto digest_of = [](const SharedModel& model) { return std::string_view(model->digest); };
  const auto found = std::ranges::find(*stored, std::string_view(entry.digest), digest_of);
  if (found != stored->end()) entry.details = DetailsOf((*found)->details);
}

// Models that are still being loaded stand behind those that are loaded.
void AddLoading(const Services& services, const StoredModels* stored, std::vector<ollama::PsEntry>& entries) {
  for (const scheduler::LoadingModel& model : services.backend.Loading()) {
    ollama::PsEntry entry{.name = model.spec.name,
                          .size = ResidentBytes(model.runner_pid),
                          .digest = model.spec.key,
                          .details = {},
                          .expires_at = {},
                          .loading = {{model.fraction, model.stage}}};
    SetDetails(stored, entry);
    entries.push_back(std::move(entry));
  }
}

Awaitable<void> Ps(Services& services, Exchange& exchange) {
  // A loaded model may have left the store meanwhile: then what its runner knows has to do.
  const auto listed = co_await services.models.List(PartyOf(exchange));
  const StoredModels* stored = listed ? &*listed : nullptr;
  std::vector<ollama::PsEntry> entries;
  for (const scheduler::LoadedModel& loaded : services.backend.Loaded()) {
    const int64_t size_max = std::max(loaded.memory_bytes, loaded.size_bytes);
    // The resident size grows with each token that a request computes: a key must not learn that of others.
    const bool admin = exchange.request().admin;
    ollama::PsEntry entry{.name = NameShownTo(admin, loaded),
                          .size = admin ? ResidentBytes(loaded.runner_pid) : size_max,
                          .size_max = size_max,
                          .digest = loaded.spec.key,
                          .details = {},
                          .expires_at = loaded.expires_at,
                          .context_length = ContextShownTo(admin, loaded)};
    entry.details.family = loaded.info.architecture;
    entry.details.families = {loaded.info.architecture};
    SetDetails(stored, entry);
    entries.push_back(std::move(entry));
  }
  AddLoading(services, stored, entries);
  HttpResponse response{.body = ollama::EncodePs(entries)};
  co_await exchange.Send(std::move(response));
}

ollama::ShowReply ShowReplyOf(const StoredModel& model, const api::ipc::Inspected& description, bool admin) {
  const std::filesystem::path blobs = model.weights.parent_path();
  ollama::ShowReply reply;
  reply.name = model.name.Display();
  reply.from = PathShownTo(admin, model.weights);
  reply.licenses = model.licenses;
  reply.parameters_json = model.parameters_json;
  reply.template_in_weights = model.TemplateInUse().empty();
  reply.chat_template = reply.template_in_weights ? description.chat_template : model.go_template;
  reply.system = model.system;
  reply.details = DetailsOf(model.details);
  reply.messages = model.messages;
  reply.model_info_json = description.model_info_json;
  reply.projector_info_json = description.projector_info_json;
  reply.tensors_json = description.tensors_json;
  if (!description.capabilities.empty()) reply.capabilities = description.capabilities;
  reply.requires_version = model.details.requires_version;
  reply.renderer = model.details.renderer;
  reply.parser = model.details.parser;
  const auto draft = std::ranges::find(model.other_layers, kDraftLayer, &Layer::media_type);
  if (draft != model.other_layers.end()) reply.draft = PathShownTo(admin, blobs / draft->blob);
  reply.modified_at = model.modified_at;
  reply.repairs = description.repairs;
  reply.sampling_json =
      api::SamplingSources(description.sampling_json, description.sampling_source, model.parameters_json);
  return reply;
}

// About what a reply takes: of the model's description a verbose one has all of it.
size_t ShowReplyBytes(const StoredModel& model, const api::ipc::Inspected& description, bool verbose) {
  size_t bytes = TextBytes(model) + description.chat_template.size();
  if (verbose) bytes += description.model_info_json.size() + description.tensors_json.size();
  return bytes;
}

// From what a runner says of a load; `limit_bytes` of memory for all models, 0 = none.
ollama::LoadCheck CheckOf(const api::Result<api::ipc::Inspected>& inspected, int64_t limit_bytes) {
  ollama::LoadCheck check{.memory_limit_bytes = limit_bytes};
  const std::optional<api::Error> error =
      inspected ? inspected->error : std::optional<api::Error>(inspected.error());
  if (error) {
    check.error = error->message;
  } else if (inspected->memory) {
    const auto& memory = *inspected->memory;
    check.memory_bytes = memory.weight_bytes + memory.scratch_bytes + memory.cache_bytes;
    check.memory_min_bytes = memory.weight_bytes + memory.scratch_bytes + memory.cache_min_bytes;
    check.streamed_bytes = memory.streamed_bytes;
  }
  if (check.error.empty() && limit_bytes > 0 && check.memory_min_bytes > limit_bytes) {
    check.error = fmt::format("needs at least {} bytes of memory; all models together may have {}",
                              check.memory_min_bytes, limit_bytes);
  }
  return check;
}

Awaitable<void> Show(Services& services, Exchange& exchange) {
  const auto request = co_await ParseBody(services, exchange, ollama::ParseShow);
  if (!request) co_return;
  exchange.log().model = request->model;
  const auto found = co_await services.models.Find(request->model, PartyOf(exchange));
  if (!found) {
    co_await SendError(exchange, found.error());
    co_return;
  }
  const SharedModel& model = *found;
  std::optional<ollama::LoadCheck> check;
  if (request->check) {
    const auto inspected = co_await services.inspector.CheckLoad(*model, PartyOf(exchange));
    check = CheckOf(inspected, services.backend.memory_limit());
    check->error = ShownText(exchange, check->error);
  }
  auto description = co_await services.inspector.Describe(*model, request->verbose, PartyOf(exchange));
  if (!description && check) description = std::make_shared<const api::ipc::Inspected>();
  if (!description) {
    co_await SendError(exchange, description.error());
    co_return;
  }
  if (const auto full = ReserveAnswer(exchange, ShowReplyBytes(*model, **description, request->verbose))) {
    co_await SendError(exchange, *full);
    co_return;
  }
  const int32_t context_length = co_await services.inspector.DefaultContext(*model, PartyOf(exchange));
  // This client looks its models up by the name it finds here.
  const std::string* agent = exchange.request().Find("user-agent");
  const bool named = agent != nullptr && agent->starts_with("GitHubCopilotChat/");
  const bool admin = exchange.request().admin;
  auto encode = [&model, &description, &request, &check, context_length, named, admin] {
    ollama::ShowReply reply = ShowReplyOf(*model, **description, admin);
    if (!request->system.empty()) reply.system = request->system;
    reply.overrides_json = request->options_json;
    reply.verbose = request->verbose;
    reply.context_length = context_length;
    reply.check = check;
    if (named) reply.basename = request->model;
    return ollama::EncodeShow(reply);
  };
  HttpResponse response;
  // The description holds the vocabulary also when the reply leaves it out.
  response.body = co_await RunFor(exchange, services.pools.cpu, std::move(encode));
  co_await exchange.Send(std::move(response));
}

Awaitable<void> Version(Exchange& exchange) {
  HttpResponse response{.body = ollama::EncodeVersion(QUIRE_VERSION)};
  co_await exchange.Send(std::move(response));
}

}  // namespace

void AddOllamaListRoutes(Router& router, Services& services) {
  const auto tags = [&services](Exchange& exchange) {
    return SendModels(services, exchange, TagOf, ollama::EncodeTags);
  };
  router.Add({"GET", "/api/tags", tags}, {"ollama", "Stored models"});
  router.Add({"GET", "/api/ps", [&services](Exchange& exchange) { return Ps(services, exchange); }},
             {"ollama", "Loaded models: memory in use (size), memory that they may grow to (size_max)"});
  router.Add({.method = "POST",
              .path = "/api/show",
              .handler = [&services](Exchange& exchange) { return Show(services, exchange); },
              .cancel_on_disconnect = true,
              .body_bytes_max = kShowBodyBytesMax},
             {"ollama", "Description of a model", "Show"});
  router.Add({"GET", "/api/version", Version}, {"ollama", "Version"});
}

}  // namespace quire::server
