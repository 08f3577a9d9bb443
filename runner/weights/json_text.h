// JSON from files nobody vouches for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "api/base/error.h"
#include "runner/weights/model_source.h"

namespace quire::runner::weights {

// A whole file as text. Errors as MappedFile::Open, and kBadModel when it is not valid UTF-8 or
// what a failed download leaves.
api::Result<std::string> ReadText(const std::filesystem::path& path, uint64_t bytes_max);
// The same of a model's file.
api::Result<std::string> ReadText(const ModelSource& source, std::string_view name, uint64_t bytes_max);

// Key order kept. kBadModel "FILE: reason" when the text is not JSON, nests deeper than 32 levels or repeats
// a key of one object. Takes time proportional to the text (up to a logarithm), whatever it holds.
api::Result<nlohmann::ordered_json> ParseJson(std::string_view text, const std::string& file);

// Python writes infinity as a bare word, which is no JSON. Where there is one, the text with {"__float__":
// "Infinity"} in its place, as newer versions of transformers write it; texts in quotes are left alone.
std::string WithInfinityAsObject(std::string_view text);

}  // namespace quire::runner::weights
