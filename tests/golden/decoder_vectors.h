// Compares a decoder that embeds, or that ranks by its answer, with what a reference recorded in the form of
// encoders' goldens.
#pragma once

#include <filesystem>

#include "api/base/error.h"
#include "runner/kernels/thread_pool.h"
#include "tests/golden/encoder_golden.h"

namespace quire::runner::golden {

// Hidden states are those behind the last norm, of all tokens or of the last one, as recorded. A model that
// does not say how it ranks answers with its tokens "yes" and "no". kBadModel: the model does not load, or
// its pooling is not supported.
api::Result<EncoderComparison> CompareDecoderVectors(const std::filesystem::path& model,
                                                     const EncoderGolden& golden, ThreadPool& pool);

}  // namespace quire::runner::golden
