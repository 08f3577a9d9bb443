// A model's files, opened and checked: one GGUF, its splits, or a Hugging Face directory. Both
// answer the same questions, so that a family's code does not know which it was.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "runner/weights/model_source.h"
#include "runner/weights/tensor.h"

namespace quire::runner::weights {

class GgufFile;

// An entry of sentence-transformers' modules.json.
struct SentenceModule {
  std::string kind;         // "Transformer", "Pooling", "Dense", "Normalize", ...
  std::string path;         // its folder; weights of a Dense are tensors named "<path>/linear.weight"
  std::string config_json;  // the text of the config.json in it; empty: there is none
};

enum class Format : uint8_t { kGguf, kHuggingFace };

inline constexpr int64_t kNoPanelLimit = INT64_MAX;

// Immutable after Open; any thread. Keeps the mappings alive.
class ModelFiles {
 public:
  virtual ~ModelFiles() = default;

  virtual Format format() const = 0;
  virtual std::string path() const = 0;
  // "lfm2", "llama", ...: GGUF's general.architecture, or config.json's model_type.
  virtual std::string architecture() const = 0;

  // Tensors by their name in the file. Null when absent.
  virtual const Tensor* Find(std::string_view name) const = 0;
  virtual const std::vector<Tensor>& tensors() const = 0;
  // Whether only names, types and shapes of the tensors may be looked at (metadata_only.h).
  virtual bool metadata_only() const { return false; }
  // Whether the data of `tensor`, one of tensors(), may be looked at nevertheless.
  virtual bool CanRead(const Tensor&) const { return true; }
  // How much memory a loader may take for panels (models/panel_store.h). What is beyond stays in the files,
  // and products read it there.
  virtual int64_t panel_bytes_max() const { return kNoPanelLimit; }
  // Tensors of integers, which are no weights and not among tensors().
  virtual std::span<const IntegerTensor> integer_tensors() const { return {}; }
  // Tensors of a quantization that is not GGUF's, which a family's loader makes weights of.
  virtual std::span<const RawTensor> raw_tensors() const { return {}; }
  const RawTensor* FindRaw(std::string_view name) const;  // null when absent
  // The elements of one of integer_tensors(). Nothing when absent.
  std::optional<std::vector<int64_t>> Integers(std::string_view name) const;

  // GGUF: the key/values as JSON (arrays as arrays). Hugging Face: config.json unchanged.
  virtual const nlohmann::ordered_json& config() const = 0;
  // Hugging Face: generation_config.json, and tokenizer_config.json with what only special_tokens_map.json
  // has; null JSON when absent or GGUF.
  virtual const nlohmann::ordered_json& generation_config() const = 0;
  virtual const nlohmann::ordered_json& tokenizer_config() const = 0;
  // Hugging Face: the text of tokenizer.json, or of what other vocabulary files say (vocabulary_files.h);
  // empty for GGUF (whose tokenizer is in config()).
  virtual const std::string& tokenizer_json() const = 0;
  // Hugging Face directories without a tokenizer.json: the bytes of tokenizer.model (SentencePiece), or none.
  virtual std::span<const std::byte> tokenizer_model() const { return {}; }
  // Hugging Face: the text of 1_Pooling/config.json; nothing when absent or GGUF. An
  // invalid file is an error here and not in Open().
  virtual api::Result<std::optional<std::string>> pooling_json() const { return std::nullopt; }

  // Hugging Face: modules.json, in order; nothing when absent or GGUF. An invalid file is an error here and
  // not in Open(). And the texts of sentence_bert_config.json and config_sentence_transformers.json, empty
  // when absent.
  virtual api::Result<std::vector<SentenceModule>> sentence_modules() const {
    return std::vector<SentenceModule>();
  }
  virtual std::string sentence_config() const { return {}; }
  virtual std::string sentence_prompts() const { return {}; }
  // Hugging Face: the text of processor_config.json; preprocessor_config.json is its member image_processor
  // where it has none. Empty when both are absent, and for GGUF. An invalid file is an error here and not in
  // Open().
  virtual api::Result<std::string> processor_config() const { return std::string(); }

  // The model's Jinja chat template (chat_template.jinja, tokenizer_config.json or tokenizer.chat_template);
  // empty when it has none.
  virtual std::string chat_template() const = 0;
  // Another one that the files give a name ("tool_use"); empty when they do not.
  virtual std::string named_chat_template(std::string_view) const { return {}; }
  // Ids that end a generation, as far as generation_config.json, config.json or keys of the GGUF name them.
  // May be empty; Tokenizer::ends() has those that the vocabulary shows.
  virtual std::vector<int32_t> end_of_generation_ids() const = 0;
  // What was read in another spelling than the file's (dialects/), a line each. Hugging Face: empty.
  virtual std::span<const std::string> repairs() const { return {}; }
};

// Maps and checks. kBadModel names the file and the reason; kNotFound when the path does not exist.
// Every length, count, offset and product is checked against the file's size before it is used.
// Nothing is opened later, and what was inherited may be closed then.
api::Result<std::shared_ptr<const ModelFiles>> Open(const ModelSource& source);

// The same files with this panel_bytes_max(). To be applied last: files made of these have no limit again.
std::shared_ptr<const ModelFiles> LimitPanels(std::shared_ptr<const ModelFiles> files, int64_t bytes_max);

}  // namespace quire::runner::weights
