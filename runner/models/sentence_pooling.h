// How the final hidden states of a text's tokens become one vector, as directories of sentence-transformers
// say it.
#pragma once

#include <cstdint>
#include <optional>

#include "runner/models/config_reader.h"
#include "runner/weights/model_files.h"

namespace quire::runner::models {

enum class EncoderPooling : uint8_t {
  kNone,          // no vector is made
  kFirst,         // the first token's state ("CLS")
  kLast,          // the last token's
  kMean,          // of all tokens
  kMax,           // the largest of each element
  kMeanSqrt,      // the sum over the root of the number of tokens
  kWeightedMean,  // of all tokens, weighted by 1, 2, 3, ...
};

// That of 1_Pooling/config.json, in the older spelling or the newer one; nothing without the file. Several
// kinds at once, and keys with another meaning, are errors, which `read` keeps.
std::optional<EncoderPooling> ReadPoolingFolder(ConfigReader& read);

// Whether a directory holds a decoder without the matrix that makes logits, as sentence-transformers and
// classifiers are saved. Such a model generates nothing.
bool IsSavedWithoutHead(const weights::ModelFiles& files);

}  // namespace quire::runner::models
