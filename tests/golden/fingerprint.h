// Hashes of what a model computes from a fixed prompt, to compare machines and builds: equal hashes, equal
// bits.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "api/base/error.h"
#include "api/base/kv_type.h"
#include "runner/kernels/thread_pool.h"

namespace quire::runner::golden {

// "logits HASH end HASH greedy 5 17 ..." of a decoder, or "hidden HASH" of an encoder; as the model is
// served, with activations rounded to int8 where its weights are quantized. `quantize`: a type of
// weights::LoadQuantizationNames() for the weights, or empty.
api::Result<std::string> Fingerprint(const std::filesystem::path& model, ThreadPool& pool,
                                     api::KvType kv_type, std::string_view quantize = {});

}  // namespace quire::runner::golden
