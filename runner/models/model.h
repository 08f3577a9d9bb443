// A loaded model: its cache layout and its forward pass.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/base/error.h"
#include "api/base/ids.h"
#include "api/base/kv_type.h"
#include "cache/hybrid_cache.h"
#include "cache/layout.h"
#include "cache/write.h"

namespace quire::runner {
class ThreadPool;
namespace weights {
class ModelFiles;
}
}  // namespace quire::runner

namespace quire::runner::models {

using api::TokenId;

// Rows of a batch that are an image's: what a vision tower made of it takes the place of token embeddings.
struct EmbeddedRows {
  int32_t begin = 0, end = 0;         // rows of the batch
  std::span<const float> embeddings;  // [end - begin, hidden_size]
  // Added to the rows behind layers 0, 1, ... (deepstack): [end - begin, hidden_size] each.
  std::vector<std::span<const float>> behind_layers = {};
};

// One step's tokens of many sequences, laid end to end (ragged): rows [row_begin[i], row_begin[i + 1]) belong
// to sequence i of the StepView. Plain data, owned by the engine.
struct Batch {
  std::vector<TokenId> tokens;              // [rows]
  std::vector<int32_t> row_begin;           // [sequences + 1]
  std::vector<int32_t> logit_rows;          // rows that need logits, ascending
  std::vector<int32_t> hidden_rows = {};    // rows that need their final hidden state, ascending
  std::vector<EmbeddedRows> embedded = {};  // ascending; tokens of these rows are not looked at
  // [rows] of time, height and width each, where a sequence's rotary positions are not its positions in the
  // cache (M-RoPE); all empty: they are.
  std::array<std::vector<int64_t>, 3> rope_positions = {};
  // [rows]: the cache position behind the last one that a row sees, where rows of an image see each other;
  // empty: each row sees up to itself. REQUIRES: what a row sees is before the end of its sequence's rows.
  std::vector<int32_t> seen_end = {};
};

// How a text model wants the rows of images.
struct ImageRules {
  bool both_ways = false;       // rows of an image see each other: its rows belong into one step
  bool grid_positions = false;  // their rotary positions are those of a grid (M-RoPE)
};

// Where a pass puts its results.
struct Outputs {
  template <std::convertible_to<std::span<float>> Floats>
  Outputs(Floats&& logits_to, std::span<float> hidden_to = {})  // NOLINT: logits alone are the usual case
      : logits(std::forward<Floats>(logits_to)), hidden(hidden_to) {}

  std::span<float> logits;  // [logit_rows, vocab_size]
  std::span<float> hidden;  // [hidden_rows, hidden_size]: after the final norm
};

// Receives named intermediate activations, for the golden tests only. Names are those of tests/data/README.md
// ("hidden.embed", "hidden.layer3", "hidden.final_norm").
class ActivationHook {
 public:
  virtual ~ActivationHook() = default;
  virtual void Activation(const std::string& name, std::span<const float> values, int64_t rows) = 0;
};

// Where a decoder layer has its state, or one of two.
struct CacheBinding {
  bool recurrent = false;
  size_t index = 0;   // attention group, or recurrent layer, of the layout
  int32_t layer = 0;  // within the group
  int32_t decoder_layer = 0;
  bool state_space = false;  // the state is [heads, state, head_dim], not a delta net's
  // Not 0: a delta net's value heads lie tiled over this many key heads, as in some GGUF files; that is, the
  // j-th head that shares key head g is number j * key_heads + g, not g * shared + j.
  int32_t tiled_over = 0;
  // Not 0: of a head's row in the cache, only this many numbers are its key, or its value; the others are 0.
  int32_t key_dim = 0, value_dim = 0;

  bool operator==(const CacheBinding&) const = default;
};

// Engine thread only. The weights stay mapped while the model lives.
class Model {
 public:
  virtual ~Model() = default;

  virtual const std::string& architecture() const = 0;
  virtual int32_t vocab_size() const = 0;
  virtual int32_t hidden_size() const = 0;
  virtual int32_t context_length() const = 0;  // trained, tokens
  virtual int64_t parameters() const = 0;
  virtual int64_t weight_bytes() const = 0;  // mapped or allocated
  // Memory of the weights while the model runs (TensorBinder::resident_bytes), and of forward passes with
  // `rows` rows beside their outputs. Also known for a metadata-only model.
  virtual int64_t resident_bytes() const = 0;
  // Bytes in the files of weights that are not resident (ModelFiles::panel_bytes_max): products read them
  // again each time. Zero without a limit.
  virtual int64_t streamed_bytes() const { return 0; }
  virtual int64_t scratch_bytes(int64_t rows) const = 0;
  virtual int64_t resident_scratch_bytes() const = 0;  // by the passes so far
  virtual const cache::Layout& cache_layout() const = 0;
  virtual ImageRules image_rules() const { return {}; }
  // Sets the element type of the KV cache. REQUIRES: no cache has been made from the layout yet.
  virtual api::Result<void> SetKvCacheType(api::KvType type) = 0;
  // The context that all positions are rotated for; until it is called, one as long as context_length().
  // Only LongRoPE's angles depend on it. REQUIRES: no keys are cached.
  virtual void SetContext(int64_t /*tokens*/) {}
  // Rotates keys that RemoveRange moved to their new positions. Empty where ranges cannot be removed.
  virtual cache::RotateKeys key_rotation() const = 0;
  // In the order of decoder layers. Several layers may share one; a layer may have two, or none.
  virtual std::span<const CacheBinding> cache_bindings() const = 0;

  // The input of the first layer for some tokens, [tokens, hidden_size].
  virtual void Embed(std::span<const TokenId> tokens, ThreadPool& pool, std::span<float> to) const = 0;

  // Runs all layers over the batch, writing K, V and recurrent state through `step`, and fills the outputs.
  // Batch-invariant: a row's result depends only on its own sequence (docs/numerics.md). REQUIRES: batch and
  // step describe the same sequences; tokens are in [0, vocab_size) (the caller checks input).
  virtual void Forward(const Batch& batch, const cache::StepView& step, ThreadPool& pool,
                       const Outputs& outputs, ActivationHook* hook = nullptr) = 0;

  // Moves one recurrent layer of `slot` on by `tokens` recorded inputs [tokens, record_bytes]
  // (cache::ReplayInputs), to the bits that running those tokens gives. REQUIRES: the layout has that
  // recurrent layer.
  virtual void Replay(size_t recurrent_layer, std::byte* slot, std::span<const std::byte> inputs,
                      int32_t tokens, ThreadPool& pool) = 0;
};

// Picks the family by architecture name and builds the model. kBadModel names the file, tensor and reason; an
// architecture nobody registered is kBadModel too and lists those that are. `kv_type`: the element type of
// its KV cache; kInvalidArgument where heads are not whole blocks of it.
api::Result<std::unique_ptr<Model>> LoadModel(std::shared_ptr<const weights::ModelFiles> files,
                                              api::KvType kv_type = api::KvType::kF32);

// A supported architecture, as config.json's model_type or GGUF's general.architecture calls it.
struct Architecture {
  std::string_view family;        // "Qwen3-Next"
  std::string_view hugging_face;  // model_types, "|" between them
  std::string_view gguf;          // architectures, likewise
  bool draft = false;             // a draft model (draft_model.h), of no use alone
  // What its results are compared with in tests: transformers or, of GGUF files alone, llama.cpp, unless
  // another is named.
  std::string_view reference = {};
};
std::vector<Architecture> SupportedArchitectures();

// Architectures of either format that are known and not loaded, and why.
struct RefusedArchitecture {
  std::string_view reason;  // what it is: "a diffusion model"
  std::string_view names;   // "|" between them
};
std::vector<RefusedArchitecture> RefusedArchitectures();
// The reason, or nothing for a name that is not among them.
std::string_view RefusalOf(std::string_view architecture);

}  // namespace quire::runner::models
