#include "server/handlers_create.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/json_fields.h"
#include "api/json_read.h"
#include "api/ollama.h"
#include "api/ollama_store.h"
#include "server/model_manifest.h"
#include "server/progress_stream.h"
#include "server/relay.h"

namespace quire::server {
namespace {

namespace ollama = api::ollama;

std::string DigestOf(const std::string& blob) { return "sha256:" + blob.substr(blob.find('-') + 1); }

// "5.3M", "8.0B"
std::string HumanCount(int64_t count) {
  const auto number = static_cast<double>(count);
  if (number >= 1e9) return fmt::format("{:.1f}B", number / 1e9);
  if (number >= 1e6) return fmt::format("{:.1f}M", number / 1e6);
  if (number >= 1e3) return fmt::format("{:.1f}K", number / 1e3);
  return fmt::format("{}", count);
}

api::Result<ModelDetails> DetailsOf(const api::ipc::Inspected& description) {
  ModelDetails details;
  const auto info = api::ReadJson(description.model_info_json);
  if (!info || !info->is_object()) {
    return api::Fail(api::ErrorCode::kInternal, "the runner's description of the model is no JSON object");
  }
  api::FirstError error;
  api::Fields(*info, "model_info", error).Get("general.architecture", details.family);
  if (error) return std::unexpected(std::move(*error));
  details.families = {details.family};
  details.parameter_size = HumanCount(description.parameters);
  details.quantization_level = description.quantization;
  return details;
}

// What is wrong with a file that the client sent is wrong with its request.
api::Error AsClientError(api::Error error, std::string field) {
  if (error.code == api::ErrorCode::kBadModel || error.code == api::ErrorCode::kNotFound) {
    error.code = api::ErrorCode::kInvalidArgument;
    error.field = std::move(field);
  }
  return error;
}

class Creation {
 public:
  Creation(Services& services, Exchange& exchange, ollama::CreateRequest request)
      : services_(services), request_(std::move(request)), progress_(exchange, request_.stream) {}

  Awaitable<void> Run() {
    auto made = co_await Make();
    if (made) {
      co_await progress_.Succeed();
    } else {
      co_await progress_.Fail(made.error());
    }
  }

 private:
  Awaitable<api::Result<void>> Make() {
    auto name = api::ParseModelName(request_.model);
    if (!name) co_return std::unexpected(std::move(name.error()));
    model_.name = *std::move(name);
    if (request_.files.empty()) {
      auto begun = co_await BeginWithModel();
      if (!begun) co_return begun;
    } else {
      auto begun = co_await BeginWithFiles();
      if (!begun) co_return begun;
    }
    if (auto changed = Change(); !changed) co_return changed;
    std::vector<BlobUse> uses;
    const auto stored = co_await services_.models.Register(model_, uses);
    if (!stored) co_return std::unexpected(stored.error());
    for (const BlobUse& use : uses) {
      co_await progress_.Say(ollama::StatusBody(
          fmt::format("{} layer {}", use.existed ? "using existing" : "creating new", DigestOf(use.blob))));
    }
    co_await progress_.Say(ollama::StatusBody("writing manifest"));
    co_return api::Result<void>();
  }

  Awaitable<api::Result<void>> BeginWithModel() {
    auto base = co_await services_.models.Find(request_.from);
    if (!base) co_return std::unexpected(std::move(base.error()));
    model_.weights_blob = base->weights.filename().string();
    model_.details = std::move(base->details);
    model_.go_template = std::move(base->go_template);
    model_.system = std::move(base->system);
    model_.parameters_json = std::move(base->parameters_json);
    model_.licenses = std::move(base->licenses);
    model_.messages = std::move(base->messages);
    model_.other_layers = std::move(base->other_layers);
    co_return api::Result<void>();
  }

  Awaitable<api::Result<void>> BeginWithFiles() {
    if (request_.files.size() != 1) {
      co_return api::Fail(api::ErrorCode::kUnsupported,
                          "a model of several files is not supported in this version: give one GGUF file",
                          "files");
    }
    const ollama::CreateFile& file = request_.files.front();
    const auto blob = BlobNameOf(file.digest);
    if (!blob) {
      co_return api::Fail(api::ErrorCode::kInvalidArgument, fmt::format("invalid digest \"{}\"", file.digest),
                          "files");
    }
    const bool there = co_await services_.models.HasBlob(*blob);
    if (!there) {
      co_return api::Fail(api::ErrorCode::kInvalidArgument,
                          fmt::format("{}: no blob {}; send it first", file.path, file.digest), "files");
    }
    co_await progress_.Say(ollama::StatusBody("parsing GGUF"));
    model_.weights_blob = *blob;
    co_return co_await Describe();
  }

  // The details of the weights as they are now.
  Awaitable<api::Result<void>> Describe() {
    const auto inspected =
        co_await services_.backend.Inspect(services_.models.BlobPath(model_.weights_blob), false);
    if (!inspected) co_return std::unexpected(AsClientError(inspected.error(), "files"));
    if (inspected->error) co_return std::unexpected(AsClientError(*inspected->error, "files"));
    auto details = DetailsOf(*inspected);
    if (!details) co_return std::unexpected(std::move(details.error()));
    model_.details = *std::move(details);
    co_return api::Result<void>();
  }

  // What the request says over what the model begins with.
  api::Result<void> Change() {
    if (!request_.quantize.empty() && request_.quantize != model_.details.quantization_level) {
      return api::Fail(api::ErrorCode::kUnsupported, "quantize is not supported in this version", "quantize");
    }
    if (!request_.go_template.empty() && request_.go_template != model_.go_template) {
      return api::Fail(
          api::ErrorCode::kUnsupported,
          "template: Go templates are not supported in this version; without one the chat template in "
          "the model's own file is used",
          "template");
    }
    if (!request_.system.empty()) model_.system = request_.system;
    if (!request_.messages.empty()) model_.messages = request_.messages;
    for (const std::string& license : request_.licenses) {
      if (std::ranges::find(model_.licenses, license) == model_.licenses.end())
        model_.licenses.push_back(license);
    }
    auto parameters = MergeParameters(model_.parameters_json, request_.parameters_json);
    if (!parameters) return std::unexpected(std::move(parameters.error()));
    model_.parameters_json = *std::move(parameters);
    return {};
  }

  Services& services_;
  const ollama::CreateRequest request_;
  ProgressStream progress_;
  NewModel model_;
};

}  // namespace

Awaitable<void> Create(Services& services, Exchange& exchange) {
  auto request = ollama::ParseCreate(exchange.request().body);
  if (!request) {
    co_await SendError(exchange, request.error());
    co_return;
  }
  exchange.log().model = request->model;
  Creation creation(services, exchange, *std::move(request));
  co_await creation.Run();
}

}  // namespace quire::server
