// Encoders: models whose tokens see each other in both directions. They have no cache and no next token; a
// pass takes whole texts and gives the hidden state of every token. It is computed in slices: some rows of
// half a layer. Between two of them the pass may wait for any time while others are computed, or be dropped.
//
// A family is an EncoderForm: what differs between BERT and its relatives are properties.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "api/base/error.h"
#include "runner/models/encoder_head.h"
#include "runner/models/encoder_mlp.h"
#include "runner/models/encoder_pass.h"
#include "runner/models/forward_context.h"
#include "runner/models/linear.h"
#include "runner/models/model.h"
#include "runner/models/rope.h"
#include "runner/weights/model_files.h"

namespace quire::runner::models {

enum class EncoderNorms : uint8_t {
  kAfter,   // h = n(h + a(h)); h = n(h + f(h))
  kBefore,  // h += a(n(h)); h += f(n(h))
  kAround,  // h += n(a(n(h))); h += n(f(n(h)))
};

struct EncoderNames {
  std::string prefix = {};  // of every tensor of a checkpoint: "bert."
  std::string layers = {};  // "encoder.layer."
  TensorName tokens, types, positions, distance_bias, embedding_norm, final_norm = {};
  TensorName q = {}, k = {}, v = {}, qkv = {}, out = {}, q_norm = {}, k_norm = {};
  TensorName attention_norm = {}, post_attention_norm = {}, mlp_norm = {}, post_mlp_norm = {};
  TensorName second_attention_norm = {};
  TensorName up = {}, gate = {}, gate_up = {}, down = {};
};

struct EncoderForm {
  int32_t vocab = 0;  // 0: the input rows are given (EncoderPass::hidden), as those of images
  int32_t hidden = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, feed_forward = 0;
  int32_t context = 0;          // tokens of a text
  int32_t position_rows = 0;    // of the table of positions; 0: there is none
  int32_t position_offset = 0;  // the row of a text's first token
  int32_t types = 0;            // token types; 0: there are none
  float embedding_scale = 1;
  float scale = 0;  // of query and key products; 0 = 1 / sqrt(head_dim)
  NormKind norm = NormKind::kLayer;
  float norm_eps = 0;
  EncoderNorms norms = EncoderNorms::kAfter;
  bool first_norm = true;  // false: the first layer has no norm before its attention
  Bias norm_bias = Bias::kPresent;
  Bias attention_bias = Bias::kPresent, out_bias = Bias::kPresent;
  Bias mlp_bias = Bias::kPresent, down_bias = Bias::kPresent;
  bool gated = false;      // down(activation(gate) * up), else down(activation(up))
  bool gate_first = true;  // in gate_up
  EncoderActivation activation = EncoderActivation::kGeluErf;
  bool qk_norm = false;                // of each head
  bool v_norm = false;                 // of each head, without weights
  bool wide_qk_norm = false;           // layer norms of all heads together
  bool second_attention_norm = false;  // kAfter: h = n2(h + n(h + a(h)))
  bool distance_bias = false;          // of all layers (distance_bias.h)
  float alibi = 0;                     // the largest bias of ALiBi (Press et al. 2022), 0: none
  EncoderExpertsForm experts = {};
  std::vector<RopeSpec> ropes = {};
  std::vector<int32_t> rope_of = {};  // [layers]: index of ropes, -1: none
  // Places in an image have several coordinates: the first frequencies belong to the first one.
  int32_t rope_axes = 1;
  bool rope_apart = false;          // each coordinate rotates a part of the head by itself
  bool clipped = false;             // layers keep inputs and outputs of matrices within stored bounds
  std::vector<int32_t> reach = {};  // [layers]: how far away a token is seen, -1: any
  std::vector<bool> windowed = {};  // [layers]: rows see their window only (EncoderBatch::window_begin)
  EncoderNames names = {};
};

// Engine thread only. The weights stay mapped while it lives.
class Encoder {
 public:
  Encoder(std::shared_ptr<const weights::ModelFiles> files, TensorBinder& bind, const EncoderForm& form,
          EncoderHead head);

  const std::string& architecture() const { return architecture_; }
  int32_t vocab_size() const { return form_.vocab; }
  int32_t hidden_size() const { return form_.hidden; }
  int32_t vector_size() const { return head_.width(form_.hidden); }
  int32_t context_length() const { return form_.context; }
  int64_t parameters() const { return parameters_; }
  int64_t weight_bytes() const { return weight_bytes_; }
  int64_t resident_bytes() const { return resident_bytes_; }
  int64_t scratch_bytes(int64_t rows) const;  // of the largest slice, whatever passes there are
  int64_t pass_bytes(int64_t rows) const;     // of a pass
  const EncoderHead& head() const { return head_; }
  bool ranks() const { return static_cast<bool>(head_.score); }

  // A pass over these texts, of which nothing is computed yet. It uses the memory of `spare`. REQUIRES:
  // tokens are in [0, vocab_size); no text is longer than context_length(). Where a model has no vocabulary,
  // the caller fills hidden() before the first slice.
  EncoderPass Start(EncoderBatch batch, EncoderPass spare = {}) const;
  // Computes the next slice: at most `rows` rows of half a layer, or a block of queries (kQueryBlockRows)
  // where that is more. Gives the rows that it computed; 0 for what is before and behind the layers, which
  // goes over all rows at once. Bit-identical, however a pass is cut and whatever is computed between its
  // slices. Batch-invariant: a text's states depend on that text only. REQUIRES: the pass is not done.
  int64_t Advance(EncoderPass& pass, ThreadPool& pool, int64_t rows);
  // What a row of the next slice costs beside what all rows do: how many keys its query sees at most, 0 where
  // none does.
  int32_t KeysOfNext(const EncoderPass& pass) const;

  // A whole pass. hidden [rows, hidden_size]: the states behind the last norm.
  void Forward(EncoderBatch batch, ThreadPool& pool, std::span<float> hidden, ActivationHook* hook = nullptr);

 private:
  // Bounds of what goes into a matrix and comes out.
  struct Clip {
    float in_min = 0, in_max = 0, out_min = 0, out_max = 0;
  };
  struct Clips {
    Clip q, k, v, out, up, gate, down;
  };
  struct Layer {
    Linear q, k, v, out, up, gate, down;
    Norm attention_norm, second_attention_norm, post_attention_norm, mlp_norm, post_mlp_norm;
    RmsNorm q_norm, k_norm;
    RmsNorm v_norm;
    Norm wide_q_norm, wide_k_norm;
    std::optional<Clips> clips;
    EncoderExperts experts;
  };
  struct Work {
    Scratch normed, attended, mixed, up, gate, residual, clipped, cos, sin;
    EncoderExperts::Work experts;
    kernels::QuantizedActivations quantized;
  };
  using Block = EncoderPass::Block;

  void BindLayer(TensorBinder& bind, size_t index);
  Norm BindNorm(const TensorScope& scope, TensorName name, int64_t size = 0) const;  // 0: hidden
  void BindMlp(const TensorScope& scope, size_t index);
  void BindClips(const TensorScope& scope, Layer& layer) const;
  void Embed(EncoderPass& pass, ThreadPool& pool) const;
  void ComputeAngles(EncoderPass& pass, ThreadPool& pool) const;
  std::span<const int32_t> GroupsOf(const EncoderPass& pass) const;
  std::span<const float> NormBefore(ThreadPool& pool, const Norm& norm, std::span<const float> h);
  // `clip`: null for none.
  void RunLinear(ThreadPool& pool, const Linear& linear, const Clip* clip, std::span<const float> x,
                 int64_t rows, std::span<float> y);
  void ComputeKeys(EncoderPass& pass, ThreadPool& pool, const Block& block);
  void ComputeRows(EncoderPass& pass, ThreadPool& pool, const Block& block);
  void Attend(EncoderPass& pass, ThreadPool& pool, const Block& block, std::span<float> y);
  void Rotate(EncoderPass& pass, ThreadPool& pool, const Block& block, std::span<float> x);
  void FeedForward(ThreadPool& pool, const Layer& layer, int64_t rows, std::span<const float> x,
                   std::span<float> y);

  std::shared_ptr<const weights::ModelFiles> files_;  // keeps every Matrix mapped
  const std::string architecture_;
  const EncoderForm form_;
  EncoderHead head_;
  kernels::Matrix tokens_;
  std::vector<float> types_, positions_;  // [types, hidden], [position_rows, hidden]
  std::vector<float> slopes_;             // [heads] of ALiBi, or empty
  std::vector<float> distance_bias_;      // of TwoWayAttention, or empty
  Norm embedding_norm_, final_norm_;
  std::vector<Layer> layers_;
  int64_t parameters_ = 0, weight_bytes_ = 0, resident_bytes_ = 0;
  Work work_;  // of one slice
};

std::vector<Architecture> EncoderArchitectures();
// Whether the files hold an encoder rather than a decoder.
bool IsEncoder(const weights::ModelFiles& files);
// As LoadModel. REQUIRES: IsEncoder(*files).
api::Result<std::unique_ptr<Encoder>> LoadEncoder(std::shared_ptr<const weights::ModelFiles> files);
// Whether an encoder's files have a head that scores pairs; without reading weights.
bool HasScoreHead(const weights::ModelFiles& files);

}  // namespace quire::runner::models
