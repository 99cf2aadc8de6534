#include "cli/grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "talweg/types.h"

namespace talweg::cli {
namespace {

constexpr Word kWords[] = {
    // clang-format off
    {"op",         "",   "the collective; perf and info take it as their first argument, too"},
    {"reduction",  "-o", "what is done to elements: sum, prod, min, max, avg, bit_and, bit_or, bit_xor"},
    {"type",       "-d", "data type: uint8, int8, uint16, int16, uint32, int32, uint64, int64, half, bfloat16, float, double, complex64, complex128, bool"},
    {"bytes",      "-b", "sizes of the whole vector: 64K, a list 64K,1M or a range 4K..1G; K, M, G are binary"},
    {"factor",     "-f", "from size to size of a range"},
    {"root",       "-r", "root rank, where the collective has one"},
    {"algo",       "",   "the algorithm, by the name of its planner; several with commas, or all"},
    {"iters",      "-n", "timed calls"},
    {"warmup",     "-w", "calls before those"},
    {"may-lose",   "",   "of sums with bounded loss, or by a switch: the part of each rank's data that may be missing, 0 to 0.5; 0: nothing"},
    {"may-lose-sender", "", "of sums with bounded loss: the same of one rank's data on average over calls (default: no less)"},
    {"may-lose-call", "", "of sums with bounded loss: the part of what all others send a rank in a call (default: --may-lose)"},
    {"servers",    "",   "of sums with bounded loss: the ranks that sum, with commas between them (default: all)"},
    {"sparse-density", "", "of sums by a switch, or of rows: the share of blocks or rows that hold something on each rank; the others are zero"},
    {"sparse-run", "", "of sums by a switch: so many elements hold something together, or none of them does (default: those of a block)"},
    {"sparse-as", "", "of sums by a switch: what travels of sparse vectors: blocks, pairs of key and value, or all (dense)"},
    {"overlap", "", "of sums by a switch, or of rows: which blocks or rows hold something on which ranks: random, all (the same) or none (in common)"},
    {"sparse-rows", "", "of perf: sums of sparse tensors, of rows with so many elements"},
    {"switch-format", "", "of sums by a switch: how float travels: as it is (type), or as codes of 8 or 4 bits with scales (block8, block4)"},
    {"average",    "-a", "of the ranks' times: mean, min, max or rank0"},
    {"ranks",      "-n", "ranks of the group; of predict a list 2,8 or a range 2..64"},
    {"cluster",    "",   "file that describes the network (default: TALWEG_CLUSTER)"},
    {"from",       "",   "format of the file that is read (default: recognised)"},
    {"name",       "",   "of the lab (default: the file's name), or of the node that aggregates"},
    {"listen",     "",   "address and port of a switch: where it listens, or the one that is meant"},
    {"key-file",   "",   "a file of mode 600 with the secret that a switch and its workers hold"},
    {"timeout",    "-T", "how long something may take, such as 90s; a bare number is seconds"},
    {"patience",   "",   "time for all predictions; what is not done by then is left out, and named"},
    {"tag-output", "",   "prefix each line of a rank with its number"},
    {"simulate",   "",   "of lab: the simulator carries the packets of the ranks"},
    {"topology",   "",   "a generated network in place of a file, such as star:hosts=16,rate=10G"},
    {"fail",       "",   "a link or a node, and when: leaf0->spine1@1ms, spine1@1ms..2ms; again for another"},
    {"queue",      "",   "bytes that a switch keeps in front of a link; 0: no limit"},
    {"mark",       "",   "mark packets that find more than this at a switch (ECN); 0: never"},
    {"red",        "",   "least,most,probability: random early marking in place of --mark"},
    {"priorities", "",   "of a switch: 1: FIFO; up to 8: strict, a queue for each"},
    {"class-limits", "",   "bytes beyond which packets of priority 0, 1, ... are dropped; 0: --queue alone counts"},
    {"trim",       "",   "cut packets that do not fit down to their headers; not in a lab"},
    {"loss",       "",   "probability that a link loses a packet"},
    {"bit-errors", "",   "probability that a bit is wrong"},
    {"burst-loss", "",   "begins,ends: probabilities, per packet, of a burst in which all is lost; or begins,100us: for how long"},
    {"duplicate",  "",   "probability that a packet arrives twice"},
    {"damage",     "",   "probability that it arrives with flipped bits"},
    {"reorder",    "",   "share,time: so many are held up for as long as up to this"},
    {"seed",       "",   "of all that is random"},
    {"trace",      "",   "a trace for ui.perfetto.dev, into this file"},
    {"out",        "-o", "the file to write"},
    {"html",       "",   "a page of pictures, into this file"},
    {"wide",       "",   "tables with all columns and whole names, however wide; else they have at most 120 characters a line"},
    {"csv",        "",   "results as CSV, into this file; - for standard output"},
    {"json",       "-J", "results as JSON, into this file; - or no file for standard output"},
    // clang-format on
};

constexpr OldSpelling kOldSpellings[] = {
    {"convert", "--collective", "--op"},     {"convert", "--size", "--bytes"},
    {"convert", "--algorithm", "--algo"},    {"probe", "--output", "--out"},
    {"simulate", "--hosts", "--processors"},
};

bool is_reduction(const std::string& text) {
  return !parse_collective(text) && (text == "all" || parse_reduce_op(text));
}

// Of `doctor`, whose --json once had no file behind it: what it reads, not what it writes.
bool is_record(const std::string& path) {
  std::error_code ignored;
  const std::string name = std::filesystem::path(path).filename();
  return std::filesystem::is_directory(path, ignored) || name.starts_with("record-");
}

std::optional<std::string> renamed(const std::string& command, const std::string& flag,
                                   const std::string& value) {
  for (const OldSpelling& old : kOldSpellings)
    if (command == old.command && flag == old.was) return old.is;
  if (command == "perf" && flag == "--op" && is_reduction(value)) return "--reduction";
  return std::nullopt;
}

}  // namespace

std::span<const Word> grammar() {
  return kWords;
}

std::span<const OldSpelling> old_spellings() {
  return kOldSpellings;
}

Spelling respelled(std::vector<std::string> arguments) {
  Spelling result{std::move(arguments), {}};
  std::vector<std::string>& words = result.arguments;
  if (words.empty() || words[0] == "run" || words[0] == "lab")
    return result;  // what follows is somebody else's
  const std::string command = words[0];
  for (std::size_t i = 1; i < words.size() && words[i] != "--"; ++i) {
    const std::size_t equals = words[i].find('=');
    // A sweep's value names an option, too.
    if (words[i] == "--sweep" && i + 1 < words.size()) {
      const std::string swept = words[i + 1].substr(0, words[i + 1].find('='));
      if (const auto now = renamed(command, "--" + swept, "")) {
        words[i + 1].replace(0, swept.size(), now->substr(2));
        result.notes.push_back(fmt::format("--sweep {} is now --sweep {}", swept, now->substr(2)));
      }
    }
    const std::string flag = words[i].substr(0, equals);
    const std::string next = i + 1 < words.size() ? words[i + 1] : "";
    const std::string value = equals == std::string::npos ? next : words[i].substr(equals + 1);
    if (const auto now = renamed(command, flag, value)) {
      words[i] = *now + words[i].substr(flag.size());
      result.notes.push_back(fmt::format("{} is now {}", flag, *now));
    }
    if (words[i] != "--json" && words[i] != "-J") continue;
    const bool old = command == "doctor" && is_record(next);
    if (old) result.notes.push_back("--json names a file now: --json - writes to standard output");
    if (old || i + 1 == words.size() || (next.size() > 1 && next[0] == '-'))
      words.insert(words.begin() + static_cast<std::ptrdiff_t>(i) + 1, "-");
  }
  return result;
}

}  // namespace talweg::cli
