// A forward pass of an encoder, as far as it has come: what lies between two slices of it (encoder.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runner/models/forward_context.h"
#include "runner/models/model.h"

namespace quire::runner::models {

// Texts, or images, laid end to end.
struct EncoderBatch {
  std::vector<TokenId> tokens;     // [rows]
  std::vector<int32_t> types;      // [rows]; a type that the model does not have counts as 0
  std::vector<int32_t> row_begin;  // [texts + 1]
  // [rows, EncoderForm::rope_axes] where rows are those of images; empty: they count up in each text.
  std::vector<int64_t> positions = {};
  std::vector<int32_t> window_begin = {};  // [windows + 1]; none goes over the end of an image
};

// Made by Encoder::Start. Movable; the one that was moved from is empty.
class EncoderPass {
 public:
  const EncoderBatch& batch() const { return batch_; }
  int64_t rows() const { return batch_.row_begin.empty() ? 0 : batch_.row_begin.back(); }
  bool done() const { return stage_ == Stage::kDone; }
  int32_t layers_done() const { return layer_; }
  // [rows, hidden_size]; where the pass is done the states behind the last norm.
  std::span<float> hidden() { return hidden_.Get(rows() * width_); }

 private:
  friend class Encoder;

  // Each layer computes first all keys, since every query needs them, then all that follows from the queries,
  // which needs no other row of its own layer: each row's hidden state is then replaced by the next layer's.
  enum class Stage : uint8_t { kEmbed, kKeys, kRows, kNorm, kDone };
  struct Angles {
    Scratch cos, sin;  // [rows, frequencies]
  };
  struct Block {
    int64_t begin = 0, end = 0;  // rows
    int64_t rows() const { return end - begin; }
  };

  EncoderBatch batch_;
  Stage stage_ = Stage::kEmbed;
  int32_t layer_ = 0;
  int64_t row_ = 0;  // of its stage: those before it are computed
  int64_t width_ = 0;
  int32_t longest_ = 0, longest_window_ = 0;  // rows
  std::vector<int64_t> positions_;            // [rows], or as in the batch
  std::vector<Angles> angles_;                // [ropes]
  Scratch hidden_, q_, k_, v_;  // [rows, hidden or heads or kv_heads, head_dim]; q, k, v: of one layer
};

}  // namespace quire::runner::models
