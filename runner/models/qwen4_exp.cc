#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "runner/models/decoder.h"
#include "runner/models/families.h"
#include "runner/models/gated_delta.h"
#include "runner/models/moe.h"
#include "runner/models/ngram_embedding.h"
#include "runner/models/qwen3_next_config.h"
#include "runner/models/residual_streams.h"

namespace quire::runner::models {
namespace {

// The choice of blocks of tokens that an attention layer sees.
struct BlockIndexerForm {
  int32_t heads = 0, dim = 0;
  int32_t budget = 0;                // tokens
  std::vector<int64_t> ratios = {};  // [layers] tokens of a block; 0 = no attention
};

struct Qwen4ExpConfig {
  Qwen3NextConfig base = {};
  StreamShape streams = {};
  BlockIndexerForm indexer = {};
  bool sigmoid_gate = false;
  NgramShape ngrams = {};
  std::vector<int32_t> ngram_layers = {};  // ascending
  std::vector<NgramHashes> hashes = {};    // [ngram_layers]
  int32_t table_parts = 1;
};

// h += ngrams(h); h through mixer; h through experts.
struct Qwen4ExpBlock {
  std::optional<NgramEmbedding> ngrams;
  HyperConnection mixer_connection;
  std::variant<Attention, GatedDeltaNet> mixer;
  HyperConnection experts_connection;
  MixtureOfExperts experts;
};

class Qwen4Exp final : public Decoder {
 public:
  Qwen4Exp(std::shared_ptr<const weights::ModelFiles> files, TensorBinder& bind, const Qwen4ExpConfig& config)
      : Decoder(std::move(files), config.base.decoder), config_(config), rotary_(config.base.rope) {
    image_rules_.grid_positions = !config.base.rope.axes.empty();
    streams_ = config.streams.streams;
    BindEmbedding(bind);
    for (size_t i = 0; i < config.base.is_attention.size() && !bind.error(); ++i) BindBlock(bind, i);
    const ConnectionNames end = {.norm = {"hyper_connection_mixer.hc_norm", "output_hc_norm"},
                                 .down = {"hyper_connection_mixer.input_mix_weight_down", "output_hc_down"},
                                 .up = {"hyper_connection_mixer.input_mix_weight_up", "output_hc_up"}};
    end_ = BindConnection(bind.Global(), config.streams, end, /*writes=*/false);
    BindHead(bind, /*final_norm=*/{});
  }

  void SetContext(int64_t tokens) override { rotary_.SetContext(tokens); }

  void Replay(size_t recurrent_layer, std::byte* slot, std::span<const std::byte> inputs, int32_t tokens,
              ThreadPool& pool) override {
    for (const Qwen4ExpBlock& block : blocks_) {
      const bool own = block.ngrams && (block.ngrams->tokens_layer == recurrent_layer ||
                                        block.ngrams->conv_layer == recurrent_layer);
      if (own) return block.ngrams->Replay(layout(), recurrent_layer, slot, inputs, tokens);
    }
    Decoder::Replay(recurrent_layer, slot, inputs, tokens, pool);
  }

 private:
  void BindBlock(TensorBinder& bind, size_t layer) {
    const TensorScope scope = bind.Layer(layer);
    Qwen4ExpBlock block;
    const auto found = std::ranges::find(config_.ngram_layers, static_cast<int32_t>(layer));
    if (found != config_.ngram_layers.end()) {
      const auto module = static_cast<size_t>(found - config_.ngram_layers.begin());
      block.ngrams = BindNgramEmbedding(scope, bind.Outside(), config_.ngrams, config_.hashes[module],
                                        config_.table_parts);
      block.ngrams->tokens_layer = AddState(block.ngrams->tokens_state());
      block.ngrams->conv_layer = AddState(block.ngrams->conv_state());
    }
    block.mixer_connection = BindPart(scope, "attn_hyper_connection", "hc_attn");
    if (config_.base.is_attention[layer]) {
      block.mixer = BindQwen4Attention(scope);
    } else {
      GatedDeltaNet net = BindQwenDelta(scope, config_.base);
      net.sigmoid_gate = config_.sigmoid_gate;
      const kernels::GatedDeltaShape& shape = config_.base.delta;
      net.recurrent_layer =
          AddRecurrent(net.state(), shape.tiled ? static_cast<int32_t>(shape.key_heads) : 0).index;
      block.mixer = std::move(net);
    }
    block.experts_connection = BindPart(scope, "mlp_hyper_connection", "hc_ffn");
    block.experts = BindQwenExperts(scope, config_.base);
    block.experts.shared = BindMlp(scope, config_.base.shared_feed_forward, kQwenSharedNames);
    blocks_.push_back(std::move(block));
  }

  HyperConnection BindPart(const TensorScope& scope, std::string_view published,
                           std::string_view gguf) const {
    const auto name = [](std::string_view part, std::string_view tensor) {
      return fmt::format("{}{}", part, tensor);
    };
    const std::string norm = name(published, ".hc_norm"), gguf_norm = name(gguf, "_norm"),
                      down = name(published, ".input_mix_weight_down"), gguf_down = name(gguf, "_down"),
                      up = name(published, ".input_mix_weight_up"), gguf_up = name(gguf, "_up"),
                      inject = name(published, ".block_inject_weight"), gguf_inject = name(gguf, "_inject");
    return BindConnection(scope, config_.streams,
                          {.norm = {norm, gguf_norm},
                           .down = {down, gguf_down},
                           .up = {up, gguf_up},
                           .inject = {inject, gguf_inject}},
                          /*writes=*/true);
  }

  Attention BindQwen4Attention(const TensorScope& scope) {
    const DecoderConfig& decoder = config_.base.decoder;
    Attention attention = BindAttention(scope,
                                        {.heads = decoder.heads,
                                         .kv_heads = decoder.kv_heads,
                                         .head_dim = decoder.head_dim,
                                         .qk_norm = QkNorm::kHeads,
                                         .gated = true},
                                        &rotary_);
    attention.indexer = BindBlockIndexer(scope, static_cast<int32_t>(config_.indexer.ratios[blocks_.size()]));
    return attention;
  }

  Indexer BindBlockIndexer(const TensorScope& scope, int32_t ratio) {
    const BlockIndexerForm& form = config_.indexer;
    const int64_t hidden = config_.base.decoder.hidden, queries = int64_t{form.heads} * form.dim;
    const auto root = std::sqrt(static_cast<double>(form.dim));
    Indexer indexer;
    indexer.rule = {.heads = form.heads,
                    .scale = static_cast<float>(1 / root),
                    .best = form.budget / ratio,
                    .expand = true};
    indexer.dim = form.dim;
    indexer.stride = ratio;
    if (scope.gguf()) {
      indexer.query = scope.BindLinear({"", "indexer.q_proj"}, queries, hidden);
      indexer.key = scope.BindLinear({"", "indexer.k_proj"}, form.dim, hidden);
    } else {
      const int64_t sizes[] = {queries, form.dim};
      std::vector<Linear> parts = scope.BindRows({"self_attn.indexer.index_qk_proj", ""}, sizes, hidden);
      indexer.query = std::move(parts[0]);
      indexer.key = std::move(parts[1]);
    }
    indexer.query_norm = BindNorm(scope, {"self_attn.indexer.q_layernorm", "indexer.q_norm"}, form.dim);
    RmsNorm key = BindNorm(scope, {"self_attn.indexer.k_layernorm", "indexer.k_norm"}, form.dim);
    indexer.key_norm = {.kind = NormKind::kRms, .weight = std::move(key.weight), .bias = {}, .eps = key.eps};
    indexer.rotary = &rotary_;
    indexer.keys = AddRows({.head_dim = form.dim, .window = ratio > 1 ? ratio : 0}, &rotary_);
    if (ratio > 1) indexer.blocks = AddRows({.head_dim = form.dim, .stride = ratio}, &rotary_);
    indexer.GrowWidths(scope.widths());
    return indexer;
  }

  void PrepareForward(ForwardContext& ctx, std::span<const float>) override { rotary_.Prepare(ctx); }

  void RunLayer(ForwardContext& ctx, size_t layer, std::span<float> h) override {
    const Qwen4ExpBlock& block = blocks_[layer];
    if (block.ngrams) block.ngrams->AddTo(ctx, h);
    const RmsNorm none;
    RunThrough(ctx, block.mixer_connection, none, h, [&](auto x, auto y) {
      std::visit([&](const auto& mixer) { mixer.Run(ctx, x, y); }, block.mixer);
    });
    RunThrough(ctx, block.experts_connection, none, h, [&](auto x, auto y) { block.experts.Run(ctx, x, y); });
  }

  void JoinStreams(ForwardContext& ctx, std::span<const float> h, std::span<float> to) override {
    end_.Read(ctx, h, to);
  }

  void ReplayLayer(size_t layer, std::byte* slot, std::span<const std::byte> inputs, int32_t tokens,
                   ThreadPool& pool) override {
    std::get<GatedDeltaNet>(blocks_[layer].mixer).Replay(layout(), pool, slot, inputs, tokens);
  }

  const Qwen4ExpConfig config_;
  RotaryEmbedding rotary_;
  std::vector<Qwen4ExpBlock> blocks_;
  HyperConnection end_;
};

void ReadQwenIndexer(ConfigReader& read, Qwen4ExpConfig* config) {
  const std::vector<bool>& attends = config->base.is_attention;
  BlockIndexerForm& form = config->indexer;
  form.ratios.assign(attends.size(), 0);
  if (std::ranges::count(attends, true) == 0) {
    return read.Ignore({"indexer_n_heads", "indexer_kv_heads", "indexer_head_dim", "indexer_budget",
                        "indexer_compress_ratio"});
  }
  form.heads = read.Small({"indexer_n_heads", "attention.indexer.head_count"}, 1, kMaxHeads);
  form.dim = read.Small({"indexer_head_dim", "attention.indexer.key_length"}, 2, kernels::kMaxHeadDim);
  const auto rotated = 2 * std::ssize(config->base.rope.frequencies);
  if (form.dim < rotated) {
    read.Fail(fmt::format("the indexer's heads of {} are less than the {} channels that are rotated",
                          form.dim, rotated));
  }
  form.budget = read.Small({"indexer_budget", "attention.indexer.top_k"}, 1, kMaxContext);
  read.Require("indexer_kv_heads", 1.0);
  constexpr ConfigKey kRatio = {"indexer_compress_ratio", "attention.compress_ratios"};
  const auto stored = read.Integers(kRatio, config->base.decoder.layers, 0, kMaxContext);
  for (size_t i = 0; i < attends.size(); ++i) {
    if (!attends[i]) continue;
    form.ratios[i] = stored[i];
    // With 0 other programs see all tokens, which is another model.
    if (stored[i] == 0) {
      read.Fail(
          fmt::format("{} is 0 for layer {}, which chooses blocks of tokens: the converter of this file "
                      "lost the size of blocks; convert the checkpoint again",
                      read.Name(kRatio), i));
    } else if (form.budget % stored[i] != 0) {
      read.Fail(
          fmt::format("the indexer's budget of {} tokens is not whole blocks of {}", form.budget, stored[i]));
    }
  }
}

std::vector<int64_t> ReadWholeNumbers(ConfigReader& read, ConfigKey key) {
  std::vector<int64_t> numbers;
  const auto* list = read.Find(key);
  if (list == nullptr || !list->is_array()) {
    if (list != nullptr || read.gguf()) read.Fail(fmt::format("{} is not a list", read.Name(key)));
    return numbers;
  }
  for (const auto& entry : *list) {
    const auto number = ConfigReader::WholeNumber(entry);
    if (!number) {
      read.Fail(fmt::format("{} must contain integers", read.Name(key)));
      return numbers;
    }
    numbers.push_back(*number);
  }
  return numbers;
}

// The layers with n-grams, counted from 1 in a checkpoint and from 0 in a GGUF file.
void ReadNgramLayers(ConfigReader& read, Qwen4ExpConfig* config) {
  constexpr ConfigKey kLayers = {"ple_layer_ids", "ple.layers"};
  if (read.Find(kLayers) == nullptr) return;
  for (const int64_t number : ReadWholeNumbers(read, kLayers)) {
    const int64_t layer = read.gguf() ? number : number - 1;
    if (layer < 0 || layer >= config->base.decoder.layers ||
        config->base.is_attention[static_cast<size_t>(layer)]) {
      return read.Fail(
          fmt::format("{} has {}, which is no layer with a delta net", read.Name(kLayers), number));
    }
    config->ngram_layers.push_back(static_cast<int32_t>(layer));
  }
  std::ranges::sort(config->ngram_layers);
  const auto twice = std::ranges::unique(config->ngram_layers);
  config->ngram_layers.erase(twice.begin(), twice.end());
  if (read.gguf() && config->ngram_layers.size() > 1) {
    read.Fail(fmt::format("{}: one table serves one layer only", read.Name(kLayers)));
  }
}

// transformers takes the first of several.
int32_t ReadNgramEos(ConfigReader& read, int32_t vocab) {
  constexpr ConfigKey kEos = {"eos_token_id", "ple.eos_token_id"};
  const auto* const value = read.Find(kEos);
  if (value != nullptr && value->is_array() && !value->empty()) {
    const int64_t first = ConfigReader::WholeNumber(value->front()).value_or(-1);
    if (first >= 0 && first < vocab) return static_cast<int32_t>(first);
    read.Fail(fmt::format("{} does not begin with a token", read.Name(kEos)));
    return 0;
  }
  return read.Small(kEos, 0, vocab - 1);
}

NgramHashes ReadNgramHashes(ConfigReader& read, const Qwen4ExpConfig& config, size_t module) {
  const NgramShape& shape = config.ngrams;
  NgramHashes hashes;
  if (read.gguf()) {
    hashes = {.multipliers = ReadWholeNumbers(read, {"", "ple.layer_multipliers"}),
              .sizes = ReadWholeNumbers(read, {"", "ple.head_vocab_sizes"}),
              .offsets = ReadWholeNumbers(read, {"", "ple.head_offsets"})};
  } else {
    constexpr int64_t kMaxSize = 1 << 30;
    const int64_t seed = read.Integer({"seed", ""}, 0, std::numeric_limits<int32_t>::max(), 1234);
    const int64_t first = read.Integer({"ngram_vocab_size_base", ""}, 1, kMaxSize, 20'000'000);
    const auto stored = [&](const char* name) -> std::optional<std::vector<int64_t>> {
      for (const char* prefix : {"model.", "model.language_model.", ""}) {
        auto values = read.files().Integers(
            fmt::format("{}layers.{}.ple.ple_embedding.{}", prefix, config.ngram_layers[module], name));
        if (values) return values;
      }
      return std::nullopt;
    };
    const auto multipliers = stored("layer_multipliers"), sizes = stored("ngram_heads_vocab_sizes"),
               offsets = stored("ngram_heads_offsets");
    if (multipliers && sizes && offsets) {
      hashes = {.multipliers = *multipliers, .sizes = *sizes, .offsets = *offsets};
    } else {
      hashes = MakeNgramHashes(shape, config.base.decoder.vocab, seed, first, static_cast<int64_t>(module));
    }
  }
  const auto count = static_cast<size_t>(shape.hashes());
  if (hashes.multipliers.size() != static_cast<size_t>(shape.order) || hashes.sizes.size() != count ||
      hashes.offsets.size() != count) {
    read.Fail(fmt::format("layer {}: the n-grams' hashes are not {} multipliers, and {} sizes and offsets",
                          config.ngram_layers[module], shape.order, count));
  }
  return hashes;
}

void ReadNgrams(ConfigReader& read, Qwen4ExpConfig* config) {
  ReadNgramLayers(read, config);
  if (config->ngram_layers.empty()) {
    return read.Ignore({"ple_layer_ids", "ple_embed_dim", "ple_conv_kernel_size", "ngram_size",
                        "heads_per_ngram", "ngram_vocab_size_base", "make_ngram_vocab_size_divisible_by",
                        "seed", "split_ngram_parts"});
  }
  constexpr int32_t kMaxOrder = 16, kMaxParts = 1 << 16;
  const DecoderConfig& decoder = config->base.decoder;
  NgramShape& shape = config->ngrams;
  const auto given = [&](int64_t value) { return read.gguf() ? std::nullopt : std::optional(value); };
  shape.order = read.Small({"ngram_size", "ple.ngram_size"}, 2, kMaxOrder, given(3));
  shape.heads = read.Small({"heads_per_ngram", "ple.heads_per_ngram"}, 1, 1024, given(8));
  shape.kernel = read.Small({"ple_conv_kernel_size", "ple.conv_kernel"}, 1, kMaxConvKernel, given(4));
  shape.eos = ReadNgramEos(read, decoder.vocab);
  shape.streams = config->streams.streams;
  shape.hidden = decoder.hidden;
  shape.eps = decoder.norm_eps;
  if (read.gguf()) {
    const int64_t one = read.Integer({"", "embedding_length_per_layer_input"}, 1, kMaxWidth);
    if (one * shape.hashes() > kMaxWidth) read.Fail("the n-grams' embedding is too wide");
    shape.width = static_cast<int32_t>(std::min<int64_t>(one * shape.hashes(), kMaxWidth));
  } else {
    shape.width = read.Small({"ple_embed_dim", ""}, 1, kMaxWidth, decoder.hidden);
    if (shape.width % shape.hashes() != 0) {
      read.Fail(fmt::format("ple_embed_dim: {} numbers do not share {} hashes", shape.width, shape.hashes()));
    }
    config->table_parts = read.Small({"split_ngram_parts", ""}, 1, kMaxParts, 512);
    // Rows that no hash names.
    read.Ignore({"make_ngram_vocab_size_divisible_by"});
  }
  if (read.error()) return;
  for (size_t i = 0; i < config->ngram_layers.size(); ++i) {
    config->hashes.push_back(ReadNgramHashes(read, *config, i));
  }
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadQwen4Exp(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  Qwen4ExpConfig config{.base = ReadQwen3NextConfig(read)};
  if (config.base.experts == 0) read.Fail("num_experts: a model without experts is not supported");
  config.streams = {.form = StreamShape::Form::kLowRank,
                    .hidden = config.base.decoder.hidden,
                    .norm_eps = config.base.decoder.norm_eps};
  ReadStreams(read, &config.streams);
  ReadQwenIndexer(read, &config);
  const std::string given = read.gguf() ? "sigmoid" : read.Text({"hidden_act", ""}, "silu");
  const std::string gate = read.Text({"output_gate_type", ""}, given);
  if (gate != "sigmoid" && gate != "silu") {
    read.Fail(fmt::format("output_gate_type: \"{}\" is not supported", gate.substr(0, 60)));
  }
  config.sigmoid_gate = gate == "sigmoid";
  ReadNgrams(read, &config);
  read.Ignore({"number_of_conv_states"});
  return BuildModel<Qwen4Exp>(read, std::move(files), config);
}

}  // namespace quire::runner::models
