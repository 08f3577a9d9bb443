#include "api/ollama/store.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/base/ascii.h"
#include "api/json/body.h"
#include "api/json/option_fields.h"
#include "api/json/read.h"

namespace quire::api::ollama {
namespace {

constexpr size_t kFilesMax = 4096;
constexpr size_t kLicensesMax = 64;

std::string Required(Fields& body, std::string_view name) {
  std::string value;
  body.Get(name, value);
  if (value.empty() && body.ok()) {
    body.error() = Error{ErrorCode::kInvalidArgument, fmt::format("{} is required", name), std::string(name)};
  }
  return value;
}

bool IsRelativeInside(std::string_view path) {
  if (path.empty() || path.starts_with('/') || path.contains('\0') || path.contains('\\')) return false;
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    const std::string_view part = path.substr(at, end - at);
    if (part.empty() || part == "." || part == "..") return false;
    at = end + 1;
  }
  return true;
}

std::vector<CreateFile> GetFiles(Fields& body, std::string_view name) {
  std::vector<CreateFile> files;
  const Json* object = body.FindObject(name);
  if (object == nullptr) return files;
  for (const auto& [path, digest] : object->get_ref<const Json::object_t&>()) {
    if (!IsRelativeInside(path)) {
      body.Reject(name, fmt::format("contains \"{}\", which is not a relative path without \"..\"", path));
    } else if (!digest.is_string() || digest.get_ref<const std::string&>().empty()) {
      body.Reject(name, fmt::format("must contain the digest of \"{}\"", path));
    } else if (files.size() == kFilesMax) {
      body.Reject(name, fmt::format("contains more than {} files", kFilesMax));
    }
    if (!body.ok()) break;
    files.push_back({path, digest.get<std::string>()});
  }
  return files;
}

std::vector<std::string> GetLicenses(Fields& body) {
  constexpr std::string_view kName = "license";
  std::vector<std::string> licenses;
  const Json* value = body.Find(kName);
  if (value == nullptr) return licenses;
  const Json list = value->is_array() ? *value : Json::array({*value});
  for (const Json& text : list) {
    if (!text.is_string()) {
      body.Reject(kName, "must be of type string or array of strings");
      break;
    }
    if (!text.get_ref<const std::string&>().empty()) licenses.push_back(text.get<std::string>());
  }
  if (licenses.size() > kLicensesMax)
    body.Reject(kName, fmt::format("contains more than {} texts", kLicensesMax));
  return licenses;
}

std::string GetParameters(Fields& body) {
  constexpr std::string_view kName = "parameters";
  const Json* object = body.FindObject(kName);
  if (object == nullptr || object->empty()) return {};
  std::string text = ReadTextsOfOptions(DumpJson(*object)).value_or("");
  const auto parsed = ParseOptions(text);
  if (!parsed && body.ok()) body.error() = parsed.error();
  if (parsed && !parsed->unknown.empty()) {
    body.Reject(kName, fmt::format("contains the unknown parameter \"{}\"", parsed->unknown.front()));
  }
  return text;
}

// Upper case, by the names of files.
std::string GetQuantization(Fields& body, std::string_view name) {
  std::string type;
  body.Get(name, type);
  std::ranges::transform(type, type.begin(),
                         [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
  return type == "Q4_K" ? "Q4_K_M" : type;
}

// Three numbers, with or without a "v", and what may follow them.
std::string GetRequires(Fields& body) {
  constexpr std::string_view kName = "requires";
  std::string version;
  body.Get(kName, version);
  std::string_view rest = version;
  if (rest.starts_with('v')) rest.remove_prefix(1);
  for (int i = 0; i < 3 && !version.empty(); ++i) {
    const size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
    const bool ends = i == 2 && (digits == rest.size() || rest[digits] == '-' || rest[digits] == '+');
    const bool goes_on = i < 2 && digits < rest.size() && rest[digits] == '.';
    if (digits == 0 || !(ends || goes_on)) {
      body.Reject(kName, "must be a version such as 0.14.0");
      break;
    }
    rest.remove_prefix(std::min(digits + 1, rest.size()));
  }
  return version;
}

void RefuseWhatIsNotDone(Fields& body) {
  if (!HasValue(body, "adapters")) return;
  body.error() =
      Error{ErrorCode::kUnsupported,
            "adapters are not supported in this version: merge the adapter into its model", "adapters"};
}

template <class Parsed, class GetAll>
Result<Parsed> ParseStoreBody(std::string_view text, GetAll get_all) {
  const auto json = ReadBody(text);
  if (!json) return std::unexpected(json.error());
  FirstError error;
  Fields body(*json, "", error);
  Parsed parsed = get_all(body);
  if (error) return std::unexpected(std::move(*error));
  return parsed;
}

CreateRequest GetCreate(Fields& body) {
  CreateRequest request;
  request.model = GetModel(body, /*name_too=*/true);
  body.Get("from", request.from);
  request.files = GetFiles(body, "files");
  request.draft_files = GetFiles(body, "draft_files");
  body.Get("template", request.go_template);
  body.Get("system", request.system);
  request.parameters_json = GetParameters(body);
  request.messages = MessageList(body).Get([](Fields& fields) {
    Message message;
    message.role = GetRole(fields);
    fields.Get("content", message.content);
    return message;
  });
  request.licenses = GetLicenses(body);
  request.quantize = GetQuantization(body, "quantize");
  if (request.quantize.empty()) request.quantize = GetQuantization(body, "quantization");
  request.draft_quantize = GetQuantization(body, "draft_quantize");
  request.requires_version = GetRequires(body);
  body.Get("renderer", request.renderer);
  body.Get("parser", request.parser);
  body.FindObject("info");  // of models that run elsewhere, of which there are none
  body.Get("stream", request.stream);
  RefuseWhatIsNotDone(body);
  if (body.ok() && !request.draft_quantize.empty() && request.draft_files.empty()) {
    body.Reject("draft_quantize", "requires a draft model in draft_files");
  }
  if (body.ok() && request.from.empty() && request.files.empty()) {
    body.error() = Error{ErrorCode::kInvalidArgument, "neither 'from' or 'files' was specified", "from"};
  }
  return request;
}

}  // namespace

Result<CopyRequest> ParseCopy(std::string_view body) {
  return ParseStoreBody<CopyRequest>(body, [](Fields& fields) {
    CopyRequest request;
    request.source = Required(fields, "source");
    request.destination = Required(fields, "destination");
    return request;
  });
}

Result<std::string> ParseDelete(std::string_view body) {
  return ParseStoreBody<std::string>(body,
                                     [](Fields& fields) { return GetModel(fields, /*name_too=*/true); });
}

Result<CreateRequest> ParseCreate(std::string_view body) {
  return ParseStoreBody<CreateRequest>(body, GetCreate);
}

std::string StatusBody(std::string_view status) {
  const Json body = {{"status", status}};
  return DumpJson(body);
}

std::string StatusBody(std::string_view status, std::string_view digest, int64_t total, int64_t completed) {
  Json body = {{"status", status}};
  if (!digest.empty()) body["digest"] = digest;
  body["total"] = total;
  body["completed"] = completed;
  return DumpJson(body);
}

}  // namespace quire::api::ollama
