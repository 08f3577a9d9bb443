// The output of `quire show`, from the body of POST /api/show.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "api/base/error.h"

namespace quire::cli {

// The sections Model, Projector, Capabilities, Parameters, System and License; with `verbose` also Metadata
// and Tensors.
api::Result<std::string> ShowText(std::string_view show_json, bool verbose);

// Whether the model that such a body describes has a capability.
bool HasCapability(const nlohmann::ordered_json& shown, std::string_view capability);

// One member as it is, with a line break at its end: "license", "modelfile", "parameters", "system",
// "template".
api::Result<std::string> ShowMember(std::string_view show_json, const std::string& member);

}  // namespace quire::cli
