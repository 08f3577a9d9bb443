// Bodies of other dialects on llama.cpp's routes, where "model" may be left out.
#pragma once

#include <string>
#include <string_view>

#include "api/base/error.h"

namespace quire::api::llama_server {

// The body with a placeholder as its model, if `error` says that it has none; otherwise nothing.
std::string WithPlaceholderModel(std::string_view body, const Error& error);

// `parse` of a body that may leave "model" out; then it is empty.
template <class Parse>
auto ParseModelOptional(std::string_view body, Parse parse) {
  auto parsed = parse(body);
  if (parsed) return parsed;
  const std::string complete = WithPlaceholderModel(body, parsed.error());
  if (complete.empty()) return parsed;
  parsed = parse(complete);
  if (parsed) parsed->model.clear();
  return parsed;
}

}  // namespace quire::api::llama_server
