// A decoder as a table of properties. A family whose layers differ from one another and from those of other
// families only in these is one small file: it reads a configuration into a DecoderForm and names its
// tensors.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "runner/kernels/elementwise.h"
#include "runner/models/decoder.h"
#include "runner/models/draft_model.h"
#include "runner/models/latent_attention.h"
#include "runner/models/mixture_config.h"
#include "runner/models/residual_streams.h"

namespace quire::runner::models {

// Where the norms of a block are. a: attention, f: feed-forward, n: a norm of its own.
enum class NormPlaces : uint8_t {
  kBefore,    // h += a(n(h)); h += f(n(h))
  kAfter,     // h += n(a(h)); h += n(f(h))
  kAround,    // h += n(a(n(h))); h += n(f(n(h)))
  kParallel,  // x = n(h); h += a(x) + f(x)
  kBeside,    // h += a(n(h)) + f(n(h))
};

// The tensor names of a block. Norms in places that a form does not have are not looked at.
struct BlockNames {
  std::string_view layers = "layers";  // what a checkpoint calls them, see TensorBinder::Layer
  TensorName embedding = {"embed_tokens", "token_embd"};
  TensorName positions = {};       // of a table that is added to the embedding, where a family has one
  TensorName embedding_norm = {};  // of the embedded tokens, where a family has one
  TensorName attention_norm = {"input_layernorm", "attn_norm"};
  TensorName post_attention_norm = {"post_attention_layernorm", "post_attention_norm"};
  TensorName mlp_norm = {"post_attention_layernorm", "ffn_norm"};
  TensorName post_mlp_norm = {"post_feedforward_layernorm", "post_ffw_norm"};
  AttentionNames attention = {};
  MlpNames mlp = {};  // of a plain feed-forward layer: up and down
  TensorName final_norm = {"norm", "output_norm"};
  TensorName latent_gate = {};  // LatentAttention::gate, where there is one
  TensorName head = {"lm_head", "output"};
};

struct LayerForm {
  static constexpr int32_t kNoRope = -1;
  int32_t window = 0;               // 0 = full attention
  bool chunked = false;             // `window` is the size of chunks: cache::AttentionGroup
  int32_t rope = 0;                 // index of DecoderForm::ropes; kNoRope: positions are not encoded
  int32_t heads = 0, kv_heads = 0;  // 0: those of DecoderForm::decoder
  bool sinks = false;               // a score per head beside those of the keys
  float attention_scale = 0;        // in place of DecoderForm::attention_scale; 0 = that
};

// The experts of the layers that have them, in place of their feed-forward layer.
struct MixtureForm {
  MixtureConfig config = {};
  MixtureNames names = {};
  bool early = false;  // the router sees what its layer sees, in front of all norms
  std::vector<kernels::SwigluClamp> clamps = {}, shared_clamps = {};  // [decoder.layers], or empty: config's
  // Binds the experts of a layer that no file stores as BindExperts() has it; or null.
  void (*bind_experts)(const TensorScope& scope, int64_t hidden, const MixtureConfig& config,
                       MixtureOfExperts* moe) = nullptr;
  // A norm of the block's input for experts that are beside the feed-forward layer: h += f(m(h)) with the h
  // before the block. Or none.
  TensorName beside_norm = {};
};

// The indexers that choose what layers see: DeepSeek V3.2's with latent attention, MiniMax-M3's without.
struct IndexerForm {
  int32_t heads = 0, dim = 0;
  kernels::IndexRule rule = {};
  int32_t rope = 0;                                   // index of DecoderForm::ropes
  int32_t rotated_last = 0;                           // Indexer
  float key_eps = 1e-6F;                              // of the keys' layer norm, with latent attention
  enum class Use : uint8_t { kNone, kOwn, kShared };  // kShared: what the last layer with its own has chosen
  std::vector<Use> layers = {};                       // [decoder.layers]
};

struct DecoderForm {
  DecoderConfig decoder;     // also: the kind of norms, the activation, a plain feed-forward layer
  int32_t feed_forward = 0;  // width, of layers without experts
  std::vector<RopeSpec> ropes = {};
  std::vector<LayerForm> layers = {};  // [decoder.layers]
  bool transposed = false;             // a checkpoint stores the matrices of layers [in, out]
  NormPlaces norms = NormPlaces::kBefore;
  std::optional<NormKind> embedding_norm = {}, final_norm = {};  // where they are not decoder.norm
  float post_norm_eps = 0;  // of norms behind attention and feed-forward; 0 = decoder.norm_eps
  std::optional<LatentAttentionShape> latent = {};  // in place of grouped-query attention
  std::optional<StreamForm> streams = {};           // of the residual, where there are several
  std::optional<IndexerForm> indexer = {};
  OutputGate::Kind output_gate = OutputGate::Kind::kNone;
  int32_t value_dim = 0;  // of a head's value; 0 = head_dim
  float value_scale = 1;  // of values
  QkNorm qk_norm = QkNorm::kNone;
  bool norm_unrotated = true;           // kUnitHeads: of layers without positions too
  float qk_eps = 0;                     // of kUnitHeads; 0 = that of the other norms
  float clip_qkv = 0;                   // Attention::clip
  Bias attention_bias = Bias::kAbsent;  // of q, k and v
  float alibi = 0;                      // the largest bias of ALiBi; 0 = none
  Bias out_bias = Bias::kAbsent;
  Bias mlp_bias = Bias::kAbsent;
  std::vector<kernels::XieluShape> xielu = {};  // [decoder.layers], or empty: stored as tensors of the layers
  float attention_scale = 0;                    // of query and key products; 0 = 1 / sqrt(head_dim)
  float score_cap = 0;                          // of the scaled products; 0 = none
  QueryGrowth query_growth = {};
  bool growth_unrotated = false;  // query_growth is for layers without positions only
  float embedding_scale = 1;      // of embedded tokens
  float residual_scale = 1;       // of what a part of a block adds to the residual stream
  float logit_scale = 1;
  float logit_cap = 0;  // of the scaled logits; 0 = none
  MixtureForm mixture = {};
  bool images_both_ways = false;  // ImageRules::both_ways
  int32_t loops = 1;              // how often the layers run, each time with keys of their own
  bool loop_norm = true;          // the final norm is between two loops
  int32_t mtp_layers = 0;         // behind the last layer, where they are stored
  BlockNames names = {};

  void SetWindows(const std::vector<int32_t>& windows);  // [decoder.layers]
};

// What a family's reader asks for beyond its own keys.
struct FormQuery {
  DecoderConfig given = {};  // see ReadDecoderConfig
  TiedByDefault tied = TiedByDefault::kIfNoHead;
  RopeQuery rope = {.default_theta = 10000};  // head_dim is filled in
  // Which layers slide where the configuration has a window but no list; see ReadWindows.
  bool (*slides)(int32_t layer, int32_t period) = [](int32_t, int32_t) { return true; };
  int32_t period = 0;
  int32_t given_window = 0;
  bool value_is_share = false;     // of latent attention: hidden / heads where the configuration does not say
  int32_t given_feed_forward = 0;  // as a multiple of the hidden size
};

// The properties that most families spell alike: the shape, one rotary embedding for all layers (none where
// query.rope.default_theta is negative), the windows. With latent attention where query.given.head_dim is
// negative.
DecoderForm ReadDecoderForm(ConfigReader& read, const FormQuery& query = {});

// As ReadDecoderForm, of a family with experts. Windows are left to the family. MTP layers are counted apart.
DecoderForm ReadMixtureForm(ConfigReader& read, const FormQuery& query, const MixtureDefaults& defaults);

// The indexer of a family with latent attention, whose queries have been compressed: index_n_heads,
// index_head_dim, index_topk, and which layers have one of their own. All use `form`'s first rope.
IndexerForm ReadIndexer(ConfigReader& read, const DecoderForm& form, int32_t default_heads);
// GLM-5, Hunyuan 4: which layers have an indexer of their own, as a list, as a pattern of letters, or as a
// rhythm.
std::vector<IndexerForm::Use> ReadIndexerLayers(ConfigReader& read, int32_t layers, int32_t default_freq);
// Query heads and KV heads of each layer: a list, or one number for all. REQUIRES: MTP layers are counted as
// ReadMixtureForm does it, and given.heads and given.kv_heads were negative.
void ReadLayerHeads(ConfigReader& read, ConfigKey heads, ConfigKey kv_heads, DecoderForm* form);

// Read for Ministral 3, Mistral 4 and Mistral Large 3, whose GGUF files are of DeepSeek's architecture.
QueryGrowth ReadQueryGrowth(ConfigReader& read,
                            std::string_view gguf_context = "rope.scaling.original_context_length");

// Layers with a window get a rotary embedding with the base that a GGUF file has for them, if it has one.
// `query`: that of the other layers. REQUIRES: the windows are set.
void ReadSlidingRope(ConfigReader& read, RopeQuery query, DecoderForm* form);

// `key` of a checkpoint decides; a GGUF has what is stored.
Bias ReadBias(ConfigReader& read, const char* key, bool fallback = false);

// xIELU as a checkpoint stores it: the two slopes before their softplus.
kernels::XieluShape MakeXielu(float alpha_p, float alpha_n, float beta, float eps);

// The last step of a declared family's loader.
api::Result<std::unique_ptr<Model>> BuildDeclared(ConfigReader& read,
                                                  std::shared_ptr<const weights::ModelFiles> files,
                                                  const DecoderForm& form);

// The first MTP layer of a declared family's checkpoint (DeepSeek V3, GLM-4.5): a block like the others
// behind a join of the token's embedding and the hidden state before it. Null where there is none, or the
// target is of another family.
api::Result<std::unique_ptr<MtpLayer>> LoadDeclaredMtp(std::shared_ptr<const weights::ModelFiles> files,
                                                       const Model& target, api::KvType kv_type);

}  // namespace quire::runner::models
