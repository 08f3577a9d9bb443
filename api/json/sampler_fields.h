// "samplers" of llama.cpp's server: which samplers an answer is drawn with.
#pragma once

#include <string>
#include <vector>

#include "api/base/options.h"
#include "api/json/fields.h"

namespace quire::api {

// Samplers that the list does not name are off; an absent temperature counts as 1 then. Their order is the
// server's own. Names of others go to `unknown`.
void GetSamplers(Fields& body, Options& options, std::vector<std::string>& unknown);

}  // namespace quire::api
