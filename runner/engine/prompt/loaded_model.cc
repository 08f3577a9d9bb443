#include "runner/engine/prompt/loaded_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "runner/engine/prompt/chat_form.h"
#include "runner/engine/prompt/markup_grammar.h"
#include "runner/engine/prompt/prompt_builder.h"
#include "runner/images/image_processor.h"
#include "runner/kernels/numa_plan.h"
#include "runner/models/sentence_pooling.h"
#include "runner/tokenizer/model_tokenizer.h"
#include "runner/weights/metadata_only.h"
#include "runner/weights/model_description.h"
#include "runner/weights/quantize_on_load.h"
#include "runner/weights/quantized_checkpoint.h"

namespace quire::runner::engine {
namespace {

// The first control token of what stands before an answer; where the template puts nothing there, the first
// one of a conversation that is not its begin.
std::optional<api::TokenId> FindTurnStartToken(const tokenizer::Tokenizer& tokenizer,
                                               const PromptTemplate& prompt_template) {
  const auto opens = [&](const std::string& text) -> std::optional<api::TokenId> {
    const tokenizer::Segment segment{text, true};
    const auto tokens = tokenizer.EncodeSegments({&segment, 1});
    if (!tokens) return std::nullopt;
    for (const api::TokenId token : *tokens) {
      if (!tokenizer.IsSpecial(token)) return std::nullopt;
      if (token != tokenizer.bos_id()) return token;
    }
    return std::nullopt;
  };
  const auto probe = prompt_template.ProbeTurns();
  if (!probe) return std::nullopt;
  const auto opener = opens(probe->answer_header);
  return opener ? opener : opens(probe->user_turn);
}

}  // namespace

const cache::Layout* DraftParts::cache_layout() const {
  if (model) return &model->cache_layout();
  return mtp ? &mtp->cache_layout() : nullptr;
}

int64_t DraftParts::resident_bytes() const {
  if (model) return model->resident_bytes();
  if (mtp) return mtp->weight_bytes();
  return head ? head->weight_bytes() : 0;
}

std::string DraftParts::architecture() const {
  if (model) return model->architecture();
  if (mtp) return "mtp";
  return head ? head->architecture() : std::string();
}

std::shared_ptr<const constraint::VocabularyIndex> IndexVocabulary(
    const tokenizer::Tokenizer& tokenizer, const std::unordered_set<api::TokenId>& end_of_generation) {
  return std::make_shared<const constraint::VocabularyIndex>(
      tokenizer.vocab_size(), [&](api::TokenId id) { return tokenizer.TokenBytes(id); },
      [&](api::TokenId id) { return IsMarkup(tokenizer, id); }, end_of_generation);
}

namespace {

using Files = api::Result<std::shared_ptr<const weights::ModelFiles>>;

// Types and shapes of the tensors as they will be loaded.
Files HeadersOf(std::shared_ptr<const weights::ModelFiles> files) {
  auto headers = weights::MetadataOnly(std::move(files));
  return headers ? weights::ConvertCheckpoint(*std::move(headers), 1) : headers;
}

std::shared_ptr<const weights::ModelFiles> Limited(std::shared_ptr<const weights::ModelFiles> files,
                                                   const LoadOptions& options) {
  if (options.panel_bytes_max == weights::kNoPanelLimit) return files;
  return weights::LimitPanels(std::move(files), options.panel_bytes_max);
}

}  // namespace

api::Result<std::unique_ptr<models::Model>> LoadMetadataModel(
    std::shared_ptr<const weights::ModelFiles> files, const LoadOptions& options) {
  auto headers = HeadersOf(std::move(files));
  if (!headers) return std::unexpected(headers.error());
  if (!options.quantize_on_load.empty()) {
    headers = weights::QuantizeOnLoad(std::move(*headers), options.quantize_on_load, 1);
    if (!headers) return std::unexpected(headers.error());
  }
  return models::LoadModel(Limited(std::move(*headers), options), options.kv_cache_type);
}

api::Result<std::unique_ptr<models::Encoder>> LoadMetadataEncoder(
    std::shared_ptr<const weights::ModelFiles> files, const LoadOptions& options) {
  auto headers = weights::MetadataOnly(std::move(files));
  if (!headers) return std::unexpected(headers.error());
  if (!options.quantize_on_load.empty()) {
    headers = weights::QuantizeOnLoad(std::move(*headers), options.quantize_on_load, 1);
    if (!headers) return std::unexpected(headers.error());
  }
  return models::LoadEncoder(std::move(*headers));
}

namespace {

// A draft model has to mean the same by every id.
api::Result<void> CheckVocabulary(const weights::ModelFiles& files, const tokenizer::Tokenizer& target) {
  const auto own = tokenizer::LoadTokenizer(files);
  if (!own) return std::unexpected(own.error());
  const auto fail = [&](const std::string& what) {
    return api::Fail(api::ErrorCode::kBadModel,
                     fmt::format("{}: the draft model's vocabulary differs: {}", files.path(), what));
  };
  if ((*own)->vocab_size() != target.vocab_size()) {
    return fail(fmt::format("{} tokens, the model has {}", (*own)->vocab_size(), target.vocab_size()));
  }
  for (api::TokenId id = 0; id < target.vocab_size(); ++id) {
    if ((*own)->TokenBytes(id) != target.TokenBytes(id)) return fail(fmt::format("token {} differs", id));
  }
  return {};
}

// The draft source of `target`: the model in `files`, or, where that is null, its own MTP layer.
// `metadata_only`: without reading weights; the target is then metadata-only too.
api::Result<DraftParts> LoadDraft(std::shared_ptr<const weights::ModelFiles> files,
                                  const LoadOptions& options, const LoadedModel& of,
                                  const models::Model& target, bool metadata_only) {
  DraftParts draft;
  if (!files) {
    auto own = metadata_only ? HeadersOf(of.files) : Files(of.files);
    if (!own) return std::unexpected(own.error());
    auto mtp = models::LoadMtpLayer(*std::move(own), target, options.kv_cache_type);
    if (!mtp) return std::unexpected(mtp.error());
    draft.mtp = *std::move(mtp);
    return draft;
  }
  const bool head = models::IsDraftModel(*files);
  if (metadata_only && !head) {
    if (auto same = CheckVocabulary(*files, *of.tokenizer); !same) return std::unexpected(same.error());
  }
  if (metadata_only) {
    auto headers = HeadersOf(std::move(files));
    if (!headers) return std::unexpected(headers.error());
    files = *std::move(headers);
  }
  if (head) {
    auto loaded = models::LoadDraftModel(std::move(files), target);
    if (!loaded) return std::unexpected(loaded.error());
    draft.head = *std::move(loaded);
  } else {
    auto loaded = models::LoadModel(std::move(files), options.kv_cache_type);
    if (!loaded) return std::unexpected(loaded.error());
    draft.model = *std::move(loaded);
  }
  return draft;
}

api::Result<void> LoadMetadataDraft(OpenedModel& opened, const LoadOptions& options) {
  auto draft =
      LoadDraft(opened.draft_files, options, opened.loaded, *opened.metadata_model, /*metadata_only=*/true);
  if (!draft) return std::unexpected(draft.error());
  opened.metadata_draft = *std::move(draft);
  return {};
}

// A vision tower, metadata-only, and what prepares images for it; both are null where there is none.
struct TowerParts {
  std::unique_ptr<const images::ImageProcessor> processor;
  std::unique_ptr<models::VisionTower> tower;
};

api::Result<TowerParts> ReadTower(const std::shared_ptr<const weights::ModelFiles>& model,
                                  const LoadOptions& options) {
  TowerParts parts;
  const auto& projector = options.projector;
  if (!options.projector_error.empty()) return api::Fail(api::ErrorCode::kBadModel, options.projector_error);
  auto processor = images::ReadProcessor(*model, projector.get());
  if (!processor) return std::unexpected(processor.error());
  if (*processor == nullptr) return parts;
  auto headers = HeadersOf(model);
  if (!headers) return std::unexpected(headers.error());
  auto projector_headers = projector ? HeadersOf(projector) : Files(nullptr);
  if (!projector_headers) return std::unexpected(projector_headers.error());
  auto tower = models::LoadVisionTower(*std::move(headers), *std::move(projector_headers));
  if (!tower) return std::unexpected(tower.error());
  if (*tower == nullptr) return parts;
  parts.processor = *std::move(processor);
  parts.tower = *std::move(tower);
  return parts;
}

api::Result<void> OpenTower(const LoadOptions& options, OpenedModel& opened) {
  LoadedModel& loaded = opened.loaded;
  auto parts = ReadTower(loaded.files, options);
  // Text models work beside towers that cannot be read, as they did before any was.
  if (!parts) {
    loaded.prompt_notes.push_back(parts.error().message + "; images are not read");
    return {};
  }
  auto& [processor, tower] = *parts;
  if (tower == nullptr) return {};
  const int32_t hidden = opened.metadata_model->hidden_size();
  if (tower->hidden_size() != hidden) {
    return api::Fail(api::ErrorCode::kBadModel,
                     fmt::format("{}: the vision tower makes rows of {} numbers, the model has {}",
                                 loaded.files->path(), tower->hidden_size(), hidden));
  }
  const tokenizer::Segment segment{processor->image_token(), true};
  const auto ids = loaded.tokenizer->EncodeSegments({&segment, 1});
  if (!ids || ids->size() != 1) {
    return api::Fail(api::ErrorCode::kBadModel,
                     fmt::format("{}: the vocabulary lacks \"{}\", which stands for images",
                                 loaded.files->path(), processor->image_token()));
  }
  loaded.images = {.processor = std::move(processor),
                   .image_token = ids->front(),
                   .prepared = std::make_shared<PreparedImages>()};
  opened.metadata_tower = std::move(tower);
  return {};
}

// An encoder in place of a decoder.
api::Result<void> OpenEncoder(const LoadOptions& options, OpenedModel& opened) {
  const weights::ModelFiles& files = *opened.loaded.files;
  const auto refuse = [&](const std::string& reason) {
    return api::Fail(api::ErrorCode::kBadModel, fmt::format("{}: {}", files.path(), reason));
  };
  if (!options.draft.empty()) return refuse("an encoder has no use for a draft model");
  if (auto usable = opened.loaded.sentence->Check(); !usable) return refuse(usable.error().message);
  auto encoder = LoadMetadataEncoder(opened.loaded.files, options);
  if (!encoder) return std::unexpected(encoder.error());
  opened.metadata_encoder = *std::move(encoder);
  if (opened.loaded.tokenizer->vocab_size() <= opened.metadata_encoder->vocab_size()) return {};
  return refuse(fmt::format("the tokenizer has {} ids, but the model's embedding has only {}",
                            opened.loaded.tokenizer->vocab_size(), opened.metadata_encoder->vocab_size()));
}

}  // namespace

api::Result<OpenedModel> Open(const weights::ModelSource& source, const Progress& progress,
                              const LoadOptions& options) {
  OpenedModel opened;
  LoadedModel& loaded = opened.loaded;
  progress(0.0F, "mapping weights");
  auto files = weights::Open(source);
  if (!files) return std::unexpected(files.error());
  loaded.files = std::move(*files);

  progress(0.1F, "building tokenizer");
  auto tokenizer = tokenizer::LoadTokenizer(*loaded.files);
  if (!tokenizer) return std::unexpected(tokenizer.error());
  loaded.tokenizer = std::move(*tokenizer);

  progress(0.2F, "parsing chat template");
  auto chat = ReadChatForm(*loaded.files, *loaded.tokenizer, options.names, options.go_template);
  if (!chat) return std::unexpected(chat.error());
  loaded.prompt_template = std::move(chat->prompt_template);
  loaded.format = std::move(chat->format);
  loaded.prompt_notes = std::move(chat->notes);
  loaded.turn_start_token = FindTurnStartToken(*loaded.tokenizer, *loaded.prompt_template);
  loaded.pooling = models::ReadPooling(*loaded.files);
  loaded.sentence = std::make_shared<const SentenceSettings>(SentenceSettings::Of(*loaded.files));
  for (const int32_t id : loaded.files->end_of_generation_ids()) loaded.end_of_generation.insert(id);
  for (const api::TokenId id : loaded.tokenizer->ends()) loaded.end_of_generation.insert(id);

  if (models::IsEncoder(*loaded.files)) {
    if (auto done = OpenEncoder(options, opened); !done) return std::unexpected(done.error());
    return opened;
  }
  auto metadata_model = LoadMetadataModel(loaded.files, options);
  if (!metadata_model) return std::unexpected(metadata_model.error());
  opened.metadata_model = std::move(*metadata_model);
  if (loaded.tokenizer->vocab_size() > opened.metadata_model->vocab_size()) {
    return api::Fail(
        api::ErrorCode::kBadModel,
        fmt::format("{}: the tokenizer has {} ids, but the model's output has only {}", loaded.files->path(),
                    loaded.tokenizer->vocab_size(), opened.metadata_model->vocab_size()));
  }
  if (!options.draft.empty()) {
    auto draft_files = weights::Open(options.draft);
    if (!draft_files) return std::unexpected(draft_files.error());
    opened.draft_files = *std::move(draft_files);
  }
  if (auto draft = LoadMetadataDraft(opened, options); !draft) return std::unexpected(draft.error());
  if (auto tower = OpenTower(options, opened); !tower) return std::unexpected(tower.error());
  return opened;
}

void DescribeTower(const std::shared_ptr<const weights::ModelFiles>& files, const LoadOptions& options,
                   bool verbose, api::ipc::Inspected& described) {
  const auto parts = ReadTower(files, options);
  if (!parts) {
    described.repairs.push_back(parts.error().message + "; images are not read");
    return;
  }
  if (parts->tower == nullptr) return;
  described.capabilities.emplace_back("vision");
  if (options.projector == nullptr) return;
  described.projector_info_json = weights::Describe(*options.projector, verbose, false).model_info_json;
}

api::Result<void> ReloadMetadata(OpenedModel& opened, const LoadOptions& options) {
  opened.metadata_draft = {};  // it may read the model that goes
  auto model = LoadMetadataModel(opened.loaded.files, options);
  if (!model) return std::unexpected(model.error());
  opened.metadata_model = *std::move(model);
  return LoadMetadataDraft(opened, options);
}

namespace {

// Null for a model that does not rank, and for encoders, which have heads of their own. The rows of the
// answers are those of the file, however the rest is quantized.
api::Result<std::shared_ptr<const models::RankHead>> LoadRankHead(const LoadedModel& loaded) {
  if (models::IsEncoder(*loaded.files) || !models::RanksByAnswer(*loaded.files)) return nullptr;
  auto head = models::ReadRankHead(*loaded.files);
  if (!head) return std::unexpected(head.error());
  // Other rerankers ask other questions, and have other answers.
  if (head->tokens && (loaded.tokenizer->TokenBytes((*head->tokens)[0]) != "yes" ||
                       loaded.tokenizer->TokenBytes((*head->tokens)[1]) != "no")) {
    return api::Fail(api::ErrorCode::kBadModel,
                     loaded.files->path() + ": LogitScore: only the answers yes and no are supported");
  }
  return std::make_shared<const models::RankHead>(*std::move(head));
}

}  // namespace

api::Result<LoadedModel> Finish(OpenedModel opened, const Progress& progress, const LoadOptions& options) {
  LoadedModel loaded = std::move(opened.loaded);
  std::shared_ptr<const weights::ModelFiles> projector = options.projector;
  for (auto* files : {&loaded.files, &opened.draft_files, &projector}) {
    if (*files == nullptr) continue;
    auto converted = weights::ConvertCheckpoint(std::move(*files), ComputeThreads());
    if (!converted) return std::unexpected(converted.error());
    *files = *std::move(converted);
  }
  auto rank = LoadRankHead(loaded);
  if (!rank) return std::unexpected(rank.error());
  loaded.rank = *std::move(rank);
  if (!options.quantize_on_load.empty()) {
    progress(0.3F, "quantizing weights");
    auto files = weights::QuantizeOnLoad(std::move(loaded.files), options.quantize_on_load, ComputeThreads());
    if (!files) return std::unexpected(files.error());
    loaded.files = std::move(*files);
  }
  progress(0.5F, "building model");
  if (opened.metadata_encoder) {
    auto encoder = models::LoadEncoder(loaded.files);
    if (!encoder) return std::unexpected(encoder.error());
    loaded.encoder = *std::move(encoder);
    progress(1.0F, "ready");
    return loaded;
  }
  auto model = models::LoadModel(Limited(loaded.files, options), options.kv_cache_type);
  if (!model) return std::unexpected(model.error());
  loaded.model = std::move(*model);
  if (opened.metadata_tower) {
    auto tower = models::LoadVisionTower(loaded.files, std::move(projector));
    if (!tower) return std::unexpected(tower.error());
    loaded.tower = *std::move(tower);
  }
  if (opened.draft_files) progress(0.9F, "loading draft model");
  auto draft =
      LoadDraft(std::move(opened.draft_files), options, loaded, *loaded.model, /*metadata_only=*/false);
  if (!draft) return std::unexpected(draft.error());
  loaded.draft = *std::move(draft);
  progress(1.0F, "ready");
  return loaded;
}

api::Result<LoadedModel> Load(const weights::ModelSource& source, const Progress& progress,
                              const LoadOptions& options) {
  auto opened = Open(source, progress, options);
  if (!opened) return std::unexpected(opened.error());
  return Finish(*std::move(opened), progress, options);
}

}  // namespace quire::runner::engine
