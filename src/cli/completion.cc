// Completions for bash and zsh: one case for each command, with its options, its commands and the words that
// its arguments may be; files where there is nothing better, and after "--" whatever the program there
// completes.
#include <fmt/format.h>

#include "cli/manual.h"
#include "text/escape.h"

namespace talweg::cli {
namespace {

// Within an option's [explanation], or a command's name:explanation, of zsh's _arguments.
std::string zsh_text(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

// "talweg lab run" -> "_talweg_lab_run"
std::string function_name(std::string path) {
  for (char& c : path)
    if (c == ' ' || c == '-') c = '_';
  return "_" + path;
}

struct BashCases {
  std::string steps;    // from a command and a word to the command below it
  std::string words;    // what may follow a command
  std::string options;  // which of its options take a value
};

void add_bash_cases(const CLI::App& app, const std::string& path, BashCases& cases) {
  std::vector<std::string> words, takers;
  for (const auto* command : subcommands_of(app)) {
    const std::string below = path + " " + command->get_name();
    words.push_back(command->get_name());
    cases.steps +=
        fmt::format("      {}) command={} ;;\n", text::shell_quoted(below), text::shell_quoted(below));
    add_bash_cases(*command, below, cases);
  }
  for (const auto& argument : arguments_of(app))
    for (const auto& word : words_for(argument.argument)) words.push_back(word);
  for (const auto& option : options_of(app)) {
    words.insert(words.end(), option.names.begin(), option.names.end());
    if (option.takes_value) takers.insert(takers.end(), option.names.begin(), option.names.end());
  }
  cases.words +=
      fmt::format("    {}) words={} takers={} ;;\n", text::shell_quoted(path),
                  text::shell_quoted(joined(words)), text::shell_quoted(" " + joined(takers) + " "));
}

void add_zsh_functions(const CLI::App& app, const std::string& path, std::string& text) {
  const auto commands = subcommands_of(app);
  std::string body;
  for (const auto& option : options_of(app)) {
    std::string spec = fmt::format("({})", joined(option.names));
    const std::string explained =
        fmt::format("[{}]{}", zsh_text(option.description), option.takes_value ? ":value:_files" : "");
    for (const auto& name : option.names)
      body += fmt::format("    {} \\\n", text::shell_quoted(spec + name + explained));
  }
  std::string cases;
  if (!commands.empty()) {
    std::string list;
    for (const auto* command : commands) {
      const std::string below = function_name(path + " " + command->get_name());
      list += fmt::format("{}{}\\:{}", list.empty() ? "" : " ", command->get_name(),
                          fmt::format("\"{}\"", zsh_text(command->get_description())));
      cases += fmt::format("    {}) {} ;;\n", command->get_name(), below);
      add_zsh_functions(*command, path + " " + command->get_name(), text);
    }
    body += fmt::format("    {} \\\n    '*::argument:->rest'\n",
                        text::shell_quoted("1:command:((" + list + "))"));
  } else {
    for (const auto& argument : arguments_of(app)) {
      const auto words = words_for(argument.argument);
      const std::string action = argument.argument == "program" ? "*::program:_normal"
                                 : words.empty()                ? ":" + argument.argument + ":_files"
                                                 : ":" + argument.argument + ":(" + joined(words) + ")";
      body += fmt::format("    {} \\\n", text::shell_quoted(action));
    }
    body += "    && return\n";
  }
  text += fmt::format("{}() {{\n  local curcontext=$curcontext state line\n  _arguments -C \\\n{}",
                      function_name(path), body);
  if (!cases.empty())
    text += fmt::format("  [[ $state == rest ]] || return\n  case $words[1] in\n{}  esac\n", cases);
  text += "}\n\n";
}

}  // namespace

std::string bash_completion(const CLI::App& app) {
  BashCases cases;
  add_bash_cases(app, "talweg", cases);
  return fmt::format(R"(# Completion of talweg for bash.
_talweg() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} command=talweg words='' takers='' i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    if [[ ${{COMP_WORDS[i]}} == -- ]]; then
      if declare -F _command_offset >/dev/null; then _command_offset $((i + 1)); fi
      return
    fi
    case "$command ${{COMP_WORDS[i]}}" in
{}    esac
  done
  case $command in
{}  esac
  COMPREPLY=()
  if [[ $takers == *" ${{COMP_WORDS[COMP_CWORD - 1]}} "* ]]; then return; fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}}
complete -o default -F _talweg talweg
)",
                     cases.steps, cases.words);
}

std::string zsh_completion(const CLI::App& app) {
  std::string functions;
  add_zsh_functions(app, "talweg", functions);
  return "#compdef talweg\n# Completion of talweg for zsh.\n\n" + functions + "_talweg \"$@\"\n";
}

}  // namespace talweg::cli
