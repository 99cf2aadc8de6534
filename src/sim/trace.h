// Trace: what moved in a simulation, as a file in Chrome's trace format that ui.perfetto.dev opens. One
// process for each node: its calls, a bar for each frame or flow that it sent, from when it was sent until it
// arrived, and from there an arrow to whoever received it. Written as it happens; times are virtual.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cluster/cluster.h"
#include "sim/time.h"
#include "text/trace_writer.h"

namespace talweg::sim {

class Trace {
 public:
  static constexpr std::uint64_t kMostEvents = 2'000'000;  // some 400 MB; the rest is only counted

  // Throws Error{system}.
  Trace(const std::string& path, const cluster::Cluster& cluster, std::uint64_t limit = kMostEvents);
  ~Trace();

  // Nothing may follow. Throws Error{system} when not all could be written.
  void close();

  // Times of what follows begin here: runs one behind the other in one file.
  void begin_run(Picoseconds at) { origin_ = at; }
  // A node was busy with something that may overlap with other things: a call, a flow.
  void span(int node, const std::string& name, Picoseconds begin, Picoseconds end);
  void transfer(int from, int to, const std::string& name, std::int64_t bytes, Picoseconds sent,
                Picoseconds received);
  // A value of a node that changes over time.
  void counter(int node, const std::string& name, Picoseconds at, std::int64_t value);
  void mark(int node, const std::string& name, Picoseconds at);

 private:
  bool room(std::uint64_t events);
  // The first row of a node on which nothing else happens then: bars on a row may not overlap.
  std::size_t row(int node, Picoseconds begin, Picoseconds end);

  const std::uint64_t limit_;
  text::TraceWriter file_;
  std::vector<std::vector<Picoseconds>> rows_;  // by node and row: until when it is taken
  Picoseconds origin_ = 0;
  std::uint64_t events_ = 0;
  std::uint64_t left_out_ = 0;
  std::uint64_t numbers_ = 0;
};

}  // namespace talweg::sim
