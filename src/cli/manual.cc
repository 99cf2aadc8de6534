#include "cli/manual.h"

#include <fmt/format.h>

#include "base/settings.h"
#include "study/version.h"
#include "talweg/types.h"

namespace talweg::cli {
namespace {

// For troff: a hyphen stays one that can be copied, and no line of text is taken for a request.
std::string roff(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    const bool line_begins = escaped.empty() || escaped.back() == '\n';
    if (line_begins && (c == '.' || c == '\'')) escaped += "\\&";
    if (c == '\\')
      escaped += "\\e";
    else if (c == '-')
      escaped += "\\-";
    else
      escaped += c;
  }
  return escaped;
}

std::string bold(const std::string& text) {
  return "\\fB" + roff(text) + "\\fR";
}
std::string italic(const std::string& text) {
  return "\\fI" + roff(text) + "\\fR";
}

std::string dashed(std::string path) {
  for (char& c : path)
    if (c == ' ') c = '-';
  return path;
}

std::string upper(std::string text) {
  for (char& c : text)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return text;
}

std::string entry(const Described& option) {
  std::string head;
  for (const auto& name : option.names) head += (head.empty() ? "" : ", ") + bold(name);
  if (!option.argument.empty()) head = italic(option.argument);
  if (option.takes_value) head += " " + italic("value");
  std::string body = roff(option.description);
  if (!option.default_value.empty()) body += fmt::format(" (default: {})", roff(option.default_value));
  return fmt::format(".TP\n{}\n{}\n", head, body);
}

std::string synopsis(const CLI::App& app, const std::string& path) {
  std::string line = bold(path);
  if (!options_of(app).empty()) line += " [" + italic("options") + "]";
  for (const auto& argument : arguments_of(app)) {
    const bool program = argument.argument == "program";
    const std::string word = program ? "\\-\\- " + italic("program") + " [" + italic("arguments") + "]"
                                     : italic(argument.argument);
    line += argument.required || program ? " " + word : " [" + word + "]";
  }
  if (!subcommands_of(app).empty()) line += " " + italic("command");
  return line + "\n";
}

std::string options_text(const CLI::App& app) {
  std::string text;
  for (const auto& argument : arguments_of(app)) text += entry(argument);
  for (const auto& option : options_of(app)) text += entry(option);
  return text;
}

// The footer's lines that follow "Examples:" as they are, and its other paragraphs.
std::string footer_text(const CLI::App& app) {
  std::string footer = app.get_footer();
  constexpr std::string_view kManualExamples = "\nExamples:\n";
  std::string examples, prose = footer;
  if (const auto begin = footer.find(kManualExamples); begin != std::string::npos) {
    const auto first = begin + kManualExamples.size();
    const auto end = footer.find("\n\n", first);
    examples = footer.substr(first, end == std::string::npos ? std::string::npos : end - first);
    prose = end == std::string::npos ? "" : footer.substr(end + 2);
  }
  std::string text;
  if (!prose.empty()) text += ".SH NOTES\n" + roff(prose) + "\n";
  if (!examples.empty()) text += ".SH EXAMPLES\n.nf\n" + roff(examples) + "\n.fi\n";
  return text;
}

std::string settings_text() {
  std::string text =
      ".SH ENVIRONMENT\nAn option beats the environment, which beats the file, which beats the default.\n";
  for (const auto& setting : settings()) {
    text +=
        fmt::format(".TP\n{}\n{}", bold(std::string(setting.name)), roff(std::string(setting.description)));
    if (!setting.default_value.empty())
      text += fmt::format(" (default: {})", roff(std::string(setting.default_value)));
    text += "\n";
  }
  text += ".SH FILES\n.TP\n" + italic("~/.talweg.conf") + ", " + italic("/etc/talweg.conf") + "\n";
  return text + "The same settings, one NAME=value a line; # begins a comment. " + bold("TALWEG_CONF_FILE") +
         " names another file.\n";
}

constexpr const char* kExitStatus = R"(.SH EXIT STATUS
.TP
0
done
.TP
1
it was tried and failed
.TP
2
the command line or an input file can never work
)";

}  // namespace

std::vector<Described> options_of(const CLI::App& app) {
  std::vector<Described> list;
  for (const auto* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    Described described;
    for (const auto& name : option->get_snames()) described.names.push_back("-" + name);
    for (const auto& name : option->get_lnames()) described.names.push_back("--" + name);
    if (described.names.empty()) continue;
    described.takes_value = option->get_items_expected_max() > 0;
    described.required = option->get_required();
    described.description = option->get_description();
    if (described.takes_value) described.default_value = option->get_default_str();
    list.push_back(std::move(described));
  }
  return list;
}

std::vector<Described> arguments_of(const CLI::App& app) {
  std::vector<Described> list;
  for (const auto* option : app.get_options()) {
    if (!option->get_positional() || option->get_group().empty()) continue;
    Described described;
    described.argument = option->get_name(true);
    described.required = option->get_required();
    described.description = option->get_description();
    list.push_back(std::move(described));
  }
  return list;
}

std::vector<const CLI::App*> subcommands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* sub) { return !sub->get_group().empty(); });
}

std::vector<std::string> words_for(const std::string& argument) {
  std::vector<std::string> words;
  if (argument == "collective")
    for (int op = 0; op < kCollectives; ++op) words.emplace_back(name(static_cast<Collective>(op)));
  return words;
}

std::string man_page(const CLI::App& app, const std::string& path) {
  const bool whole = path == "talweg";
  const auto commands = subcommands_of(app);
  std::string text =
      fmt::format(".TH {} 1 \"\" \"talweg {}\" \"Talweg\"\n", upper(roff(dashed(path))), study::kVersion);
  text += ".ad l\n";  // words such as leaf-spine:leaves=4,hosts=4 leave too little to spread over a line
  std::string about = app.get_description();
  if (const std::string prefix = "Talweg: "; about.rfind(prefix, 0) == 0) about = about.substr(prefix.size());
  text += fmt::format(".SH NAME\n{} \\- {}\n.SH SYNOPSIS\n", roff(dashed(path)), roff(about));
  if (whole || commands.empty()) text += synopsis(app, path);
  if (!whole)
    for (const auto* command : commands)
      text +=
          (command == commands.front() ? "" : ".br\n") + synopsis(*command, path + " " + command->get_name());
  text += ".SH OPTIONS\n" + options_text(app);
  if (!commands.empty()) text += ".SH COMMANDS\n";
  for (const auto* command : commands) {
    const std::string below = path + " " + command->get_name();
    text += whole ? fmt::format(".TP\n{}(1)\n{}\n", bold(dashed(below)), roff(command->get_description()))
                  : fmt::format(".SS {}\n{}\n{}", roff(below), roff(command->get_description()),
                                options_text(*command));
  }
  text += footer_text(app);
  text += kExitStatus;
  if (whole) return text + settings_text();
  return text + ".SH SEE ALSO\n" + bold("talweg") + "(1) has the environment variables and files\n";
}

}  // namespace talweg::cli
