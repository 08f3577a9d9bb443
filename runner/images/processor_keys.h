// The keys of configuration files that say how a model's images are prepared. Internal to this folder.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "runner/images/patches.h"
#include "runner/images/resize.h"

namespace quire::runner::images {

// A key is a path: the document, then members: "processor/image_processor/size/height". Documents are
// "config" (config.json), "processor" (ModelFiles::processor_config) and "tokenizer" (tokenizer_config.json)
// of a directory, "gguf" of a GGUF file and "tower": those of its keys that begin with clip.vision. or with
// the architecture and .vision. Of several keys the first that is there and not null counts.
class ProcessorKeys {
 public:
  using Json = nlohmann::ordered_json;
  using Names = std::initializer_list<std::string_view>;
  struct Document {
    std::string_view name;
    const Json* json;
    std::string file;  // for messages
  };

  // The documents outlive it.
  explicit ProcessorKeys(std::vector<Document> documents) : documents_(std::move(documents)) {}

  bool Has(std::string_view name) const { return Find({name}).value != nullptr; }
  int32_t Integer(Names names, int32_t fallback, int32_t min, int32_t max);
  double Number(Names names, double fallback, double min, double max);
  bool Flag(Names names, bool fallback);
  // A text, or an object whose member content is one.
  std::string Text(Names names, std::string_view fallback);
  std::array<double, 3> Channels(Names names, const std::array<double, 3>& fallback);

  // What all families have.
  PixelScale Scale(const PixelScale& published);
  Filter Resample(Filter fallback);  // and nothing else is done to the size
  // Wrong values are errors, too. `holds`: `what` is so.
  void Require(bool holds, std::string_view what);

  // The first error: kBadModel names file and key.
  const std::optional<api::Error>& error() const { return error_; }

 private:
  struct Found {
    std::string_view name;
    const Document* document = nullptr;
    const Json* value = nullptr;
  };
  Found Find(Names names) const;
  void Refuse(const Found& found, std::string_view expected);

  const std::vector<Document> documents_;
  std::optional<api::Error> error_;
};

}  // namespace quire::runner::images
