// Hubs of model repositories: which hub a model's name means, how its files are listed, and which of them are
// the model. No I/O.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "api/base/model_name.h"

namespace quire::server::registry {

// What the environment says of hubs.
struct HubSettings {
  std::string endpoint = "https://huggingface.co";      // HF_ENDPOINT: Hugging Face, or a mirror of it
  std::string token = {};                               // HF_TOKEN; empty: none
  std::string modelscope_domain = "www.modelscope.cn";  // MODELSCOPE_DOMAIN, "host" or "host:port"
};
HubSettings ReadHubSettings();

// What a client adds to a name: its user's token, and a mirror; both may be empty.
struct HubRequest {
  std::string token = {};
  std::string endpoint = {};
};

// Whether a name is of a hub's repository, and not of a registry's.
bool IsOfHub(const api::ModelName& name);

struct HubFile {
  std::string path;
  int64_t size = 0;
  std::string sha256 = {};    // 64 hex characters; empty: only `git_hash` is known
  std::string git_hash = {};  // SHA-1 of git's blob, 40 hex characters

  bool operator==(const HubFile&) const = default;
};

// One repository of a hub.
class HubRepository {
 public:
  // REQUIRES: IsOfHub(name). The daemon's own token goes to its own endpoint only, not to one that the
  // request names. kInvalidArgument: the endpoint is not a URL.
  static api::Result<HubRepository> Of(const api::ModelName& name, const HubSettings& settings,
                                       const HubRequest& request);

  const std::string& endpoint() const { return endpoint_; }
  const std::string& token() const { return token_; }
  std::string ListUrl() const;
  std::string FileUrl(std::string_view path) const;
  // One page of the list. kBadModel: it is not one. Folders, and paths that lead out of the repository, are
  // left out.
  api::Result<std::vector<HubFile>> ParseList(std::string_view body) const;

 private:
  HubRepository() = default;

  bool modelscope_ = false;
  std::string endpoint_;  // without a slash behind it
  std::string token_;
  std::string path_;  // "OWNER/REPO"
};

struct HubChoice {
  std::vector<HubFile> files;  // a GGUF file, its parts, or a model in safetensors; then a projector
  bool quantize = false;       // the tag says a type for weights in safetensors
};

// The files of the model with this tag: a quantization or a file's name; "latest" is Q4_K_M, or Q8_0, or the
// first. kNotFound names what there is, or the part that is missing.
api::Result<HubChoice> ChooseFiles(const std::vector<HubFile>& files, std::string_view tag);

// The address of the next page of a list ("Link" header, RFC 8288); empty: it was the last.
std::string NextPage(std::string_view link);

}  // namespace quire::server::registry
