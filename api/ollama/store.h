// The Ollama dialect's requests that change the store of models: /api/create, /api/copy, /api/delete. Same
// rules as ollama.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "api/base/request.h"

namespace quire::api::ollama {

struct CopyRequest {
  std::string source;
  std::string destination;
};

// A file of /api/create, which was sent as a blob before.
struct CreateFile {
  std::string path;    // relative, without ".."
  std::string digest;  // "sha256:<64 hex>", checked by the lookup of the blob
};

// `from` or `files` is not empty.
struct CreateRequest {
  std::string model;
  std::string from;               // a model of the store
  std::vector<CreateFile> files;  // goes before `from` when not empty
  std::vector<CreateFile> draft_files;
  std::string go_template;
  std::string system;
  std::string parameters_json;  // object, or empty
  std::vector<Message> messages;
  std::vector<std::string> licenses;
  std::string quantize;          // upper case: "Q8_0"
  std::string draft_quantize;    // the same; only with draft_files
  std::string requires_version;  // "0.14.0", or empty
  std::string renderer, parser;
  bool stream = true;
};

Result<CopyRequest> ParseCopy(std::string_view body);
Result<std::string> ParseDelete(std::string_view body);  // the model's name
Result<CreateRequest> ParseCreate(std::string_view body);

// One object of a progress stream, without the newline: {"status": ...}.
std::string StatusBody(std::string_view status);
// With the bytes that it is about, and their digest unless it is empty.
std::string StatusBody(std::string_view status, std::string_view digest, int64_t total, int64_t completed);

}  // namespace quire::api::ollama
