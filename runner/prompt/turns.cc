#include "runner/prompt/turns.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/base/image_use.h"
#include "runner/prompt/turn_calls.h"

namespace quire::runner {
namespace {

using Turns = std::vector<Turn>;

constexpr std::string_view kGap = "\n\n";

bool IsRole(const Turn& turn, std::string_view role) { return turn.message.role == role; }

void AppendSegments(Turn& to, std::string_view gap, std::span<const PromptSegment> segments) {
  std::string& content = to.message.content;
  if (!content.empty() && !segments.empty()) content += gap;
  for (const PromptSegment& segment : segments) {
    const size_t begin = content.size();
    content += segment.text;
    if (segment.from_template && !segment.text.empty()) to.markers.push_back({begin, content.size()});
  }
}

Turn Made(const char* role, std::string_view content) {
  return {{.role = role, .content = std::string(content)}, {}};
}

size_t LeadingSystems(const Turns& turns) {
  const auto other = std::ranges::find_if(turns, [](const Turn& turn) { return !IsRole(turn, "system"); });
  return static_cast<size_t>(other - turns.begin());
}

void AddTools(Turns& turns, std::span<const PromptSegment> tools_text) {
  if (LeadingSystems(turns) == 0) turns.insert(turns.begin(), Made("system", ""));
  AppendSegments(turns.front(), kGap, tools_text);
}

void JoinSystems(Turns& turns) {
  const size_t count = LeadingSystems(turns);
  for (size_t i = 1; i < count; ++i) AppendContent(turns.front(), kGap, turns[i]);
  if (count > 1) turns.erase(turns.begin() + 1, turns.begin() + static_cast<ptrdiff_t>(count));
}

// System texts from `first` on go to a user turn that follows at once, and behind the results of calls; else
// they are user turns of their own, so that nothing said before them moves.
void SystemsAsUser(Turns& turns, size_t first, bool all) {
  const auto concerns = [&](size_t i) {
    if (!IsRole(turns[i], "system")) return false;
    return all || (i > 0 && (IsRole(turns[i - 1], "tool") || !turns[i - 1].message.tool_calls.empty()));
  };
  for (size_t i = first; i < turns.size(); ++i) {
    if (!concerns(i)) continue;
    size_t to = i;
    while (to + 1 < turns.size() && IsRole(turns[to + 1], "tool")) ++to;
    if (to != i) {
      std::rotate(turns.begin() + static_cast<ptrdiff_t>(i), turns.begin() + static_cast<ptrdiff_t>(i) + 1,
                  turns.begin() + static_cast<ptrdiff_t>(to) + 1);
      --i;
      continue;
    }
    const bool joins =
        i + 1 < turns.size() && (IsRole(turns[i + 1], "user") || IsRole(turns[i + 1], "system"));
    turns[i].message.role = "user";
    if (!joins) continue;
    const std::string role = turns[i + 1].message.role;
    AppendContent(turns[i], kGap, turns[i + 1]);
    turns[i].message.role = role;
    turns[i].message.restore_point = turns[i + 1].message.restore_point;
    turns.erase(turns.begin() + static_cast<ptrdiff_t>(i) + 1);
    --i;
  }
}

// A conversation of nothing but system texts.
void LoneSystemAsUser(Turns& turns) {
  const auto user = std::ranges::find_if(turns, [](const Turn& turn) { return IsRole(turn, "user"); });
  if (user != turns.end()) return;
  const size_t count = LeadingSystems(turns);
  if (count > 0) turns[count - 1].message.role = "user";
}

void AnswerResults(Turns& turns, const TurnRules& rules) {
  for (size_t i = 1; i < turns.size(); ++i) {
    if (!IsRole(turns[i], "user") || !IsRole(turns[i - 1], "tool")) continue;
    if (rules.join_user_to_result) {
      AppendContent(turns[i - 1], kGap, turns[i]);
      turns.erase(turns.begin() + static_cast<ptrdiff_t>(i--));
    } else {
      turns.insert(turns.begin() + static_cast<ptrdiff_t>(i++), Made("assistant", rules.filler));
    }
  }
}

void PutUserFirst(Turns& turns, const TurnRules& rules) {
  const size_t first = LeadingSystems(turns);
  if (first >= turns.size() || !IsRole(turns[first], "assistant")) return;
  turns.insert(turns.begin() + static_cast<ptrdiff_t>(first), Made("user", rules.filler));
}

void JoinNeighbors(Turns& turns, const TurnRules& rules) {
  Turns joined;
  for (Turn& turn : turns) {
    const bool same = !joined.empty() && joined.back().message.role == turn.message.role;
    const bool user = same && rules.join_users && IsRole(turn, "user");
    const bool assistant = same && rules.join_assistants && IsRole(turn, "assistant") &&
                           joined.back().message.tool_calls.empty() &&
                           (turn.message.tool_calls.empty() || !rules.text_before_calls);
    if (!user && !assistant) {
      joined.push_back(std::move(turn));
      continue;
    }
    api::Message& into = joined.back().message;
    AppendContent(joined.back(), kGap, turn);
    if (!into.thinking.empty() && !turn.message.thinking.empty()) into.thinking += kGap;
    into.thinking += turn.message.thinking;
    into.tool_calls = std::move(turn.message.tool_calls);
    into.restore_point = turn.message.restore_point;
  }
  turns = std::move(joined);
}

}  // namespace

void AppendContent(Turn& to, std::string_view gap, const Turn& from) {
  api::AppendContent(to.message, gap, from.message);
  const size_t base = to.message.content.size() - from.message.content.size();
  for (const jinja::ByteRange& marker : from.markers) {
    to.markers.push_back({base + marker.begin, base + marker.end});
  }
}

void SpellImages(std::vector<Turn>& turns, std::string_view placeholder) {
  for (Turn& turn : turns) {
    if (turn.message.images.empty()) continue;
    const std::vector<api::Image> images = std::exchange(turn.message.images, {});
    const std::string content = std::exchange(turn.message.content, {});
    const std::vector<jinja::ByteRange> markers = std::exchange(turn.markers, {});
    auto marker = markers.begin();
    size_t from = 0;
    // Up to `to`, with the markers that end there. No image stands inside a marker.
    const auto copy = [&](size_t to) {
      const size_t moved = turn.message.content.size() - from;
      for (; marker != markers.end() && marker->end <= to; ++marker)
        turn.markers.push_back({marker->begin + moved, marker->end + moved});
      turn.message.content += std::string_view(content).substr(from, to - from);
      from = to;
    };
    for (const api::Image& image : images) {
      copy(image.at);
      const size_t begin = turn.message.content.size();
      turn.message.content += placeholder;
      turn.markers.push_back({begin, turn.message.content.size()});
    }
    copy(content.size());
  }
}

std::vector<PromptSegment> TextWithPlaceholders(const api::Message& message, std::string_view placeholder) {
  std::vector<PromptSegment> segments;
  size_t from = 0;
  const auto add = [&](size_t to) {
    if (to > from) segments.push_back({message.content.substr(from, to - from), false});
    from = to;
  };
  for (const api::Image& image : message.images) {
    add(image.at);
    segments.push_back({std::string(placeholder), true});
  }
  add(message.content.size());
  return segments;
}

std::vector<Turn> ArrangeTurns(std::span<const api::Message> messages, std::span<const api::Tool> tools,
                               const TurnRules& rules, const WriteCalls& write_calls) {
  Turns turns;
  turns.reserve(messages.size());
  for (const api::Message& message : messages) turns.push_back({message, {}});
  if (rules == TurnRules()) return turns;
  TurnRules now = rules;
  if (rules.text_without_tools && tools.empty()) now.calls_as_text = now.results_as_user = Scope::kAll;
  for (Turn& turn : turns) {
    if (now.developer_as_system && IsRole(turn, "developer")) turn.message.role = "system";
  }
  if (now.system_at_question && !turns.empty() && !IsRole(turns.back(), "user")) now.system_as_user = true;
  if (now.ids != CallIds::kAny) NameCalls(turns, now.ids);
  if (now.orphans_as_user) OrphansAsUser(turns);
  if (now.results_at_calls) ResultsToCalls(turns);
  if (now.tools_as_text && !tools.empty()) AddTools(turns, DescribeTools(tools, write_calls));
  if (now.join_systems || now.system_as_user) JoinSystems(turns);
  if (now.system_as_user || now.later_system_as_user || now.system_in_calls_as_user) {
    SystemsAsUser(turns, now.system_as_user ? 0 : LeadingSystems(turns),
                  now.system_as_user || now.later_system_as_user);
  }
  if (now.user_somewhere) LoneSystemAsUser(turns);
  ArrangeCalls(turns, now, write_calls);
  if (now.answer_results || now.join_user_to_result) AnswerResults(turns, now);
  if (now.user_first) PutUserFirst(turns, now);
  JoinNeighbors(turns, now);
  return turns;
}

}  // namespace quire::runner
