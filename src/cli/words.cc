#include "cli/words.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "base/fail.h"
#include "cli/grammar.h"

namespace talweg::cli {
namespace {

// Letters to change, to leave out or to put in.
std::size_t distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  for (std::size_t j = 0; j <= to.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= from.size(); ++i) {
    std::size_t corner = row[0]++;
    for (std::size_t j = 1; j <= to.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, corner + (from[i - 1] == to[j - 1] ? 0 : 1)});
      corner = above;
    }
  }
  return row.back();
}

// ": did you mean NAME?", with the one of `names` that differs least from `word`, or begins nearly so; empty
// if none is near.
std::string nearest(const std::string& word, const std::vector<std::string>& names) {
  const auto bare = [](std::string_view name) {
    return name.substr(std::min(name.find_first_not_of('-'), name.size()));
  };
  const std::string_view meant = bare(word);
  std::size_t least = std::min(meant.size(), std::max<std::size_t>(2, meant.size() / 3 + 1));
  std::string found;
  for (const std::string& name : names) {
    const std::string_view other = bare(name);
    const std::size_t d =
        std::min(distance(meant, other), 1 + distance(meant, other.substr(0, meant.size())));
    if (d < least) found = name, least = d;
  }
  return found.empty() ? found : ": did you mean " + found + "?";
}

// Those that --help lists.
std::vector<std::string> options_of_command(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

[[noreturn]] void refuse_option(const CLI::App& app, const std::string& name) {
  std::string hint;
  for (const OldSpelling& old : old_spellings())
    if (name == old.was && app.get_option_no_throw(old.is)) hint = fmt::format(": did you mean {}?", old.is);
  if (hint.empty()) hint = nearest(name, options_of_command(app));
  refuse("no option is called \"{}\"{} (see --help)", name, hint);
}

const CLI::App& subcommand(const CLI::App& app, const std::vector<const CLI::App*>& all,
                           const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* sub : all) {
    if (sub->get_name() == word) return *sub;
    names.push_back(sub->get_name());
  }
  std::string hint = nearest(word, names);
  if (hint.empty()) hint = fmt::format(": expected one of {}", fmt::join(names, ", "));
  refuse("no {} is called \"{}\"{}", app.get_parent() ? "command of " + app.get_name() : "subcommand", word,
         hint);
}

std::vector<const CLI::App*> subcommands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

}  // namespace

std::vector<std::string> checked_words(const CLI::App& program, std::vector<std::string> words) {
  const CLI::App* app = &program;
  int arguments = 0;
  for (std::size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    const std::string& word = words[i];
    if (word.size() > 1 && word[0] == '-') {
      // "-n 4" and "--ranks 4" take a word more; "-n4", "--ranks=4" and flags do not.
      const bool whole = word[1] == '-';
      const std::string name = word.substr(0, whole ? word.find('=') : 2);
      const CLI::Option* option = app->get_option_no_throw(name);
      if (option == nullptr) refuse_option(*app, whole ? name : word);
      const bool takes_next =
          option->get_items_expected_min() > 0 ||
          (option->get_items_expected_max() > 0 && i + 1 < words.size() && words[i + 1][0] != '-');
      if (word.size() == name.size() && takes_next) ++i;
    } else if (const auto below = subcommands(*app); !below.empty()) {
      app = &subcommand(*app, below, word);
    } else {
      const auto takes = app->get_options([](const CLI::Option* o) { return o->get_positional(); });
      int room = 0;
      for (const CLI::Option* option : takes) room += std::min(option->get_items_expected_max(), 1 << 20);
      ++arguments;
      if (arguments > room) refuse("not expected: \"{}\" (see --help)", word);
      if (arguments == room && app->get_prefix_command()) {
        words.insert(words.begin() + static_cast<std::ptrdiff_t>(i), "--");
        break;
      }
    }
  }
  return words;
}

std::string path_of(const CLI::App& program, const std::vector<std::string>& words) {
  std::string path = program.get_name();
  const CLI::App* app = &program;
  for (const std::string& word : words) {
    const auto below = subcommands(*app);
    const auto found = std::ranges::find(below, word, [](const CLI::App* sub) { return sub->get_name(); });
    if (found == below.end()) break;
    app = *found;
    path += " " + word;
  }
  return path;
}

}  // namespace talweg::cli
