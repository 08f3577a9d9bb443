#include "api/base/prompt.h"

#include <iterator>
#include <utility>

namespace quire::api {

void SetOptions(const Options& dialect, const Options& parameters, const Options& own, Request& request) {
  const Options specified = Overlay(parameters, own);
  request.params = Resolve(Overlay(dialect, specified));
  request.specified = Specified(specified);
}

std::vector<Message> WithDefaults(std::vector<Message> messages, const ModelDefaults& defaults) {
  const bool own_system = !messages.empty() && messages.front().role == "system";
  std::vector<Message> all;
  all.reserve(messages.size() + defaults.messages.size() + 1);
  if (!own_system && !defaults.system.empty()) all.push_back({"system", defaults.system});
  all.insert(all.end(), defaults.messages.begin(), defaults.messages.end());
  all.insert(all.end(), std::make_move_iterator(messages.begin()), std::make_move_iterator(messages.end()));
  return all;
}

}  // namespace quire::api
