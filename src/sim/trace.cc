#include "sim/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "talweg/error.h"

namespace talweg::sim {

namespace {

// Rows of a node in the picture; bars of what it sends begin at kSends.
constexpr int kReceives = 2;
constexpr int kSends = 10;

// Exact: microseconds with the picoseconds behind the point.
std::string microseconds(Picoseconds time) {
  return fmt::format("{}.{:06}", time / 1'000'000, time % 1'000'000);
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

Trace::Trace(const std::string& path, const cluster::Cluster& cluster, std::uint64_t limit)
    : limit_(limit), path_(path), file_(std::fopen(path.c_str(), "we")), rows_(cluster.nodes.size()) {
  if (!file_)
    throw Error(ErrorCode::system, fmt::format("trace: cannot write {}: {}", path, std::strerror(errno)));
  for (std::size_t n = 0; n < cluster.nodes.size(); ++n) {
    line(fmt::format(R"({{"ph":"M","pid":{},"name":"process_name","args":{{"name":"{}"}}}})", n,
                     escaped(cluster.nodes[n].name)));
    line(fmt::format(R"({{"ph":"M","pid":{0},"name":"process_sort_index","args":{{"sort_index":{0}}}}})", n));
    line(fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"thread_name","args":{{"name":"received"}}}})", n,
                     kReceives));
  }
}

Trace::~Trace() {
  if (file_) end();
}

void Trace::close() {
  end();
  const bool bad = std::ferror(file_.get()) != 0;
  if (std::fclose(file_.release()) != 0 || bad)
    throw Error(ErrorCode::system, fmt::format("trace: cannot write {}", path_));
}

void Trace::end() {
  if (left_out_ > 0)
    line(fmt::format(R"({{"ph":"M","pid":0,"name":"talweg_events_left_out","args":{{"count":{}}}}})",
                     left_out_));
  std::fputs("\n]\n", file_.get());
}

bool Trace::room(std::uint64_t events) {
  if (events_ + events > limit_) {
    left_out_ += events;
    return false;
  }
  events_ += events;
  return true;
}

void Trace::line(const std::string& text) {
  std::fputs(first_ ? "[\n" : ",\n", file_.get());
  std::fputs(text.c_str(), file_.get());
  first_ = false;
}

void Trace::span(int node, const std::string& name, Picoseconds begin, Picoseconds end) {
  if (!room(2)) return;
  const std::uint64_t number = numbers_++;
  for (const auto& [phase, at] : {std::pair{'b', begin}, std::pair{'e', end}})
    line(fmt::format(
        R"({{"ph":"{}","cat":"call","id2":{{"local":"0x{:x}"}},"pid":{},"tid":1,"ts":{},"name":"{}"}})",
        phase, number, node, microseconds(origin_ + at), escaped(name)));
}

std::size_t Trace::row(int node, Picoseconds begin, Picoseconds end) {
  auto& rows = rows_[static_cast<std::size_t>(node)];
  std::size_t r = 0;
  while (r < rows.size() && rows[r] > begin) ++r;
  if (r == rows.size()) rows.push_back(0);
  rows[r] = end;
  return r;
}

// Transfers are told when they arrive, so the end of a row's last bar is the latest of the row.
void Trace::transfer(int from, int to, const std::string& name, std::int64_t bytes, Picoseconds sent,
                     Picoseconds received) {
  if (!room(4)) return;
  const std::uint64_t number = numbers_++;
  const auto begin = origin_ + sent;
  const auto end = origin_ + std::max(received, sent + 1);
  const auto sender = kSends + row(from, begin, end);
  line(fmt::format(
      R"({{"ph":"X","cat":"transfer","pid":{},"tid":{},"ts":{},"dur":{},"name":"{}","args":{{"bytes":{}}}}})",
      from, sender, microseconds(begin), microseconds(end - begin), escaped(name), bytes));
  line(fmt::format(
      R"({{"ph":"X","cat":"transfer","pid":{},"tid":{},"ts":{},"dur":0.000001,"name":"{}","args":{{"bytes":{}}}}})",
      to, kReceives, microseconds(end), escaped(name), bytes));
  line(fmt::format(R"({{"ph":"s","cat":"transfer","id":"0x{:x}","pid":{},"tid":{},"ts":{},"name":"to"}})",
                   number, from, sender, microseconds(begin)));
  line(fmt::format(
      R"({{"ph":"f","bp":"e","cat":"transfer","id":"0x{:x}","pid":{},"tid":{},"ts":{},"name":"to"}})", number,
      to, kReceives, microseconds(end)));
}

void Trace::counter(int node, const std::string& name, Picoseconds at, std::int64_t value) {
  if (!room(1)) return;
  line(fmt::format(R"({{"ph":"C","pid":{},"ts":{},"name":"{}","args":{{"value":{}}}}})", node,
                   microseconds(origin_ + at), escaped(name), value));
}

void Trace::mark(int node, const std::string& name, Picoseconds at) {
  if (!room(1)) return;
  line(fmt::format(R"({{"ph":"i","s":"p","pid":{},"tid":1,"ts":{},"name":"{}"}})", node,
                   microseconds(origin_ + at), escaped(name)));
}

}  // namespace talweg::sim
