#include "server/cli/chat.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <vector>

#include "api/base/base64.h"
#include "api/json/option_fields.h"
#include "server/cli/client.h"
#include "server/cli/image_paths.h"
#include "server/cli/show.h"
#include "server/cli/terminal.h"
#include "server/cli/wait_text.h"

namespace quire::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kGray = "\033[90m", kPlain = "\033[0m";

std::string Duration(double nanoseconds) {
  if (nanoseconds >= 1e9) return fmt::format("{:.3f}s", nanoseconds / 1e9);
  return fmt::format("{:.3f}ms", nanoseconds / 1e6);
}

void PrintStatistics(const Json& reply) {
  const auto number = [&reply](const char* name) { return reply.value(name, 0.0); };
  const auto rate = [](double tokens, double nanoseconds) {
    return nanoseconds > 0 ? tokens * 1e9 / nanoseconds : 0.0;
  };
  fmt::print(stderr, "total duration:       {}\n", Duration(number("total_duration")));
  fmt::print(stderr, "load duration:        {}\n", Duration(number("load_duration")));
  fmt::print(stderr, "prompt eval count:    {:.0f} token(s), {:.0f} cached\n", number("prompt_eval_count"),
             number("prompt_eval_cached_count"));
  fmt::print(stderr, "prompt eval duration: {}\n", Duration(number("prompt_eval_duration")));
  fmt::print(stderr, "prompt eval rate:     {:.2f} tokens/s\n",
             rate(number("prompt_eval_count"), number("prompt_eval_duration")));
  fmt::print(stderr, "eval count:           {:.0f} token(s)\n", number("eval_count"));
  fmt::print(stderr, "eval duration:        {}\n", Duration(number("eval_duration")));
  fmt::print(stderr, "eval rate:            {:.2f} tokens/s\n",
             rate(number("eval_count"), number("eval_duration")));
  if (!reply.contains("draft_count")) return;
  const double drafted = number("draft_count"), accepted = number("draft_accepted_count");
  fmt::print(stderr, "draft count:          {:.0f} token(s)\n", drafted);
  fmt::print(stderr, "draft accepted:       {:.0f} token(s), {:.0f} %\n", accepted,
             drafted > 0 ? 100 * accepted / drafted : 0.0);
  if (const auto by = reply.find("draft_accepted_by_position"); by != reply.end() && by->is_array()) {
    fmt::print(stderr, "accepted by position: {}\n", fmt::join(by->get<std::vector<int64_t>>(), " "));
  }
}

constexpr int kCompletionMax = 512;  // tokens

bool HasNote(const Json& shown, std::string_view text) {
  const auto notes = shown.find("repairs");
  return notes != shown.end() && notes->is_array() && std::ranges::any_of(*notes, [text](const Json& note) {
           return note.is_string() && note.get_ref<const std::string&>().find(text) != std::string::npos;
         });
}

// Whether what is shown of a model says that it has no template, or one that cannot be read.
bool HasNoChats(const Json& shown) {
  return shown.value("template", "?").empty() || HasNote(shown, "chats are refused");
}

// Whether only its vocabulary speaks for its prompt format, as of a base model whose family has models for
// chats.
bool HasFormatOfVocabulary(const Json& shown) { return HasNote(shown, "from the vocabulary"); }

PrefillReport ReportOf(const Json& progress) {
  const auto number = [&progress](const char* name) {
    const auto it = progress.find(name);
    return it != progress.end() && it->is_number_integer() ? it->get<int64_t>() : 0;
  };
  return {number("total"), number("cache"), number("processed"), number("time_ms")};
}

// "AAA" "B B" as two; anything else as one.
Json StopWords(std::string_view text) {
  Json words = Json::array();
  std::string_view rest = text;
  while (!rest.empty() && rest.front() == '"') {
    const size_t close = rest.find('"', 1);
    if (close == std::string_view::npos) break;
    words.push_back(std::string(rest.substr(1, close - 1)));
    rest.remove_prefix(close + 1);
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  }
  return rest.empty() && !words.empty() ? words : Json::array({std::string(text)});
}

}  // namespace

Chat::Chat(Client& client, ChatOptions options)
    : client_(client), options_(std::move(options)), spinner_(isatty(STDOUT_FILENO) != 0 ? stdout : stderr) {}

api::Result<void> CheckThink(std::string_view level) {
  constexpr std::array<std::string_view, 6> kLevels = {"true", "false", "low", "medium", "high", "max"};
  if (std::ranges::find(kLevels, level) != kLevels.end()) return {};
  return api::Fail(api::ErrorCode::kInvalidArgument,
                   fmt::format("thinking must be one of {}, not \"{}\"", fmt::join(kLevels, ", "), level));
}

std::string ReadAll(std::FILE* file) {
  std::string text;
  std::array<char, 65536> bytes;
  while (const size_t n = std::fread(bytes.data(), 1, bytes.size(), file)) text.append(bytes.data(), n);
  return text;
}

// A number is a number of seconds, anything else a duration for the server to read.
void Chat::AddKeepAlive(Json& body) const {
  if (!options_.keep_alive) return;
  char* end = nullptr;
  const double seconds = std::strtod(options_.keep_alive->c_str(), &end);
  body["keep_alive"] = *end == '\0' ? Json(seconds) : Json(*options_.keep_alive);
}

std::string Chat::RequestBody(const Turn& question) const {
  Json body = {{"model", options_.model}};
  if (completes_text_) {
    body["prompt"] =
        raw_ && !system_.empty() ? fmt::format("{}\n\n{}", system_, question.content) : question.content;
    if (raw_) body["raw"] = true;
    if (!raw_ && !system_.empty()) body["system"] = system_;
    if (!question.images.empty()) body["images"] = question.images;
  } else {
    body["messages"] = Json::array();
    const auto add = [&body](const Turn& turn) {
      Json message = {{"role", turn.role}, {"content", turn.content}};
      if (!turn.images.empty()) message["images"] = turn.images;
      body["messages"].push_back(std::move(message));
    };
    if (!system_.empty()) add({"system", system_});
    for (const Turn& turn : turns_) add(turn);
    add(question);
  }
  AddKeepAlive(body);
  if (!options_.format.empty()) {
    const Json schema = Json::parse(options_.format, nullptr, false);
    body["format"] = schema.is_object() ? schema : Json(options_.format);
  }
  if (!options_.think.empty()) {
    const bool truth = options_.think == "true" || options_.think == "false";
    body["think"] = truth ? Json(options_.think == "true") : Json(options_.think);
  }
  if (bounded_) body["options"]["num_predict"] = kCompletionMax;
  for (const auto& [name, value] : parameters_) body["options"][name] = Json::parse(value);
  if (spinner_.enabled()) body["return_progress"] = true;
  return Dump(body);
}

api::Result<void> Chat::Print(std::string_view text) {
  spinner_.Stop();
  return WriteOut(wrap_.Put(text, options_.word_wrap ? Columns(stdout) : 0));
}

// In gray, each piece for itself: an answer that stops anywhere leaves the terminal in its own color.
api::Result<void> Chat::PrintThought(std::string_view text) {
  spinner_.Stop();
  const bool colors = HasColors(stdout);
  const std::string shown = wrap_.Put(text, options_.word_wrap ? Columns(stdout) : 0);
  return WriteOut(colors ? fmt::format("{}{}{}", kGray, shown, kPlain) : shown);
}

api::Result<void> Chat::OnMessage(const Json& message, std::string& answer) {
  const std::string thought = message.value("thinking", "");
  const std::string text = message.value("content", "");
  answer += text;
  repeats_ |= repetition_.Add(thought) || repetition_.Add(text);
  api::Result<void> printed;
  if (!thought.empty() && options_.hide_thinking) {
    spinner_.Show("thinking");
  } else if (!thought.empty()) {
    printed = PrintThought((thinking_ ? "" : "Thinking...\n") + thought);
    thinking_ = true;
  }
  if (!printed || text.empty()) return printed;
  if (std::exchange(thinking_, false)) printed = PrintThought("\n...done thinking.\n\n");
  return printed ? Print(text) : printed;
}

api::Result<void> Chat::OnLine(std::string_view line, std::string& answer) {
  waits_ = false;
  const Json reply = Json::parse(line, nullptr, false);
  if (!reply.is_object())
    return api::Fail(api::ErrorCode::kInternal, "the server sent a line that is not JSON");
  if (const auto error = reply.find("error"); error != reply.end()) {
    return api::Fail(api::ErrorCode::kInternal,
                     error->is_string() ? error->get<std::string>() : error->dump());
  }
  if (const auto progress = reply.find("prompt_progress"); progress != reply.end()) {
    spinner_.Show(PrefillText(ReportOf(*progress)));
    return {};
  }
  if (const auto message = reply.find("message"); message != reply.end() && message->is_object()) {
    if (auto printed = OnMessage(*message, answer); !printed) return printed;
  } else if (reply.contains("response")) {
    const Json completed = {{"content", reply["response"]}};
    if (auto printed = OnMessage(completed, answer); !printed) return printed;
  }
  if (!reply.value("done", false)) {
    return repeats_ ? api::Fail(api::ErrorCode::kCancelled, "the answer repeats itself")
                    : api::Result<void>();
  }
  repeats_ = false;
  spinner_.Stop();
  auto ended = WriteOut(isatty(STDOUT_FILENO) != 0 ? "\n\n" : "\n");
  if (bounded_ && reply.value("done_reason", "") == "length" &&
      reply.value("eval_count", 0) == kCompletionMax) {
    fmt::print(stderr, "stopped after {} tokens; the parameter num_predict sets another bound\n",
               kCompletionMax);
  }
  if (options_.verbose) PrintStatistics(reply);
  return ended;
}

api::Result<void> Chat::ShowWait() {
  if (!spinner_.enabled()) return {};
  const auto models = client_.Get("/api/ps", true);
  if (!models && models.error().code == api::ErrorCode::kCancelled) return std::unexpected(models.error());
  spinner_.Show(WaitText(models.value_or(""), options_.model));
  return {};
}

void Chat::OnTick() {
  constexpr int kTicksPerLook = 5;
  if (waits_ && spinner_.enabled() && ++wait_ticks_ % kTicksPerLook == 0) {
    const auto models = client_.Get("/api/ps", true);
    if (models) spinner_.Update(WaitText(*models, options_.model));
    // It was meant for the request that waits.
    if (!models && models.error().code == api::ErrorCode::kCancelled) ::raise(SIGINT);
  }
  spinner_.Tick();
}

api::Result<void> Chat::AttachImages(Turn& question) {
  auto read = ReadImages(question.content);
  if (!read) return std::unexpected(std::move(read).error());
  if (!read->absent.empty() || !read->files.empty()) spinner_.Stop();
  for (const std::string& path : read->absent) fmt::print(stderr, "No image '{}'; sent as text\n", path);
  if (read->files.empty()) return {};
  for (const std::string& path : read->paths) fmt::print(stderr, "Added image '{}'\n", path);
  for (const std::string& file : read->files) api::AppendBase64(question.images.emplace_back(), file);
  question.content = std::move(read->text);
  return {};
}

// As a chat or, where the model has no prompt format for one, as text to be completed.
api::Result<void> Chat::SendQuestion(Turn& question, std::string& answer) {
  const auto post = [&] {
    return client_.PostLines(completes_text_ ? "/api/generate" : "/api/chat", RequestBody(question),
                             {.on_line = [&](std::string_view line) { return OnLine(line, answer); },
                              .on_tick = [this] { OnTick(); }});
  };
  const auto look = [this] {
    const auto shown = Show();
    const Json model = shown ? Json::parse(*shown, nullptr, false) : Json();
    return model.is_object() ? model : Json::object();
  };
  if (!std::exchange(looked_, true)) {
    const Json model = look();
    raw_ = HasFormatOfVocabulary(model);
    sees_ = HasCapability(model, "vision");
    if (raw_) CompleteText(model, "chat template of its own");
  }
  if (sees_) {
    if (auto attached = AttachImages(question); !attached) return attached;
  }
  auto done = post();
  const bool refused = !done && answer.empty() && done.error().code == api::ErrorCode::kInvalidArgument;
  if (!refused || completes_text_) return done;
  const Json model = look();
  if (!HasNoChats(model)) return done;
  CompleteText(model, "prompt format for chats");
  return post();
}

void Chat::CompleteText(const Json& model, std::string_view why) {
  spinner_.Stop();
  fmt::print(stderr, "{} has no {}: completing each text by itself.\n", options_.model, why);
  completes_text_ = true;
  const auto parameters = model.find("parameters");
  const bool bound = parameters != model.end() && parameters->is_string() &&
                     parameters->get_ref<const std::string&>().find("num_predict") != std::string::npos;
  bounded_ = !bound;
}

api::Result<void> Chat::Send(const std::string& text) {
  Turn question{"user", text};
  std::string answer;
  wrap_ = WordWrap();
  repetition_ = Repetition();
  thinking_ = repeats_ = false;
  auto done = ShowWait();
  waits_ = true;
  if (done) done = SendQuestion(question, answer);
  waits_ = false;
  spinner_.Stop();
  const bool interrupted = !done && done.error().code == api::ErrorCode::kCancelled;
  const bool cut_short = !done && (interrupted || !answer.empty());
  if ((done || interrupted) && !completes_text_) {
    turns_.push_back(std::move(question));
    turns_.push_back({"assistant", std::move(answer)});
  }
  if (cut_short) std::fputs("\n\n", stdout);
  if (!interrupted || !repeats_) return done;
  std::fflush(stdout);
  fmt::print(stderr, "stopped: the answer repeats itself\n");
  return {};
}

api::Result<void> Chat::Load() {
  Json body = {{"model", options_.model}};
  AddKeepAlive(body);
  spinner_.Show("loading " + options_.model);
  waits_ = true;
  auto loaded = client_.PostLines(
      "/api/generate", Dump(body),
      {.on_line = [](std::string_view) { return api::Result<void>(); }, .on_tick = [this] { OnTick(); }});
  waits_ = false;
  spinner_.Stop();
  return loaded;
}

api::Result<void> Chat::Switch(const std::string& model) {
  std::string before = std::exchange(options_.model, model);
  if (auto loaded = Load(); !loaded) {
    options_.model = std::move(before);
    return loaded;
  }
  turns_.clear();
  completes_text_ = bounded_ = looked_ = raw_ = sees_ = false;
  return {};
}

api::Result<void> Chat::Save(const std::string& name) {
  Json body = {{"model", name}, {"from", options_.model}, {"stream", false}};
  if (!system_.empty()) body["system"] = system_;
  for (const auto& [parameter, value] : parameters_) body["parameters"][parameter] = Json::parse(value);
  for (const auto& turn : turns_)
    body["messages"].push_back({{"role", turn.role}, {"content", turn.content}});
  const auto made = client_.Post("/api/create", Dump(body));
  return made ? api::Result<void>() : std::unexpected(made.error());
}

api::Result<std::string> Chat::Show() {
  return client_.Post("/api/show", Dump(Json{{"model", options_.model}}));
}

api::Result<void> Chat::SetParameter(const std::string& name, std::string_view value) {
  const Json parsed = Json::parse(value, nullptr, false);
  const Json untyped = name == "stop"          ? StopWords(value)
                       : parsed.is_discarded() ? Json(std::string(value))
                                               : parsed;
  const auto option = api::ReadTextsOfOptions(Dump(Json{{name, untyped}}));
  if (!option) return std::unexpected(option.error());
  const Json given = Json::parse(*option).at(name);
  const auto checked = api::ParseOptions(*option);
  if (!checked) return std::unexpected(checked.error());
  if (!checked->unknown.empty()) {
    return api::Fail(api::ErrorCode::kInvalidArgument, fmt::format("unknown parameter \"{}\"", name));
  }
  const auto known = std::ranges::find(parameters_, name, &std::pair<std::string, std::string>::first);
  if (known != parameters_.end()) {
    known->second = Dump(given);
  } else {
    parameters_.emplace_back(name, Dump(given));
  }
  return {};
}

api::Result<void> Chat::SetThink(const std::string& level) {
  if (auto known = CheckThink(level); !known) return known;
  const auto shown = level == "false" ? api::Result<std::string>("") : Show();
  if (!shown) return std::unexpected(shown.error());
  const Json model = Json::parse(*shown, nullptr, false);
  if (model.is_object() && model.contains("capabilities") && !HasCapability(model, "thinking")) {
    return api::Fail(api::ErrorCode::kUnsupported,
                     fmt::format("\"{}\" does not support thinking", options_.model));
  }
  options_.think = level;
  return {};
}

api::Result<void> Chat::SetFormat(std::string format) {
  if (format != "json" && !Json::parse(format, nullptr, false).is_object()) {
    return api::Fail(api::ErrorCode::kInvalidArgument,
                     fmt::format("the format must be json or a JSON Schema, not {}", format));
  }
  options_.format = std::move(format);
  return {};
}

std::string Chat::Parameters() const {
  std::string lines;
  for (const auto& [name, value] : parameters_) lines += fmt::format("{:<30} {}\n", name, value);
  return lines;
}

}  // namespace quire::cli
