#include "server/routes/create.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/base/ascii.h"
#include "api/json/fields.h"
#include "api/json/read.h"
#include "api/ollama/store.h"
#include "server/routes/progress_stream.h"
#include "server/routes/relay.h"
#include "server/routes/request_steps.h"
#include "server/store/model_manifest.h"
#include "server/store/model_text.h"

namespace quire::server {
namespace {

namespace ollama = api::ollama;

constexpr const char* kConverted = "model.gguf";

// "5.3M", "8.0B"
std::string HumanCount(int64_t count) {
  const auto number = static_cast<double>(count);
  if (number >= 1e9) return fmt::format("{:.1f}B", number / 1e9);
  if (number >= 1e6) return fmt::format("{:.1f}M", number / 1e6);
  if (number >= 1e3) return fmt::format("{:.1f}K", number / 1e3);
  return fmt::format("{}", count);
}

api::Result<ModelDetails> NewModelDetails(const api::ipc::Inspected& description) {
  ModelDetails details;
  const auto info = api::ReadJson(description.model_info_json);
  if (!info || !info->is_object()) {
    return api::Fail(api::ErrorCode::kInternal, "the runner's model description is not a JSON object");
  }
  api::FirstError error;
  api::Fields(*info, "model_info", error).Get("general.architecture", details.family);
  if (error) return std::unexpected(std::move(*error));
  details.families = {details.family};
  if (!description.projector_info_json.empty()) details.families.emplace_back("clip");
  details.parameter_size = HumanCount(description.parameters);
  details.quantization_level = description.quantization;
  return details;
}

// Files are named as the client did, not as they lie while they are converted.
api::Error WithoutFolder(api::Error error, const std::filesystem::path& folder) {
  const std::string prefix = folder.string() + "/";
  for (size_t at = error.message.find(prefix); at != std::string::npos; at = error.message.find(prefix)) {
    error.message.erase(at, prefix.size());
  }
  return error;
}

// An error in a file from the client is an error of its request.
api::Error AsClientError(api::Error error, std::string field) {
  if (error.code == api::ErrorCode::kBadModel || error.code == api::ErrorCode::kNotFound) {
    error.code = api::ErrorCode::kInvalidArgument;
    error.field = std::move(field);
  }
  return error;
}

class Creation {
 public:
  Creation(Services& services, ollama::CreateRequest request, fair::PartyId party, ProgressStream& progress)
      : services_(services),
        request_(std::move(request)),
        party_(std::move(party)),
        progress_(progress),
        sources_(services.models.users()) {}
  Creation(const Creation&) = delete;
  Creation& operator=(const Creation&) = delete;
  // Canceled: the client went away.
  ~Creation() {
    sources_.Release();
    services_.models.StartRemovingUnnamed(std::move(leftovers_), party_);
  }

  Awaitable<api::Result<void>> Run() {
    auto made = co_await Make();
    sources_.Release();
    // After a failure the client may try again with what it sent.
    if (made) AddSources();
    co_await services_.models.RemoveUnnamed(std::exchange(leftovers_, {}), party_);
    co_return made;
  }

  // A layer that the model has beside those of the request, as a blob that the party was promised.
  void AddLayer(Layer layer) {
    sources_.Redeem(layer.blob, party_);
    model_.other_layers.push_back(std::move(layer));
  }

 private:
  // Weights on their way into the store.
  struct Weights {
    std::string blob;                       // of the store; empty: `staged` holds them as kConverted
    std::shared_ptr<const Staging> staged;  // may be null when there is a blob

    bool empty() const { return blob.empty() && staged == nullptr; }
  };

  void AddSources() {
    for (const auto* files : {&request_.files, &request_.draft_files}) {
      for (const ollama::CreateFile& file : *files) leftovers_.push_back(*BlobNameOf(file.digest));
    }
  }

  Awaitable<api::Result<void>> Make() {
    auto name = api::ParseModelName(request_.model);
    if (!name) co_return std::unexpected(std::move(name.error()));
    model_.name = *std::move(name);
    auto weights = co_await ResolveBase();
    if (!weights) co_return std::unexpected(std::move(weights.error()));
    if (auto changed = Change(); !changed) co_return changed;
    // Before hours of quantizing. Without them one runner says all that has to be known.
    if (!request_.quantize.empty() && (!request_.files.empty() || !request_.go_template.empty())) {
      auto described = co_await Inspect(*weights, nullptr);
      if (!described) co_return described;
    }
    weights = co_await QuantizeWeights(*std::move(weights));
    if (!weights) co_return std::unexpected(std::move(weights.error()));
    auto draft = co_await MakeDraft();
    if (!draft) co_return std::unexpected(std::move(draft.error()));
    auto opens = co_await Inspect(*weights, &*draft);
    if (!opens) co_return opens;
    auto kept = co_await StoreWeights(*std::move(weights), *std::move(draft));
    if (!kept) co_return kept;
    std::vector<BlobUse> uses;
    const auto stored = co_await services_.models.Register(model_, uses, party_);
    if (!stored) co_return std::unexpected(stored.error());
    for (const BlobUse& use : uses) {
      co_await progress_.Send(ollama::StatusBody(
          fmt::format("{} layer {}", use.existed ? "using existing" : "creating new", DigestOf(use.blob))));
    }
    co_await progress_.Send(ollama::StatusBody("writing manifest"));
    co_return api::Result<void>();
  }

  Awaitable<api::Result<Weights>> ResolveBase() {
    if (request_.files.empty()) {
      auto base = co_await BaseFromModel();
      co_return base;
    }
    auto base = co_await BaseFromFiles();
    co_return base;
  }

  Awaitable<api::Result<Weights>> BaseFromModel() {
    auto base = co_await services_.models.Find(request_.from, party_);
    if (!base && base.error().code == api::ErrorCode::kNotFound && services_.fetch) {
      auto fetched = co_await Fetch(base.error());
      if (!fetched) co_return std::unexpected(std::move(fetched.error()));
      base = co_await services_.models.Find(request_.from, party_);
    }
    if (!base) co_return std::unexpected(std::move(base.error()));
    model_.details = (*base)->details;
    model_.go_template = (*base)->go_template;
    model_.system = (*base)->system;
    model_.parameters_json = (*base)->parameters_json;
    model_.licenses = (*base)->licenses;
    model_.messages = (*base)->messages;
    model_.other_layers = (*base)->other_layers;
    Weights weights{.blob = (*base)->weights.filename().string(), .staged = nullptr};
    co_return weights;
  }

  // Pulls the model that the request begins with; `absent` says that the store does not have it.
  Awaitable<api::Result<void>> Fetch(api::Error absent) {
    auto name = api::ParseModelName(request_.from);
    if (!name) co_return std::unexpected(std::move(name.error()));
    auto fetched = co_await services_.fetch(*std::move(name), party_, progress_);
    const bool other = fetched || (fetched.error().code != api::ErrorCode::kNotFound &&
                                   fetched.error().code != api::ErrorCode::kUnavailable);
    if (other) co_return fetched;
    absent.message += "; cannot pull it: " + fetched.error().message;
    co_return std::unexpected(std::move(absent));
  }

  Awaitable<api::Result<Weights>> BaseFromFiles() {
    std::vector<ollama::CreateFile> files;
    for (const ollama::CreateFile& file : request_.files) {
      if (request_.files.size() == 1 || !IsProjector(file)) {
        files.push_back(file);
        continue;
      }
      auto there = co_await Check(file, "files");
      if (!there) co_return std::unexpected(std::move(there.error()));
      const std::string blob = *BlobNameOf(file.digest);
      const int64_t size = co_await services_.models.BlobSize(blob, party_);
      model_.other_layers.push_back({std::string(kProjectorLayer), blob, size});
    }
    auto weights = co_await AssembleWeights(files, "files");
    co_return weights;
  }

  // The draft model of the request; nothing where it has none.
  Awaitable<api::Result<Weights>> MakeDraft() {
    if (request_.draft_files.empty()) co_return Weights();
    auto draft = co_await AssembleWeights(request_.draft_files, "draft_files");
    if (!draft) co_return std::unexpected(std::move(draft.error()));
    if (request_.draft_quantize.empty()) co_return draft;
    const auto level = co_await TypeOf(PathOf(*draft), "draft_files");
    if (!level) co_return std::unexpected(level.error());
    auto quantized = co_await Quantized(*std::move(draft), *level, request_.draft_quantize, "draft_quantize");
    co_return quantized;
  }

  // A runner reads the files: what they are, where they are the request's own, and whether the template can
  // be read. With `draft`, which may be empty: also whether they can be loaded as they are about to be
  // stored.
  Awaitable<api::Result<void>> Inspect(const Weights& weights, const Weights* draft) {
    const auto base = std::ranges::find(model_.other_layers, kDraftLayer, &Layer::media_type);
    api::ipc::InspectModel request;
    const std::filesystem::path path = PathOf(weights);
    request.path = path;
    request.check_load = draft != nullptr;
    if (model_.details.renderer.empty() || !request_.go_template.empty())
      request.go_template = model_.go_template;
    request.names = {model_.details.renderer, model_.details.parser};
    const std::filesystem::path folder = path.parent_path();
    std::filesystem::path draft_folder = folder;
    const bool own_draft = draft != nullptr && !draft->empty();
    if (own_draft) {
      const std::filesystem::path draft_path = PathOf(*draft);
      draft_folder = draft_path.parent_path();
      request.draft_path = draft_path;
    } else if (draft != nullptr && base != model_.other_layers.end()) {
      request.draft_path = services_.models.BlobPath(base->blob);
    }
    const auto tower = std::ranges::find(model_.other_layers, kProjectorLayer, &Layer::media_type);
    if (tower != model_.other_layers.end()) request.projector_path = services_.models.BlobPath(tower->blob);
    const char* const field = own_draft ? "draft_files" : request_.files.empty() ? "from" : "files";
    const auto inspected = co_await services_.backend.Inspect(std::move(request), party_);
    if (!inspected || inspected->error) {
      api::Error error = inspected ? *inspected->error : inspected.error();
      co_return std::unexpected(
          WithoutFolder(WithoutFolder(AsClientError(std::move(error), field), folder), draft_folder));
    }
    if (!request_.go_template.empty() && !inspected->template_error.empty())
      co_return api::Fail(api::ErrorCode::kInvalidArgument, inspected->template_error, "template");
    if (!request_.files.empty() && !described_) {
      if (auto details = SetDetails(*inspected); !details) co_return details;
      // Not before: an invalid request has its own status.
      if (!weights.blob.empty()) co_await progress_.Send(ollama::StatusBody("parsing GGUF"));
    }
    co_return api::Result<void>();
  }

  // Those of the files, with what the request says of the model.
  api::Result<void> SetDetails(const api::ipc::Inspected& inspected) {
    auto details = NewModelDetails(inspected);
    if (!details) return std::unexpected(std::move(details.error()));
    details->requires_version = std::move(model_.details.requires_version);
    details->renderer = std::move(model_.details.renderer);
    details->parser = std::move(model_.details.parser);
    model_.details = *std::move(details);
    described_ = true;
    return {};
  }

  Awaitable<api::Result<void>> StoreWeights(Weights weights, Weights draft) {
    auto blob = co_await StoreBlob(std::move(weights));
    if (!blob) co_return std::unexpected(std::move(blob.error()));
    model_.weights_blob = *std::move(blob);
    if (draft.empty()) co_return api::Result<void>();
    blob = co_await StoreBlob(std::move(draft));
    if (!blob) co_return std::unexpected(std::move(blob.error()));
    // In place of the one that the model began with.
    std::erase_if(model_.other_layers, [](const Layer& layer) { return layer.media_type == kDraftLayer; });
    model_.other_layers.push_back({.media_type = std::string(kDraftLayer), .blob = *std::move(blob)});
    co_return api::Result<void>();
  }

  // The weights of a field's files: one GGUF as it is; the splits of one, or a directory of safetensors, as
  // one new file.
  Awaitable<api::Result<Weights>> AssembleWeights(const std::vector<ollama::CreateFile>& files,
                                                  const char* field) {
    const bool tensors = std::ranges::any_of(files, IsSafetensors);
    const bool single = files.size() == 1 && !tensors;
    const auto first = std::ranges::find_if(files, IsFirstSplit);
    if (!single && !tensors && first == files.end()) {
      co_return api::Fail(api::ErrorCode::kUnsupported,
                          "the first of several GGUF files must be named NAME-00001-of-0000N.gguf; "
                          "additional models are not supported",
                          field);
    }
    for (const ollama::CreateFile& file : files) {
      auto there = co_await Check(file, field);
      if (!there) co_return std::unexpected(std::move(there.error()));
    }
    if (single) {
      Weights weights{.blob = *BlobNameOf(files.front().digest), .staged = nullptr};
      co_return weights;
    }
    // Not before: an invalid request has its own status.
    co_await progress_.Send(ollama::StatusBody(tensors ? "converting model" : "parsing GGUF"));
    const auto made = co_await services_.models.MakeStaging(party_);
    if (!made) co_return std::unexpected(made.error());
    const std::shared_ptr<const Staging>& staging = *made;
    for (const ollama::CreateFile& file : files) {
      auto lent = co_await services_.models.Lend(*BlobNameOf(file.digest), *staging, NameOf(file), party_);
      if (!lent) {
        co_return api::Fail(api::ErrorCode::kInvalidArgument,
                            fmt::format("{}: invalid or duplicate file name", file.path), field);
      }
    }
    const std::filesystem::path folder = staging->directory().path();
    api::ipc::ConvertModel request;
    request.from = tensors ? folder : folder / NameOf(*first);
    std::string status = tensors ? "converting model" : "merging model files";
    auto converted = co_await Convert(std::move(request), staging, field, std::move(status), {}, 0);
    if (!converted) co_return std::unexpected(WithoutFolder(std::move(converted.error()), folder));
    co_return converted;
  }

  // Files of a sentence-transformers module, and templates, keep their folder's name, with a dot behind it:
  // 1_Pooling.config.json.
  static std::string NameOf(const ollama::CreateFile& file) {
    const std::filesystem::path path = file.path;
    const std::string folder = path.parent_path().filename().string(), name = path.filename().string();
    const bool module = folder == "additional_chat_templates" ||
                        (folder.size() > 2 && folder[0] >= '0' && folder[0] <= '9' && folder[1] == '_');
    return module ? folder + "." + name : name;
  }
  // What sees images for a model: kept beside it.
  static bool IsProjector(const ollama::CreateFile& file) {
    const std::string name = api::AsciiLower(std::filesystem::path(file.path).filename().string());
    return name.find("mmproj") != std::string::npos && name.ends_with(".gguf");
  }
  static bool IsSafetensors(const ollama::CreateFile& file) { return file.path.ends_with(".safetensors"); }
  static bool IsFirstSplit(const ollama::CreateFile& file) {
    return file.path.find("-00001-of-") != std::string::npos;
  }

  // A file that the store has.
  Awaitable<api::Result<void>> Check(const ollama::CreateFile& file, const char* field) {
    const auto blob = BlobNameOf(file.digest);
    if (!blob) {
      co_return api::Fail(api::ErrorCode::kInvalidArgument, fmt::format("invalid digest \"{}\"", file.digest),
                          field);
    }
    sources_.Redeem(*blob, party_);
    const bool there = co_await services_.models.HasBlob(*blob, party_);
    if (there) co_return api::Result<void>();
    co_return api::Fail(api::ErrorCode::kInvalidArgument,
                        fmt::format("{}: blob {} not found; upload it first", file.path, file.digest), field);
  }

  Awaitable<api::Result<Weights>> QuantizeWeights(Weights weights) {
    const std::string level = model_.details.quantization_level;
    auto quantized = co_await Quantized(std::move(weights), level, request_.quantize, "quantize");
    if (!quantized) co_return std::unexpected(std::move(quantized.error()));
    if (!request_.quantize.empty()) model_.details.quantization_level = request_.quantize;
    co_return quantized;
  }

  // The weights in the type that is wanted; the same when they are.
  Awaitable<api::Result<Weights>> Quantized(Weights weights, std::string level, std::string wanted,
                                            const char* field) {
    if (wanted.empty() || wanted == level) co_return weights;
    std::string digest = weights.blob.empty() ? std::string() : DigestOf(weights.blob);
    const int64_t total = co_await SizeOf(weights);
    api::ipc::ConvertModel request;
    request.from = PathOf(weights);
    request.quantization = wanted;
    std::string status = fmt::format("quantizing {} model to {}", level, wanted);
    auto converted = co_await Convert(std::move(request), weights.staged, field, std::move(status),
                                      std::move(digest), total);
    co_return converted;
  }

  // A runner writes them into a staging directory: what is not finished leaves nothing. `from` is held until
  // it is done. Progress is reported in `total` bytes; 0 = once.
  Awaitable<api::Result<Weights>> Convert(api::ipc::ConvertModel request, std::shared_ptr<const Staging> from,
                                          const char* field, std::string status, std::string digest,
                                          int64_t total) {
    const auto made = co_await services_.models.MakeStaging(party_);
    if (!made) co_return std::unexpected(made.error());
    const std::shared_ptr<const Staging>& staging = *made;
    request.to = staging->directory().path() / kConverted;
    using Both = std::pair<std::shared_ptr<const Staging>, std::shared_ptr<const Staging>>;
    const auto kept = std::make_shared<const Both>(std::move(from), staging);
    auto job = co_await services_.backend.Convert(std::move(request), kept, party_);
    if (!job) co_return std::unexpected(std::move(job.error()));
    while (true) {
      const auto fraction = co_await (*job)->Next();
      if (!fraction) co_return std::unexpected(AsClientError(fraction.error(), field));
      const double done = fraction->has_value() ? static_cast<double>(**fraction) : 1.0;
      const auto completed = static_cast<int64_t>(static_cast<double>(total) * done);
      if (total > 0) co_await progress_.Send(ollama::StatusBody(status, digest, total, completed));
      if (!*fraction) break;
    }
    job->reset();
    Weights weights{.blob = {}, .staged = staging};
    co_return weights;
  }

  std::filesystem::path PathOf(const Weights& weights) const {
    return weights.blob.empty() ? weights.staged->directory().path() / kConverted
                                : services_.models.BlobPath(weights.blob);
  }

  Awaitable<int64_t> SizeOf(const Weights& weights) {
    if (weights.blob.empty()) {
      const int64_t staged = co_await services_.models.StagedSize(*weights.staged, kConverted, party_);
      co_return staged;
    }
    const int64_t size = co_await services_.models.BlobSize(weights.blob, party_);
    co_return size;
  }

  // As a blob of the store; the value is its name.
  Awaitable<api::Result<std::string>> StoreBlob(Weights weights) {
    if (!weights.blob.empty()) co_return std::move(weights.blob);
    auto blob = co_await services_.models.Adopt(*weights.staged, kConverted, sources_, party_);
    if (blob) leftovers_.push_back(*blob);
    co_return blob;
  }

  // The type of weights as they are now; `field` is at fault when they are none.
  Awaitable<api::Result<std::string>> TypeOf(std::filesystem::path weights, const char* field) {
    const std::filesystem::path folder = weights.parent_path();
    api::ipc::InspectModel request;
    request.path = std::move(weights);
    const auto inspected = co_await services_.backend.Inspect(std::move(request), party_);
    if (!inspected) co_return std::unexpected(AsClientError(inspected.error(), field));
    if (inspected->error)
      co_return std::unexpected(WithoutFolder(AsClientError(*inspected->error, field), folder));
    co_return inspected->quantization;
  }

  // The request's fields that override the base model.
  api::Result<void> Change() {
    if (!request_.go_template.empty()) {
      model_.go_template = request_.go_template;
      model_.details.renderer.clear();  // what is built in would go before it
    }
    for (const auto& [said, kept] : {std::pair{&request_.requires_version, &model_.details.requires_version},
                                     {&request_.renderer, &model_.details.renderer},
                                     {&request_.parser, &model_.details.parser}}) {
      if (!said->empty()) *kept = *said;
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
    return CheckText(model_, api::ErrorCode::kInvalidArgument);
  }

  Services& services_;
  const ollama::CreateRequest request_;
  const fair::PartyId party_;
  ProgressStream& progress_;
  NewModel model_;
  bool described_ = false;              // its details are those of the files
  BlobUsers::Lease sources_;            // the files of the request
  std::vector<std::string> leftovers_;  // blobs that go when no model names them in the end
};

}  // namespace

Awaitable<void> Create(Services& services, Exchange& exchange) {
  auto request = co_await ParseBody(services, exchange, ollama::ParseCreate);
  if (!request) co_return;
  exchange.log().model = request->model;
  ProgressStream progress(exchange, request->stream);
  auto made = co_await MakeModel(services, *std::move(request), PartyOf(exchange), progress);
  if (made) {
    co_await progress.Succeed();
  } else {
    co_await progress.Fail(made.error());
  }
}

Awaitable<api::Result<void>> MakeModel(Services& services, ollama::CreateRequest request, fair::PartyId party,
                                       ProgressStream& progress, std::vector<Layer> more_layers) {
  Creation creation(services, std::move(request), std::move(party), progress);
  for (Layer& layer : more_layers) creation.AddLayer(std::move(layer));
  auto made = co_await creation.Run();
  co_return made;
}

}  // namespace quire::server
