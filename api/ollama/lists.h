// Replies of the Ollama dialect that describe models: /api/tags, /api/ps, /api/show, /api/version.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/request.h"

namespace quire::api::ollama {

struct ModelDetails {
  std::string parent_model = {};
  std::string format = "gguf";
  std::string family;
  std::vector<std::string> families;
  std::string parameter_size;      // "5.3M"
  std::string quantization_level;  // "F16"
};

struct TagEntry {
  std::string name;  // shortest full form
  std::chrono::system_clock::time_point modified_at;
  int64_t size = 0;    // bytes
  std::string digest;  // 64 hex characters
  ModelDetails details;
  std::vector<std::string> capabilities = {"completion"};
};

struct PsEntry {
  std::string name;
  int64_t size = 0;      // bytes that its process has now
  int64_t size_max = 0;  // bytes that it may grow to
  int64_t size_vram = 0;
  std::string digest;
  ModelDetails details;
  std::optional<std::chrono::system_clock::time_point>
      expires_at;              // absent = never expires, shown as a far future date
  int32_t context_length = 0;  // tokens
  struct Loading {
    float fraction = 0;  // 0 to 1
    std::string stage;
  };
  std::optional<Loading> loading = {};  // absent: it is loaded
};

// Whether a model would load on this machine, from its headers.
struct LoadCheck {
  std::string error = {};    // why it would not; empty: it would
  int64_t memory_bytes = 0;  // preferred
  int64_t memory_min_bytes = 0;
  int64_t memory_limit_bytes = 0;  // of all models together; 0 = none
  int64_t streamed_bytes = 0;      // of weights that memory does not hold; 0: left out
};

struct ShowReply {
  std::string name;  // shortest full form, for the Modelfile's comment
  std::string from;  // what the Modelfile's FROM line says
  std::vector<std::string> licenses;
  std::string parameters_json;  // object, or empty
  std::string overrides_json;   // ShowRequest::options_json
  std::string chat_template;
  bool template_in_weights = false;  // the weights' own file brings it: the Modelfile leaves it out
  std::string requires_version = {}, renderer = {}, parser = {};
  std::string draft = {};  // what the Modelfile's DRAFT line says, or empty
  std::string system;
  ModelDetails details;
  std::vector<Message> messages;
  std::string model_info_json;           // object, or empty
  std::string projector_info_json = {};  // likewise
  std::string tensors_json;              // array, or empty
  std::vector<std::string> capabilities = {"completion"};
  std::chrono::system_clock::time_point modified_at;
  bool verbose = false;            // arrays of more than five elements too
  std::string basename;            // shown as general.basename unless empty
  int32_t context_length = 0;      // of requests that name none, tokens; 0 = not known: left out
  std::string sampling_json = {};  // SamplingSources(); left out when empty
  std::vector<std::string> repairs =
      {};  // what is read in another spelling than the file's; left out when empty
  std::optional<LoadCheck> check = {};
};

std::string EncodeTags(const std::vector<TagEntry>& models);  // in the order given
std::string EncodePs(const std::vector<PsEntry>& models);
std::string EncodeShow(const ShowReply& reply);
std::string EncodeVersion(std::string_view version);

}  // namespace quire::api::ollama
