#include "sim/matrix_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <optional>
#include <sstream>

#include "base/fail.h"

namespace talweg::sim {

namespace {

constexpr std::int64_t kMostNumber = std::numeric_limits<int>::max();
constexpr std::int64_t kMostBytes = std::int64_t{1}
                                    << 37;  // the smallest segments have numbers for twice that
constexpr Picoseconds kLatestStart = 1'000'000'000'000'000'000;  // 11 days; times end after 106

// The words of a file, line by line, with a complaint that names the line.
class Lines {
 public:
  Lines(const std::string& text, std::string origin) : text_(text), origin_(std::move(origin)) {}

  bool next() {
    std::string line;
    while (std::getline(text_, line)) {
      ++number_;
      std::istringstream split(line.substr(0, line.find('#')));
      words_.clear();
      for (std::string word; split >> word;) words_.push_back(word);
      at_ = 0;
      if (!words_.empty()) return true;
    }
    return false;
  }
  bool more() const { return at_ < words_.size(); }
  const std::string& word(const char* expected) {
    if (!more()) fail(fmt::format("expected {}, got the end of the line", expected));
    return words_[at_++];
  }
  std::int64_t number(const char* expected, std::int64_t least = 0, std::int64_t most = kMostNumber) {
    return parse(word(expected), expected, least, most);
  }
  std::int64_t parse(const std::string& word, const char* expected, std::int64_t least = 0,
                     std::int64_t most = kMostNumber) const {
    std::int64_t value = 0;
    const char* end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data(), end, value);
    if (error != std::errc{} || stop != end || value < least || value > most)
      fail(fmt::format("expected {} from {} to {}, got \"{}\"", expected, least, most, word));
    return value;
  }
  int line() const { return number_; }
  [[noreturn]] void fail(const std::string& text) const {
    throw_error(ErrorCode::bad_file, "{}:{}: {}", origin_, std::max(number_, 1), text);
  }

 private:
  std::istringstream text_;
  std::string origin_;
  std::vector<std::string> words_;
  std::size_t at_ = 0;
  int number_ = 0;
};

}  // namespace

Matrix parse_matrix(const std::string& text, const std::string& origin) {
  Lines in(text, origin);
  Matrix matrix;
  std::optional<std::int64_t> announced;
  std::map<std::int64_t, int> index;  // of triggers, by id
  const auto trigger = [&](std::int64_t id) {
    const auto [it, fresh] = index.emplace(id, static_cast<int>(matrix.triggers.size()));
    if (fresh) matrix.triggers.push_back(0);
    return it->second;
  };
  while (in.next()) {
    const std::string key = in.word("a key");
    if (key == "Nodes") {
      matrix.nodes = static_cast<int>(in.number("a number of hosts", 1));
    } else if (key == "Connections") {
      announced = in.number("a number of connections");
    } else if (key == "Triggers") {
      in.number("a number of triggers");
    } else if (key == "trigger") {
      if (in.word("id") != "id") in.fail("expected \"trigger id <number>\"");
      const int t = trigger(in.number("a trigger's id"));
      const std::string kind = in.word("oneshot, multishot or barrier");
      int pulls = 1;
      if (kind == "barrier") {
        if (in.more() && in.word("count") != "count") in.fail("expected \"barrier count <number>\"");
        pulls = static_cast<int>(in.number("a count", 1));
      } else if (kind != "oneshot" && kind != "multishot") {
        in.fail(fmt::format("expected oneshot, multishot or barrier, got \"{}\"", kind));
      }
      matrix.triggers[static_cast<std::size_t>(t)] = pulls;
    } else if (const std::size_t arrow = key.find("->"); arrow != std::string::npos) {
      Connection& c = matrix.connections.emplace_back();
      c.line = in.line();
      c.id = static_cast<int>(matrix.connections.size());
      c.from = static_cast<int>(in.parse(key.substr(0, arrow), "a host"));
      c.to = static_cast<int>(in.parse(key.substr(arrow + 2), "a host"));
      for (const int end : {c.from, c.to})
        if (end >= matrix.nodes) in.fail(fmt::format("there is no host {}: Nodes {}", end, matrix.nodes));
      if (c.from == c.to) in.fail(fmt::format("{} to itself", key));
      while (in.more()) {
        const std::string what = in.word("");
        if (what == "id")
          c.id = static_cast<int>(in.number("a number"));
        else if (what == "start")
          c.start = in.number("a time in ps", 0, kLatestStart);
        else if (what == "size")
          c.bytes = in.number("a number of bytes", 1, kMostBytes);
        else if (what == "trigger")
          c.trigger = trigger(in.number("a trigger's id"));
        else if (what == "send_done_trigger")
          c.send_done = trigger(in.number("a trigger's id"));
        else if (what == "recv_done_trigger")
          c.receive_done = trigger(in.number("a trigger's id"));
        else if (what == "prio")
          c.priority = static_cast<int>(in.number("a priority"));
        else
          in.fail(fmt::format("\"{}\" is not known here", what));
      }
      if (c.bytes == 0) in.fail("a connection without a size");
    } else {
      in.fail(fmt::format("expected Nodes, Connections, Triggers, trigger or <from>-><to>, got \"{}\"", key));
    }
    if (in.more()) in.fail(fmt::format("\"{}\" is too much", in.word("")));
  }
  if (announced && *announced != static_cast<std::int64_t>(matrix.connections.size()))
    in.fail(fmt::format("{} connections were announced, {} came", *announced, matrix.connections.size()));
  if (matrix.connections.empty()) in.fail("expected at least one connection, such as 0->1 size 1000000");
  for (const auto& [id, t] : index)
    if (matrix.triggers[static_cast<std::size_t>(t)] == 0)
      in.fail(fmt::format("trigger {} is not defined", id));
  return matrix;
}

}  // namespace talweg::sim
