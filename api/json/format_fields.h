// The fields of request bodies that say what the answer must be.
#pragma once

#include <optional>
#include <string_view>

#include "api/base/request.h"
#include "api/json/fields.h"

namespace quire::api {

// "format": "json" or a JSON schema, also in the forms below; "" is as none.
std::optional<OutputFormat> GetFormat(Fields& body);

// "format": a member of "text" of /v1/responses and of "output_config" of Anthropic's messages. Its forms are
// those of "response_format": {type: "text" | "json_object" | "json_schema", ...} with the schema as "schema"
// or "json_schema", which may hold it as "schema"; TGI's {type: "json" | "regex", value}; {type: "grammar",
// grammar}; a schema itself.
std::optional<OutputFormat> GetTypedFormat(Fields& holder);
// The same as the member `name`.
std::optional<OutputFormat> GetTypedFormatAs(Fields& holder, std::string_view name);

// "response_format" of the OpenAI dialect, or what other servers of it take beside: "grammar" and
// "json_schema" of llama.cpp's, "guided_json", "guided_regex", "guided_choice", "structured_outputs" of {json
// | regex | choice}. At most one of them.
std::optional<OutputFormat> GetResponseFormat(Fields& body);

}  // namespace quire::api
