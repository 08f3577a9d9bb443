// Fields of other servers that change what an answer is, and that this one cannot honor: they are refused by name.
#pragma once

#include "api/json/fields.h"

namespace quire::api::openai {

// kUnsupported for the first of them that is there with a value that means anything.
void RefuseUnsupported(Fields& body);

}  // namespace quire::api::openai
