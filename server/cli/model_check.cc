#include "server/cli/model_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "server/cli/hub.h"
#include "server/cli/progress.h"
#include "server/cli/terminal.h"

namespace quire::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kGiB = double{1 << 30};

const Json& FieldOf(const Json& object, const char* name) {
  static const Json kNone = Json::object();
  const auto found = object.is_object() ? object.find(name) : object.end();
  return object.is_object() && found != object.end() ? *found : kNone;
}

int64_t IntegerOf(const Json& object, const char* name) {
  const Json& value = FieldOf(object, name);
  return value.is_number_integer() ? value.get<int64_t>() : 0;
}

std::string StringOf(const Json& value) {
  return value.is_string() ? value.get<std::string>() : std::string();
}

std::string MemoryText(const Json& check) {
  const int64_t wanted = IntegerOf(check, "memory"), least = IntegerOf(check, "memory_min");
  const int64_t limit = IntegerOf(check, "memory_limit");
  if (wanted == 0) return {};
  std::string text = fmt::format("memory {:.2f} GiB, at least {:.2f}", static_cast<double>(wanted) / kGiB,
                                 static_cast<double>(least) / kGiB);
  if (limit > 0) text += fmt::format(" of {:.2f} for all models", static_cast<double>(limit) / kGiB);
  return text;
}

}  // namespace

int PullIfMissing(Client& client, const std::string& model, bool insecure) {
  const auto shown = client.Post("/api/show", Dump({{"model", model}}));
  if (shown || shown.error().code != api::ErrorCode::kNotFound) return 0;  // other errors come again
  fmt::print(stderr, "'{}' is not here; pulling it\n", model);
  return PullModel(client, model, insecure);
}

int PullModel(Client& client, const std::string& model, bool insecure) {
  BringCachedFiles(client, model);
  Progress progress(stderr, Columns(stderr), Rows(stderr));
  return FollowProgress(client, "/api/pull", PullBody(client, model, insecure), progress);
}

bool WouldLoad(std::string_view show_json) {
  const Json shown = Json::parse(show_json, nullptr, false);
  return FieldOf(FieldOf(shown, "check"), "loads") == true;
}

api::Result<std::string> CheckText(std::string_view show_json) {
  const Json shown = Json::parse(show_json, nullptr, false);
  const Json& check = FieldOf(shown, "check");
  if (!check.contains("loads")) {
    return api::Fail(api::ErrorCode::kInternal, "the server did not check the model");
  }
  std::vector<std::string> lines;
  const std::string error = StringOf(FieldOf(check, "error"));
  lines.push_back(error.empty() ? "will load" : "will not load: " + error);
  if (const std::string memory = MemoryText(check); !memory.empty()) lines.push_back(memory);
  if (const int64_t streamed = IntegerOf(check, "streamed"); streamed > 0) {
    lines.push_back(
        fmt::format("{:.2f} GiB of the weights stay in the file and are read again for every step",
                    static_cast<double>(streamed) / kGiB));
  }
  if (const int64_t context = IntegerOf(shown, "context_length"); context > 0) {
    lines.push_back(fmt::format("context {} tokens", context));
  }
  for (const Json& repair : FieldOf(shown, "repairs"))
    lines.push_back("read differently: " + StringOf(repair));
  return fmt::format("{}", fmt::join(lines, "\n"));
}

int CheckModels(Client& client) {
  const auto tags = client.Get("/api/tags");
  if (!tags) return PrintError(tags.error());
  const Json listed = Json::parse(*tags, nullptr, false);
  int code = 0;
  for (const Json& model : FieldOf(listed, "models")) {
    const std::string name = StringOf(FieldOf(model, "name"));
    const auto shown = client.Post("/api/show", Dump({{"model", name}, {"check", true}}));
    const bool loads = shown && WouldLoad(*shown);
    const auto text = shown ? CheckText(*shown) : api::Result<std::string>(std::unexpected(shown.error()));
    std::string lines = text ? *text : text.error().message;
    for (size_t at = lines.find('\n'); at != std::string::npos; at = lines.find('\n', at + 1)) {
      lines.replace(at, 1, "\n      ");
    }
    fmt::print("{}  {}: {}\n", loads ? "ok  " : "BAD ", name, lines);
    if (!loads) code = 1;
  }
  return code;
}

}  // namespace quire::cli
