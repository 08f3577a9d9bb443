#include "api/ollama_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/ascii.h"
#include "api/json_body.h"
#include "api/json_read.h"
#include "api/options.h"

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

std::vector<CreateFile> GetFiles(Fields& body) {
  constexpr std::string_view kName = "files";
  std::vector<CreateFile> files;
  const Json* object = body.FindObject(kName);
  if (object == nullptr) return files;
  for (const auto& [path, digest] : object->get_ref<const Json::object_t&>()) {
    if (!IsRelativeInside(path)) {
      body.Reject(kName, fmt::format("holds \"{}\", which is not a relative path without \"..\"", path));
    } else if (!digest.is_string() || digest.get_ref<const std::string&>().empty()) {
      body.Reject(kName, fmt::format("must give the digest of \"{}\"", path));
    } else if (files.size() == kFilesMax) {
      body.Reject(kName, fmt::format("holds more than {} files", kFilesMax));
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
    body.Reject(kName, fmt::format("holds more than {} texts", kLicensesMax));
  return licenses;
}

std::string GetParameters(Fields& body) {
  constexpr std::string_view kName = "parameters";
  const Json* object = body.FindObject(kName);
  if (object == nullptr || object->empty()) return {};
  std::string text = DumpJson(*object);
  const auto parsed = ParseOptions(text);
  if (!parsed && body.ok()) body.error() = parsed.error();
  if (parsed && !parsed->unknown.empty()) {
    body.Reject(kName, fmt::format("holds the unknown parameter \"{}\"", parsed->unknown.front()));
  }
  return text;
}

void RefuseWhatIsNotDone(Fields& body) {
  for (const std::string_view name :
       {"adapters", "draft_files", "draft_quantize", "renderer", "parser", "info"}) {
    if (!Says(body, name)) continue;
    body.error() = Error{ErrorCode::kUnsupported, fmt::format("{} is not supported in this version", name),
                         std::string(name)};
  }
}

template <class Parsed, class GetAll>
Result<Parsed> Parse(std::string_view text, GetAll get_all) {
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
  request.files = GetFiles(body);
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
  body.Get("quantize", request.quantize);
  if (request.quantize.empty()) body.Get("quantization", request.quantize);
  std::ranges::transform(request.quantize, request.quantize.begin(),
                         [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
  body.Get("stream", request.stream);
  RefuseWhatIsNotDone(body);
  if (body.ok() && request.from.empty() && request.files.empty()) {
    body.error() = Error{ErrorCode::kInvalidArgument, "neither 'from' or 'files' was specified", "from"};
  }
  return request;
}

}  // namespace

Result<CopyRequest> ParseCopy(std::string_view body) {
  return Parse<CopyRequest>(body, [](Fields& fields) {
    CopyRequest request;
    request.source = Required(fields, "source");
    request.destination = Required(fields, "destination");
    return request;
  });
}

Result<std::string> ParseDelete(std::string_view body) {
  return Parse<std::string>(body, [](Fields& fields) { return GetModel(fields, /*name_too=*/true); });
}

Result<CreateRequest> ParseCreate(std::string_view body) { return Parse<CreateRequest>(body, GetCreate); }

std::string StatusBody(std::string_view status) {
  const Json body = {{"status", status}};
  return DumpJson(body);
}

std::string StatusBody(std::string_view status, std::string_view digest, int64_t total, int64_t completed) {
  const Json body = {{"status", status}, {"digest", digest}, {"total", total}, {"completed", completed}};
  return DumpJson(body);
}

}  // namespace quire::api::ollama
