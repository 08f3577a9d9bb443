// The documents of a request. Templates know them as a variable, and each of its family's form.
#pragma once

#include <string>
#include <string_view>

#include "api/base/error.h"

namespace quire::runner {

// Whether the variables of a request, a JSON object or nothing, have documents.
bool HasDocuments(const std::string& arguments_json);

// Every text of the documents, beside a "doc_id", is in `prompt`, as it is or as JSON. kUnsupported, of the
// field "documents", names the first one that a template left out. Reading JSON counts as work (JsonReader).
api::Result<void> CheckDocuments(const std::string& arguments_json, std::string_view prompt);

}  // namespace quire::runner
