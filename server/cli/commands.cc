#include "server/cli/commands.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "server/cli/client.h"
#include "server/cli/lists.h"
#include "server/cli/model_check.h"
#include "server/cli/progress.h"
#include "server/cli/show.h"
#include "server/cli/terminal.h"

namespace quire::cli {
namespace {

using Json = nlohmann::ordered_json;

Seconds Now() { return std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now()); }

int Print(const api::Result<std::string>& text) {
  if (!text) return PrintError(text.error());
  fmt::print("{}", *text);
  return 0;
}

const char* MemberOf(const Arguments& arguments) {
  if (arguments.show_license) return "license";
  if (arguments.show_modelfile) return "modelfile";
  if (arguments.show_parameters) return "parameters";
  if (arguments.show_system) return "system";
  return arguments.show_template ? "template" : nullptr;
}

}  // namespace

int List(Client& client, const Arguments& arguments) {
  const auto body = client.Get("/api/tags");
  return body ? Print(ListTable(*body, arguments.prefix, Now())) : PrintError(body.error());
}

int Ps(Client& client) {
  const auto body = client.Get("/api/ps");
  return body ? Print(PsTable(*body, Now())) : PrintError(body.error());
}

int Ready(Client& client) {
  const auto ready = client.Get("/readyz");
  return ready ? 0 : PrintError(ready.error());
}

int Show(Client& client, const Arguments& arguments) {
  if (arguments.check) {
    const auto checked = client.Post("/api/show", Dump({{"model", arguments.model}, {"check", true}}));
    if (!checked) return PrintError(checked.error());
    const auto text = CheckText(*checked);
    const int printed = Print(text ? api::Result<std::string>(*text + "\n") : text);
    return printed == 0 && !WouldLoad(*checked) ? 1 : printed;
  }
  const auto body =
      client.Post("/api/show", Dump({{"model", arguments.model}, {"verbose", arguments.verbose}}));
  if (!body) return PrintError(body.error());
  const char* member = MemberOf(arguments);
  return Print(member != nullptr ? ShowMember(*body, member) : ShowText(*body, arguments.verbose));
}

int Copy(Client& client, const Arguments& arguments) {
  const auto done =
      client.Post("/api/copy", Dump({{"source", arguments.source}, {"destination", arguments.destination}}));
  if (!done) return PrintError(done.error());
  fmt::print("copied '{}' to '{}'\n", arguments.source, arguments.destination);
  return 0;
}

int Remove(Client& client, const Arguments& arguments) {
  int code = 0;
  for (const std::string& model : arguments.models) {
    if (const auto done = client.Delete("/api/delete", Dump({{"model", model}})); !done) {
      code = PrintError(done.error());
    } else {
      fmt::print("deleted '{}'\n", model);
    }
  }
  return code;
}

int Stop(Client& client, const Arguments& arguments) {
  const auto done = client.Post("/api/generate", Dump({{"model", arguments.model}, {"keep_alive", 0}}));
  if (done) return 0;
  if (done.error().code != api::ErrorCode::kNotFound) return PrintError(done.error());
  return PrintError(
      {api::ErrorCode::kNotFound, fmt::format("couldn't find model \"{}\" to stop", arguments.model)});
}

int Push(Client& client, const Arguments& arguments) {
  Progress progress(stderr, Columns(stderr), Rows(stderr));
  return FollowProgress(client, "/api/push",
                        Dump({{"model", arguments.model}, {"insecure", arguments.insecure}}), progress);
}

}  // namespace quire::cli
