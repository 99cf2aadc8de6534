// Connection matrices of htsim (Broadcom/csg-htsim): .cm. Its networks, .topo, are src/formats' to read.
// Reading throws Error{bad_file} with file, line and what was expected.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/packet.h"
#include "sim/time.h"

namespace talweg::sim {

// "Nodes 16", "Connections 2", and for each "0->4 id 1 start 0 size 2000000"; times are in picoseconds. A
// connection may name a `trigger` in place of a start, and triggers that it pulls when its last byte has been
// acknowledged (send_done_trigger) or has arrived (recv_done_trigger). "trigger id 1 oneshot", "multishot",
// or "barrier count 4": the last to be pulled counts.
struct Connection {
  int from = 0;
  int to = 0;
  int id = 0;
  Picoseconds start = 0;
  std::int64_t bytes = 0;
  int trigger = -1;  // an index into Matrix::triggers, as the two below
  int send_done = -1;
  int receive_done = -1;
  int priority = 0;
  std::uint32_t route = kNoRoute;  // of its segments; files do not say
  int line = 0;
};
struct Matrix {
  int nodes = 0;
  std::vector<Connection> connections;
  std::vector<int> triggers;  // pulls that each needs
};
Matrix parse_matrix(const std::string& text, const std::string& origin);

}  // namespace talweg::sim
