// Everything a runner needs of its model, built from the files.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "api/base/error.h"
#include "api/base/ids.h"
#include "api/base/kv_type.h"
#include "api/ipc/messages.h"
#include "runner/constraint/token_trie.h"
#include "runner/draft/drafter.h"
#include "runner/engine/prompt/image_prompt.h"
#include "runner/engine/prompt/sentence_settings.h"
#include "runner/models/draft_model.h"
#include "runner/models/encoder.h"
#include "runner/models/model.h"
#include "runner/models/pooling.h"
#include "runner/models/rank_head.h"
#include "runner/models/vision_tower.h"
#include "runner/output/format.h"
#include "runner/prompt/prompt_template.h"
#include "runner/tokenizer/tokenizer.h"
#include "runner/weights/model_files.h"
#include "runner/weights/model_source.h"

namespace quire::runner::engine {

// The draft source of a model: at most one of these.
struct DraftParts {
  std::unique_ptr<models::Model> model;      // with caches of its own
  std::unique_ptr<models::DraftModel> head;  // reads the model's
  std::unique_ptr<models::MtpLayer> mtp;     // the model's own, with caches too

  const cache::Layout* cache_layout() const;  // null: no caches
  int64_t resident_bytes() const;             // of weights
  std::string architecture() const;           // empty: there is none
};

// Tokenizer, template and end-of-generation ids are immutable and for any thread; the model is the engine
// thread's.
struct LoadedModel {
  std::shared_ptr<const weights::ModelFiles> files;
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
  std::shared_ptr<const PromptTemplate> prompt_template;
  std::unordered_set<api::TokenId> end_of_generation;
  // The control token that every message of the chat template begins with ("<|im_start|>"), if there is one:
  // where it stands, a message ends. Text from outside never becomes a control token.
  std::optional<api::TokenId> turn_start_token;
  std::vector<std::string> prompt_notes = {};  // what was decided about its prompt format, for people
  output::Format format;                       // of its answers
  std::unique_ptr<models::Model> model;
  std::unique_ptr<models::Encoder> encoder;  // instead of `model`
  DraftParts draft;
  std::unique_ptr<draft::Drafter> drafter;                        // made elsewhere, where there is no draft
  api::Result<models::Pooling> pooling = models::Pooling::kLast;  // an error fails embeddings only
  std::shared_ptr<const models::RankHead> rank = {};              // of a decoder that ranks; or null
  std::shared_ptr<const SentenceSettings> sentence = {};
  ImageContext images = {};
  std::unique_ptr<models::VisionTower> tower = {};  // with images.processor
};

// The model's vocabulary as constraints use it; takes about 100 ms for 128k tokens.
std::shared_ptr<const constraint::VocabularyIndex> IndexVocabulary(
    const tokenizer::Tokenizer& tokenizer, const std::unordered_set<api::TokenId>& end_of_generation);

using Progress = std::function<void(float fraction, std::string_view stage)>;

struct LoadOptions {
  // The type that float matrices get on the way (weights/quantize_on_load.h); empty: they stay as they are.
  std::string_view quantize_on_load = {};
  api::KvType kv_cache_type = api::kDefaultKvType;
  // Goes before the files' own chat template unless it is empty. One that cannot be read is left aside where
  // the files bring a template of their own: what Ollama stored may use parts of its language that are not
  // known here.
  std::string_view go_template = {};
  api::ipc::PromptNames names = {};
  // A draft model; empty: none.
  weights::ModelSource draft = {};
  // The file with its vision tower (mmproj), where the model's own have none; null: none.
  std::shared_ptr<const weights::ModelFiles> projector = {};
  std::string projector_error = {};  // why there is none, though one was named
  // weights::ModelFiles::panel_bytes_max of the model. Encoders and draft models have no limit.
  int64_t panel_bytes_max = weights::kNoPanelLimit;
};

// The model that Load() builds from the files, without reading weights: metadata-only (meta tensors). Of
// `options` the types of weights and caches count.
api::Result<std::unique_ptr<models::Model>> LoadMetadataModel(
    std::shared_ptr<const weights::ModelFiles> files, const LoadOptions& options);

api::Result<std::unique_ptr<models::Encoder>> LoadMetadataEncoder(
    std::shared_ptr<const weights::ModelFiles> files, const LoadOptions& options);

// What /api/show tells of the tower: the capability "vision", and what its file says. One that cannot be read
// is a line of the repairs.
void DescribeTower(const std::shared_ptr<const weights::ModelFiles>& files, const LoadOptions& options,
                   bool verbose, api::ipc::Inspected& described);

// A model whose files are open and checked. No weights have been read.
struct OpenedModel {
  LoadedModel loaded;  // all but the model itself
  // Metadata-only model (meta tensors): reports the memory that weights, steps and caches will need.
  std::unique_ptr<const models::Model> metadata_model;
  std::unique_ptr<const models::Encoder> metadata_encoder;  // instead of it
  DraftParts metadata_draft;
  std::shared_ptr<const weights::ModelFiles> draft_files;     // null: LoadOptions names no draft model
  std::unique_ptr<const models::VisionTower> metadata_tower;  // null: it sees no images
};

// kBadModel or kNotFound names the file and the reason, also where the draft model does not go with the
// model; kInvalidArgument the option. No file is opened afterwards: the sources are needed no longer.
api::Result<OpenedModel> Open(const weights::ModelSource& source, const Progress& progress,
                              const LoadOptions& options);
// Loads the metadata-only models again, for options.panel_bytes_max. REQUIRES: the rest of `options` is what
// it was opened with, but for the draft model, whose files are open.
api::Result<void> ReloadMetadata(OpenedModel& opened, const LoadOptions& options);
// Reads the weights. `options` are those that it was opened with.
api::Result<LoadedModel> Finish(OpenedModel opened, const Progress& progress, const LoadOptions& options);
// Both, one after the other.
api::Result<LoadedModel> Load(const weights::ModelSource& source, const Progress& progress,
                              const LoadOptions& options = {});

}  // namespace quire::runner::engine
