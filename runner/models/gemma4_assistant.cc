#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "runner/kernels/elementwise.h"
#include "runner/models/families.h"
#include "runner/models/gemma4_block.h"
#include "runner/models/gemma4_config.h"

namespace quire::runner::models {
namespace {

// A head that looks only at the tokens of the most promising clusters.
struct ClusteredHead {
  Linear centroids;             // [clusters, hidden]
  std::vector<int32_t> tokens;  // [clusters, vocab / clusters]
  int32_t chosen = 0;           // clusters
};

struct AssistantConfig {
  Gemma4Config stack;
  int32_t target_hidden = 0;
  int32_t clusters = 0;  // 0 = a plain head
  int32_t clusters_chosen = 0;
  std::vector<int32_t> clustered_tokens;  // [clusters, vocab / clusters]
  CacheBinding sliding, full;             // of the target
};

class Gemma4Assistant final : public DraftModel {
 public:
  Gemma4Assistant(std::shared_ptr<const weights::ModelFiles> files, TensorBinder& bind,
                  const AssistantConfig& config, const Model& target);

  const std::string& architecture() const override { return architecture_; }
  int64_t parameters() const override { return parameters_; }
  int64_t weight_bytes() const override { return weight_bytes_; }

  void Draft(const cache::StepView& view, ThreadPool& pool, TokenId token, std::span<float> hidden,
             std::span<float> logits) override;

 private:
  void Logits(ForwardContext& ctx, std::span<const float> out, std::span<float> logits);

  std::shared_ptr<const weights::ModelFiles> files_;  // keeps every Matrix mapped
  const std::string architecture_;
  const Gemma4Config config_;
  const Model& target_;
  cache::Layout layout_;  // the target's, but everything a page shows may be seen
  int64_t parameters_ = 0;
  int64_t weight_bytes_ = 0;
  kernels::Matrix embedding_;  // the head
  Linear before_, after_;      // [hidden, 2 * target hidden], [target hidden, hidden]
  std::vector<Gemma4Block> blocks_;
  RmsNorm final_norm_;
  std::optional<ClusteredHead> clustered_;
  RotaryEmbedding sliding_rotary_, full_rotary_;
  Workspace work_;
  Scratch joined_, scores_, rows_, some_;
};

Gemma4Assistant::Gemma4Assistant(std::shared_ptr<const weights::ModelFiles> files, TensorBinder& bind,
                                 const AssistantConfig& config, const Model& target)
    : files_(std::move(files)),
      architecture_(files_->architecture()),
      config_(config.stack),
      target_(target),
      layout_(target.cache_layout()),
      sliding_rotary_(config.stack.sliding_rope),
      full_rotary_(config.stack.full_rope) {
  for (cache::AttentionGroup& group : layout_.groups) group.window = 0;
  const int64_t hidden = config_.decoder.hidden, wide = config.target_hidden;
  embedding_ = bind.Global().Matrix({"embed_tokens", "token_embd"}, config_.decoder.vocab, hidden);
  before_ = bind.Outside().BindLinear({"pre_projection", "nextn.pre_projection"}, hidden, 2 * wide);
  after_ = bind.Outside().BindLinear({"post_projection", "nextn.post_projection"}, wide, hidden);
  for (size_t i = 0; i < config_.windows.size() && !bind.error(); ++i) {
    const bool slides = config_.windows[i] > 0;
    blocks_.push_back(BindGemma4Block(bind.Layer(i), config_, i, slides ? &sliding_rotary_ : &full_rotary_));
    blocks_.back().attention.binding = slides ? config.sliding : config.full;
  }
  final_norm_ = {.weight = bind.Global().Norm({"norm", "output_norm"}, hidden),
                 .eps = config_.decoder.norm_eps};
  if (config.clusters > 0) {
    clustered_.emplace();
    clustered_->centroids =
        bind.Outside().BindLinear({"masked_embedding.centroids", ""}, config.clusters, hidden);
    clustered_->tokens = config.clustered_tokens;
    clustered_->chosen = config.clusters_chosen;
  }
  parameters_ = bind.parameters();
  weight_bytes_ = bind.bytes();
}

void Gemma4Assistant::Draft(const cache::StepView& view, ThreadPool& pool, TokenId token,
                            std::span<float> hidden, std::span<float> logits) {
  const Batch batch{.tokens = {token}, .row_begin = {0, 1}, .logit_rows = {0}};
  ForwardContext ctx{.batch = batch, .step = view, .layout = layout_, .pool = pool, .work = work_};
  ctx.Prepare(config_.decoder.heads);
  sliding_rotary_.Prepare(ctx);
  full_rotary_.Prepare(ctx);
  const size_t wide = hidden.size();
  const std::span<float> joined = joined_.Get(static_cast<int64_t>(2 * wide));
  const std::span<float> h = work_.hidden.Get(config_.decoder.hidden);
  target_.Embed(batch.tokens, pool, joined.first(wide));
  std::ranges::copy(hidden, joined.subspan(wide).begin());
  before_.Run(pool, ctx.Input(joined), h);
  for (const Gemma4Block& block : blocks_) block.Run(ctx, h, {});
  final_norm_.Run(pool, h, h);
  after_.Run(pool, ctx.Input(h), hidden);
  Logits(ctx, h, logits);
}

// Tokens outside of the chosen clusters get one less than the least inside.
void Gemma4Assistant::Logits(ForwardContext& ctx, std::span<const float> out, std::span<float> logits) {
  if (!clustered_) {
    kernels::MatMul(ctx.pool, out, 1, embedding_, logits);
  } else {
    const auto clusters = static_cast<size_t>(clustered_->centroids.weight.out);
    const size_t size = clustered_->tokens.size() / clusters,
                 chosen = static_cast<size_t>(clustered_->chosen);
    const std::span<float> scores = scores_.Get(static_cast<int64_t>(clusters));
    clustered_->centroids.Run(ctx.pool, ctx.Input(out), scores);
    std::vector<size_t> order(clusters);
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, [&](size_t a, size_t b) { return scores[a] > scores[b]; });
    std::vector<int32_t> tokens;
    for (const size_t cluster : std::span(order).first(chosen)) {
      const auto begin = clustered_->tokens.begin() + static_cast<ptrdiff_t>(cluster * size);
      tokens.insert(tokens.end(), begin, begin + static_cast<ptrdiff_t>(size));
    }
    const auto count = static_cast<int64_t>(tokens.size());
    const std::span<float> rows = rows_.Get(count * embedding_.in), some = some_.Get(count);
    kernels::EmbeddingRows(embedding_, tokens, rows);
    kernels::MatMul(ctx.pool, out, 1,
                    {std::as_bytes(rows).data(), weights::DataType::kF32, count, embedding_.in}, some);
    std::ranges::fill(logits, std::ranges::min(some) - 1);
    for (size_t i = 0; i < tokens.size(); ++i) logits[static_cast<size_t>(tokens[i])] = some[i];
  }
  if (config_.logit_cap > 0) kernels::SoftCap(ctx.pool, config_.logit_cap, logits);
}

void ReadClusters(ConfigReader& read, AssistantConfig* config) {
  if (read.gguf() || !read.Boolean({"use_ordered_embeddings", ""}, false)) return;
  const int32_t vocab = config->stack.decoder.vocab;
  config->clusters = read.Small({"num_centroids", ""}, 1, vocab);
  config->clusters_chosen = read.Small({"centroid_intermediate_top_k", ""}, 1, config->clusters);
  if (read.error()) return;
  if (vocab % config->clusters != 0) {
    return read.Fail(fmt::format("{} tokens cannot be divided into {} clusters", vocab, config->clusters));
  }
  const auto order =
      read.files().Integers("masked_embedding.token_ordering").value_or(std::vector<int64_t>());
  if (std::ssize(order) != vocab ||
      !std::ranges::all_of(order, [&](int64_t token) { return token >= 0 && token < vocab; })) {
    return read.Fail(
        "tensor masked_embedding.token_ordering is missing or not one token for each of the vocabulary");
  }
  for (const int64_t token : order) config->clustered_tokens.push_back(static_cast<int32_t>(token));
}

// The caches that the draft model's layers read.
void FindPlaces(ConfigReader& read, const Model& target, AssistantConfig* config) {
  const cache::Layout& layout = target.cache_layout();
  const int32_t heads = config->stack.decoder.heads;
  bool sliding = false, full = false;
  for (const CacheBinding& binding : target.cache_bindings()) {
    if (binding.recurrent) continue;
    const bool slides = layout.groups[binding.index].window > 0;
    (slides ? config->sliding : config->full) = binding;
    (slides ? sliding : full) = true;
  }
  for (size_t layer = 0; layer < config->stack.windows.size(); ++layer) {
    const bool slides = config->stack.windows[layer] > 0;
    const CacheBinding& binding = slides ? config->sliding : config->full;
    const bool there = slides ? sliding : full;
    if (!there || layout.groups[binding.index].head_dim != config->stack.head_dim(layer)) {
      return read.Fail(
          fmt::format("layer {} has head size {}, but the target has no matching KV cache for it", layer,
                      config->stack.head_dim(layer)));
    }
  }
  for (const cache::AttentionGroup& group : layout.groups) {
    if (heads % group.kv_heads != 0) {
      read.Fail(
          fmt::format("{} attention heads cannot share the target's {} KV heads", heads, group.kv_heads));
    }
  }
}

}  // namespace

api::Result<std::unique_ptr<DraftModel>> LoadGemma4Assistant(std::shared_ptr<const weights::ModelFiles> files,
                                                             const Model& target) {
  ConfigReader read(*files);
  AssistantConfig config;
  config.stack = ReadGemma4Config(read);
  config.target_hidden = read.Small({"backbone_hidden_size", "embedding_length_out"}, 1, kMaxWidth);
  ReadClusters(read, &config);
  if (!read.error()) {
    const DecoderConfig& decoder = config.stack.decoder;
    if (config.stack.own_layers != 0) read.Fail("the assistant has its own keys");
    if (config.stack.per_layer_width != 0) read.Fail("the assistant has per-layer inputs");
    if (config.target_hidden != target.hidden_size() || decoder.vocab != target.vocab_size()) {
      read.Fail(fmt::format("made for a target with hidden size {} and {} tokens, not {} and {}",
                            config.target_hidden, decoder.vocab, target.hidden_size(), target.vocab_size()));
    }
    FindPlaces(read, target, &config);
  }
  if (read.error()) return std::unexpected(*read.error());
  PanelStore* const panels = AttachPanels(&files);
  TensorBinder bind(*files, panels);
  auto model = std::make_unique<Gemma4Assistant>(files, bind, config, target);
  if (bind.error()) return std::unexpected(*bind.error());
  return model;
}

}  // namespace quire::runner::models
