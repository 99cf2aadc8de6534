#include "sim/trace.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/escape.h"

namespace talweg::sim {

namespace {

// Rows of a node in the picture; bars of what it sends begin at kSends.
constexpr int kReceives = 2;
constexpr int kSends = 10;

// Exact: microseconds with the picoseconds behind the point.
std::string microseconds(Picoseconds time) {
  return fmt::format("{}.{:06}", time / 1'000'000, time % 1'000'000);
}

}  // namespace

Trace::Trace(const std::string& path, const cluster::Cluster& cluster, std::uint64_t limit)
    : limit_(limit), file_(path, "trace"), rows_(cluster.nodes.size()) {
  for (std::size_t n = 0; n < cluster.nodes.size(); ++n) {
    file_.name_process(static_cast<std::int64_t>(n), cluster.nodes[n].name);
    file_.name_row(static_cast<std::int64_t>(n), kReceives, "received");
  }
}

Trace::~Trace() {
  if (file_.is_open()) file_.note_left_out(0, left_out_);
}

void Trace::close() {
  file_.note_left_out(0, left_out_);
  file_.close();
}

bool Trace::room(std::uint64_t events) {
  if (events_ + events > limit_) {
    left_out_ += events;
    return false;
  }
  events_ += events;
  return true;
}

void Trace::span(int node, const std::string& name, Picoseconds begin, Picoseconds end) {
  if (!room(2)) return;
  const std::uint64_t number = numbers_++;
  for (const auto& [phase, at] : {std::pair{'b', begin}, std::pair{'e', end}})
    file_.event(fmt::format(
        R"("ph":"{}","cat":"call","id2":{{"local":"0x{:x}"}},"pid":{},"tid":1,"ts":{},"name":"{}")", phase,
        number, node, microseconds(origin_ + at), text::json_escaped(name)));
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
  file_.event(fmt::format(
      R"("ph":"X","cat":"transfer","pid":{},"tid":{},"ts":{},"dur":{},"name":"{}","args":{{"bytes":{}}})",
      from, sender, microseconds(begin), microseconds(end - begin), text::json_escaped(name), bytes));
  file_.event(fmt::format(
      R"("ph":"X","cat":"transfer","pid":{},"tid":{},"ts":{},"dur":0.000001,"name":"{}","args":{{"bytes":{}}})",
      to, kReceives, microseconds(end), text::json_escaped(name), bytes));
  file_.event(fmt::format(R"("ph":"s","cat":"transfer","id":"0x{:x}","pid":{},"tid":{},"ts":{},"name":"to")",
                          number, from, sender, microseconds(begin)));
  file_.event(
      fmt::format(R"("ph":"f","bp":"e","cat":"transfer","id":"0x{:x}","pid":{},"tid":{},"ts":{},"name":"to")",
                  number, to, kReceives, microseconds(end)));
}

void Trace::counter(int node, const std::string& name, Picoseconds at, std::int64_t value) {
  if (!room(1)) return;
  file_.event(fmt::format(R"("ph":"C","pid":{},"ts":{},"name":"{}","args":{{"value":{}}})", node,
                          microseconds(origin_ + at), text::json_escaped(name), value));
}

void Trace::mark(int node, const std::string& name, Picoseconds at) {
  if (!room(1)) return;
  file_.event(fmt::format(R"("ph":"i","s":"p","pid":{},"tid":1,"ts":{},"name":"{}")", node,
                          microseconds(origin_ + at), text::json_escaped(name)));
}

}  // namespace talweg::sim
