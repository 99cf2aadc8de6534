#include "cli/grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>

#include "cli/app.h"

namespace talweg::cli {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Words = std::vector<std::string>;

// CLI11's own, and a word's opposite.
const std::set<std::string> kOthers{"help", "no-tag-output"};

const Word* word_called(const std::string& name) {
  const auto found =
      std::find_if(grammar().begin(), grammar().end(), [&](const Word& w) { return w.name == name; });
  return found == grammar().end() ? nullptr : &*found;
}

void collect(const CLI::App& app, std::map<std::string, std::vector<const CLI::Option*>>& options) {
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) options[name].push_back(option);
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    collect(*sub, options);
}

TEST(Grammar, AWordOfSeveralCommandsIsInTheTable) {
  Action action;
  std::map<std::string, std::vector<const CLI::Option*>> options;
  const auto app = make_app(&action);
  collect(*app, options);
  for (const auto& [name, uses] : options)
    if (uses.size() > 1 && !kOthers.contains(name)) {
      EXPECT_NE(word_called(name), nullptr) << name;
    }
  for (const Word& word : grammar())
    EXPECT_TRUE(options.contains(word.name)) << word.name << " is in no command";
}

TEST(Grammar, ALetterStandsForItsOwnWord) {
  Action action;
  std::map<std::string, std::vector<const CLI::Option*>> options;
  const auto app = make_app(&action);
  collect(*app, options);
  for (const auto& [name, uses] : options) {
    const Word* word = word_called(name);
    if (word == nullptr) continue;
    for (const CLI::Option* option : uses)
      for (const std::string& letter : option->get_snames()) EXPECT_EQ("-" + letter, word->letters) << name;
  }
}

// The lines of the document's tables below their heads, a table after the other.
std::vector<Words> documented_tables() {
  std::ifstream file(TALWEG_SOURCE_DIR "/docs/commands.md");
  std::vector<Words> tables;
  bool in_table = false;
  for (std::string line; std::getline(file, line);) {
    const bool row = line.starts_with("|");
    if (row && !in_table) tables.emplace_back();
    if (row) tables.back().push_back(line);
    in_table = row;
  }
  for (Words& table : tables) table.erase(table.begin(), table.begin() + 2);
  return tables;
}

TEST(Grammar, TheDocumentHasThisTableAndThatOfOldSpellings) {
  Words words;
  for (const Word& word : grammar()) {
    const std::string letters = *word.letters == '\0' ? "" : ", `" + std::string(word.letters) + "`";
    words.push_back("| `--" + std::string(word.name) + "`" + letters + " | " + word.meaning + " |");
  }
  Words spellings;
  std::string command, was, is;
  const auto end_row = [&] {
    if (!command.empty()) spellings.push_back("| `" + command + "` | " + was + " | " + is + " |");
  };
  for (const OldSpelling& old : old_spellings()) {
    if (command != old.command) {
      end_row();
      command = old.command;
      was = is = "";
    }
    for (auto& [list, flag] : {std::pair(&was, old.was), std::pair(&is, old.is)})
      *list += (list->empty() ? "`" : ", `") + std::string(flag) + "`";
  }
  end_row();
  // That depend on the value; tests below.
  spellings.push_back("| `perf` | `--op` and a reduction | `--reduction` |");
  spellings.push_back("| `doctor` | `--json` in front of a record or a folder | `--json -` |");
  EXPECT_THAT(documented_tables(), ElementsAre(words, spellings));
}

TEST(Grammar, OldSpellingsAreUnderstoodAndTold) {
  const Spelling convert = respelled(
      {"convert", "a.xml", "b.xml", "--collective", "all_reduce", "--size=64M", "--algorithm", "ring"});
  EXPECT_THAT(convert.arguments, ElementsAre("convert", "a.xml", "b.xml", "--op", "all_reduce", "--bytes=64M",
                                             "--algo", "ring"));
  EXPECT_THAT(convert.notes,
              ElementsAre("--collective is now --op", "--size is now --bytes", "--algorithm is now --algo"));
  const Spelling swept = respelled({"simulate", "--hosts", "tcp", "--sweep", "hosts=ideal,tcp"});
  EXPECT_THAT(swept.arguments,
              ElementsAre("simulate", "--processors", "tcp", "--sweep", "processors=ideal,tcp"));
  EXPECT_THAT(swept.notes,
              ElementsAre("--hosts is now --processors", "--sweep hosts is now --sweep processors"));
  EXPECT_THAT(respelled({"probe", "--output", "c.yaml"}).arguments, ElementsAre("probe", "--out", "c.yaml"));
}

TEST(Grammar, OfPerfOpWasTheReductionAndIsTheCollective) {
  const Spelling old = respelled({"perf", "all_reduce", "--op", "max"});
  EXPECT_THAT(old.arguments, ElementsAre("perf", "all_reduce", "--reduction", "max"));
  EXPECT_THAT(old.notes, ElementsAre("--op is now --reduction"));
  EXPECT_THAT(respelled({"perf", "all_reduce", "--op=all"}).arguments,
              ElementsAre("perf", "all_reduce", "--reduction=all"));
  const Spelling now = respelled({"perf", "--op", "broadcast", "-o", "max"});
  EXPECT_THAT(now.arguments, ElementsAre("perf", "--op", "broadcast", "-o", "max"));
  EXPECT_THAT(now.notes, IsEmpty());
}

TEST(Grammar, JsonWithoutAFileIsStandardOutput) {
  EXPECT_THAT(respelled({"plan", "c.yaml", "--json"}).arguments,
              ElementsAre("plan", "c.yaml", "--json", "-"));
  EXPECT_THAT(respelled({"info", "-J", "--cluster", "c.yaml"}).arguments,
              ElementsAre("info", "-J", "-", "--cluster", "c.yaml"));
  EXPECT_THAT(respelled({"plan", "c.yaml", "--json", "-"}).arguments,
              ElementsAre("plan", "c.yaml", "--json", "-"));
  EXPECT_THAT(respelled({"plan", "c.yaml", "--json", "f"}).arguments,
              ElementsAre("plan", "c.yaml", "--json", "f"));
}

TEST(Grammar, DoctorsRecordsAreNeverWhatItsJsonIsWrittenInto) {
  const Spelling old = respelled({"doctor", "--json", "/tmp", "x"});
  EXPECT_THAT(old.arguments, ElementsAre("doctor", "--json", "-", "/tmp", "x"));
  EXPECT_EQ(old.notes.size(), 1u);
  EXPECT_THAT(respelled({"doctor", "--json", "a/record-0.json"}).arguments,
              ElementsAre("doctor", "--json", "-", "a/record-0.json"));
  EXPECT_THAT(respelled({"doctor", "--json", "findings.json", "/tmp"}).arguments,
              ElementsAre("doctor", "--json", "findings.json", "/tmp"));
}

TEST(Grammar, WhatFollowsRunAndTwoDashesIsNotTouched) {
  const Words run{"run", "-n", "2", "--", "prog", "--size", "3", "--json"};
  EXPECT_EQ(respelled(run).arguments, run);
  const Words lab{"lab", "run", "c.yaml", "--", "talweg", "perf", "all_reduce", "--json"};
  EXPECT_EQ(respelled(lab).arguments, lab);
}

}  // namespace
}  // namespace talweg::cli
