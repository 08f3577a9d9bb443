// The text forms in which /api/show prints what a model was made of.
#pragma once

#include <string>

#include "api/json/type.h"
#include "api/ollama/lists.h"

namespace quire::api::ollama {

// One line per value, "key<padded to 30> value", strings quoted; an array gives one line per element.
std::string ParameterLines(const Json& parameters);

// A Modelfile that would make the same model again.
std::string RenderModelfile(const ShowReply& reply, const Json& parameters);

}  // namespace quire::api::ollama
