// What follows an encoder's last hidden states: pooling and dense layers that make a vector of a text, or a
// classification head that scores a pair of texts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "api/base/error.h"
#include "runner/models/config_reader.h"
#include "runner/models/linear.h"
#include "runner/models/sentence_pooling.h"
#include "runner/models/tensor_binder.h"

namespace quire::runner::models {

enum class HeadActivation : uint8_t { kIdentity, kTanh, kGelu, kRelu, kSilu };

// out(norm(activation(dense(x)))) of one state; `dense` and `norm` may be absent.
struct ScoreHead {
  Linear dense;
  HeadActivation activation = HeadActivation::kTanh;
  Norm norm;
  Linear out;  // [1, hidden]
  EncoderPooling pooling = EncoderPooling::kFirst;
  bool late = false;  // every state goes through `dense` and is pooled behind it

  explicit operator bool() const { return static_cast<bool>(out); }
};

struct DenseLayer {
  Linear linear;
  HeadActivation activation = HeadActivation::kIdentity;
};

struct EncoderHead {
  EncoderPooling pooling = EncoderPooling::kMean;
  std::vector<DenseLayer> dense;
  ScoreHead score;

  // Elements of a vector of states of `hidden` elements.
  int32_t width(int32_t hidden) const;
  // `states` [tokens, hidden] of one text. One thread's; the bits depend on the states alone.
  std::vector<float> Pool(ThreadPool& pool, std::span<const float> states, int32_t hidden) const;
  // The first `dimensions` elements of a pooled vector, all of them for 0; of length 1 where `normalize` asks
  // for it, unless all are zero.
  static std::vector<float> Finish(std::vector<float> vector, int32_t dimensions, bool normalize);
  float Score(ThreadPool& pool, std::span<const float> states, int32_t hidden) const;
};

// Pooling and dense layers as the files say: modules.json and its folders, or GGUF's pooling_type and
// dense_N. Without either, the mean. Errors are kept in `read` and `bind`.
void ReadEncoderHead(ConfigReader& read, TensorBinder& bind, int32_t hidden, EncoderHead& head);
// An activation by the name that configurations give it; an error is kept in `read`.
HeadActivation ReadHeadActivation(ConfigReader& read, const std::string& name, const std::string& key);

}  // namespace quire::runner::models
