// Reads sampling options by the table in api/base/options.h: `options` of requests, Modelfile PARAMETERs, the
// sampling fields of the other dialects.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "api/base/options.h"
#include "api/json/fields.h"

namespace quire::api {

struct ParsedOptions {
  Options options;
  std::vector<std::string> unknown;  // names in no table, for the log
};

// The same object; values that are texts, as in a Modelfile, are the numbers and booleans that they say to
// Go's strconv (".9", "+40", "T"). What says none stays. Errors: kInvalidArgument, no JSON.
Result<std::string> ReadTextsOfOptions(std::string_view json_object);

// A JSON object of options. Errors: kInvalidArgument naming the option and what it must be.
Result<ParsedOptions> ParseOptions(std::string_view json_object);

// What ParseOptions() reads, as short as it can be written; empty where nothing is specified.
std::string DumpOptions(const Options& options);

// Sets what PromptReady::sampling says; of a text that is none, nothing.
void ApplySampling(std::string_view json_object, GenerationParams& params);

// Where values of a model's requests come from that specify none: {"top_k": {"value": 20, "from":
// "PARAMETER"}}, of the sampling that its files recommend, at `source`, and of its PARAMETERs, which go
// before it. All are JSON objects, or empty.
std::string SamplingSources(std::string_view recommended, std::string_view source,
                            std::string_view parameters);

// The member "options".
void GetOptions(Fields& body, Options& options, std::vector<std::string>& unknown);

// All options, at the top level of OpenAI requests; they override what `options` says.
void GetOpenAiOptions(Fields& body, Options& options);

// One option of the table, read from the member of its own name; nothing when it is absent.
void GetOption(Fields& fields, std::string_view name, Options& options);

// Stop strings, from a member of any name: a string or an array of strings.
void GetStop(Fields& fields, std::string_view name, Options& options);

}  // namespace quire::api
