#include "server/cli/docs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>
#include <vector>

#include "server/cli/arguments.h"

namespace quire::cli {
namespace {

using Commands = std::vector<const CLI::App*>;
using Options = std::vector<const CLI::Option*>;

Commands CommandsOf(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

Options Named(const CLI::App& app) {
  return app.get_options(
      [](const CLI::Option* option) { return option->nonpositional() && !option->get_group().empty(); });
}

Options Positionals(const CLI::App& app) {
  return app.get_options([](const CLI::Option* option) { return option->get_positional(); });
}

bool TakesValue(const CLI::Option& option) { return option.get_items_expected_min() > 0; }

// "--format", "-f"
std::vector<std::string> Spellings(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

std::string Replaced(std::string_view text, char from, std::string_view to) {
  std::string out;
  for (const char c : text) {
    if (c == from) {
      out += to;
    } else {
      out += c;
    }
  }
  return out;
}

// ---- roff ----

std::string Roff(std::string_view text) {
  std::string out = Replaced(Replaced(text, '\\', "\\e"), '-', "\\-");
  if (out.starts_with('.') || out.starts_with('\'')) out.insert(0, "\\&");
  return out;
}

std::string RoffOptions(const CLI::App& app) {
  std::string out;
  for (const CLI::Option* option : Named(app)) {
    out +=
        fmt::format(".TP\n\\fB{}\\fR{}\n{}\n", Roff(fmt::format("{}", fmt::join(Spellings(*option), ", "))),
                    TakesValue(*option) ? " \\fIVALUE\\fR" : "", Roff(option->get_description()));
  }
  return out;
}

std::string RoffSynopsis(const CLI::App& command) {
  std::string out = fmt::format("\\fBquire {}\\fR", command.get_name());
  if (Named(command).size() > 1) out += " [\\fIoptions\\fR]";
  for (const CLI::Option* option : Positionals(command)) {
    const std::string many = option->get_items_expected_max() > 1 ? " ..." : "";
    const std::string name = fmt::format("\\fI{}\\fR{}", option->get_single_name(), many);
    out += option->get_required() ? " " + name : " [" + name + "]";
  }
  return out;
}

constexpr std::string_view kEnvironment =
    ".SH ENVIRONMENT\n.TP\n\\fBOLLAMA_HOST\\fR\nAddress of the daemon: [scheme://]host[:port]; "
    "127.0.0.1:11434 if not set.\n.TP\n\\fBOLLAMA_MODELS\\fR\nThe daemon's model store; "
    "~/.ollama/models "
    "if not set.\n";

// ---- shells ----

bool TakesModel(const CLI::App& command) {
  const Options positionals = Positionals(command);
  return !positionals.empty() && NamesModel(*positionals.front()) && command.get_name() != "create";
}

std::string NamesOf(const CLI::App& command) {
  std::vector<std::string> names = {command.get_name()};
  for (const std::string& alias : command.get_aliases()) names.push_back(alias);
  return fmt::format("{}", fmt::join(names, "|"));
}

std::string WordsOf(const CLI::App& command) {
  std::vector<std::string> words;
  for (const CLI::Option* option : Named(command)) {
    for (std::string& name : Spellings(*option)) words.push_back(std::move(name));
  }
  return fmt::format("{}", fmt::join(words, " "));
}

// For inside '...' of a shell.
std::string Quoted(std::string_view text) { return Replaced(text, '\'', "'\\''"); }

}  // namespace

std::string ManPage(const CLI::App& app) {
  std::string page = fmt::format(
      ".TH QUIRE 1 \"\" \"quire {}\"\n.SH NAME\nquire \\- command-line client of the model server quired\n"
      ".SH SYNOPSIS\n",
      QUIRE_VERSION);
  for (const CLI::App* command : CommandsOf(app)) page += RoffSynopsis(*command) + "\n.br\n";
  page += ".SH DESCRIPTION\n" + Roff(app.get_description()) +
          ". The client talks to the daemon over HTTP.\n.SH OPTIONS\n" + RoffOptions(app) + ".SH COMMANDS\n";
  for (const CLI::App* command : CommandsOf(app)) {
    page += fmt::format(".SS {}\n{}.\n", RoffSynopsis(*command), Roff(command->get_description()));
    if (command->get_name() == "serve") {
      page += "Its options are those of \\fBquired\\fR(1).\n";
    } else {
      page += RoffOptions(*command);
    }
  }
  page += kEnvironment;
  page +=
      ".TP\n\\fBQUIRE_API_KEY\\fR, \\fBOLLAMA_API_KEY\\fR\nKey for the daemon, if it needs one; the first "
      "wins.\n"
      ".TP\n\\fBOLLAMA_NOHISTORY\\fR\nUnless empty or 0, \\fBquire run\\fR saves no history.\n"
      ".TP\n\\fBNO_COLOR\\fR\nUnless empty, no text is colored.\n"
      ".SH FILES\n.TP\n\\fI~/.quire_history\\fR\nLines typed into \\fBquire run\\fR.\n"
      ".TP\n\\fI~/.config/quire/launch/\\fR\nSettings of agents, written by \\fBquire launch\\fR.\n"
      ".SH EXIT STATUS\n0, or 1 after an error, which is printed to standard error.\n"
      ".SH SEE ALSO\n\\fBquired\\fR(1)\n";
  return page;
}

std::string DaemonManPage(const CLI::App& serve) {
  return fmt::format(
      ".TH QUIRED 1 \"\" \"quire {}\"\n.SH NAME\nquired \\- serve language models over HTTP\n.SH SYNOPSIS\n"
      "\\fBquired\\fR [\\fIoptions\\fR]\n.SH DESCRIPTION\nServes the models of its store to clients of "
      "Ollama, "
      "OpenAI and Anthropic, each in its own process.\n.SH OPTIONS\n{}{}.SH SEE "
      "ALSO\n\\fBquire\\fR(1)\n",
      QUIRE_VERSION, RoffOptions(serve), kEnvironment);
}

std::string BashCompletion(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : CommandsOf(app)) names.push_back(command->get_name());
  std::string out =
      "# bash completion for quire\n"
      "_quire_models() { quire list 2>/dev/null | awk 'NR > 1 { print $1 }'; }\n"
      "_quire() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} words=\n"
      "  # A colon ends a word for readline, but not in names of models.\n"
      "  declare -F _get_comp_words_by_ref >/dev/null && _get_comp_words_by_ref -n : cur\n"
      "  if [ \"$COMP_CWORD\" = 1 ]; then\n";
  out +=
      fmt::format("    words='{} {}'\n  else\n    case $command in\n", fmt::join(names, " "), WordsOf(app));
  for (const CLI::App* command : CommandsOf(app)) {
    out += fmt::format("      {}) ", NamesOf(*command));
    if (command->get_name() == "create") {
      out +=
          "case ${COMP_WORDS[COMP_CWORD-1]} in -f|--file) COMPREPLY=($(compgen -f -- \"$cur\")); return ;; "
          "esac\n"
          "        ";
    }
    out += TakesModel(*command) ? fmt::format("[[ $cur == -* ]] && words='{}' || words=$(_quire_models) ;;\n",
                                              WordsOf(*command))
                                : fmt::format("words='{}' ;;\n", WordsOf(*command));
  }
  out +=
      "    esac\n  fi\n  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
      "  declare -F __ltrim_colon_completions >/dev/null && __ltrim_colon_completions \"$cur\"\n  return "
      "0\n}\n"
      "complete -F _quire quire\n";
  return out;
}

std::string ZshCompletion(const CLI::App& app) {
  const auto text = [](const std::string& words) {
    return Quoted(Replaced(Replaced(Replaced(words, '[', "("), ']', ")"), ':', "\\:"));
  };
  std::string out =
      "#compdef quire\n"
      "_quire_models() {\n  local -a models\n"
      "  models=(${(f)\"$(quire list 2>/dev/null | awk 'NR > 1 { print $1 }')\"})\n"
      "  compadd -a models\n}\n"
      "_quire() {\n  local -a commands\n  commands=(\n";
  for (const CLI::App* command : CommandsOf(app)) {
    out += fmt::format("    '{}:{}'\n", command->get_name(), text(command->get_description()));
  }
  out +=
      "  )\n  if (( CURRENT == 2 )); then\n    _describe command commands\n    return\n  fi\n"
      "  local command=$words[2]\n  (( CURRENT-- ))\n  shift words\n  case $command in\n";
  for (const CLI::App* command : CommandsOf(app)) {
    out += fmt::format("    {})\n      _arguments", NamesOf(*command));
    for (const CLI::Option* option : Named(*command)) {
      for (const std::string& name : Spellings(*option)) {
        const char* value = !TakesValue(*option)               ? ""
                            : name == "-f" || name == "--file" ? ":file:_files"
                                                               : ":value:";
        out += fmt::format(" \\\n        '{}[{}]{}'", name, text(option->get_description()), value);
      }
    }
    if (TakesModel(*command)) out += " \\\n        '*:model:_quire_models'";
    out += "\n      ;;\n";
  }
  return out + "  esac\n}\n_quire \"$@\"\n";
}

std::string FishCompletion(const CLI::App& app) {
  std::string out =
      "# fish completion for quire\n"
      "function __quire_models\n    quire list 2>/dev/null | awk 'NR > 1 { print $1 }'\nend\n"
      "complete -c quire -f\n";
  for (const CLI::App* command : CommandsOf(app)) {
    const std::string names = Replaced(NamesOf(*command), '|', " ");
    out += fmt::format("complete -c quire -n __fish_use_subcommand -a {} -d '{}'\n", command->get_name(),
                       Quoted(command->get_description()));
    if (TakesModel(*command)) {
      out +=
          fmt::format("complete -c quire -n '__fish_seen_subcommand_from {}' -a '(__quire_models)'\n", names);
    }
    for (const CLI::Option* option : Named(*command)) {
      out += fmt::format("complete -c quire -n '__fish_seen_subcommand_from {}'", names);
      for (const std::string& name : option->get_snames()) out += " -s " + name;
      for (const std::string& name : option->get_lnames()) out += " -l " + name;
      if (TakesValue(*option)) out += option->check_lname("file") ? " -r -F" : " -x";
      out += fmt::format(" -d '{}'\n", Quoted(option->get_description()));
    }
  }
  return out;
}

}  // namespace quire::cli
