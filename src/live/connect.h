// From a rendezvous to a connection with every rank.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "live/segment.h"
#include "live/system.h"
#include "talweg/store.h"

namespace talweg::live {

struct ConnectOptions {
  int rank = 0;
  int size = 1;
  std::string prefix;   // of the keys in the store
  std::string address;  // of this rank: what it listens on and tells the others
  int streams = 1;      // TCP connections to each rank of another host
  bool shared_memory = true;
  std::int64_t deadline_ns = 0;
};

// One other rank, connected.
struct Connection {
  int rank = 0;
  std::string host;     // "name pid 123"
  bool local = false;   // reached through shared memory
  int host_number = 0;  // hosts numbered in the order in which ranks name them: the same on all ranks
  std::vector<FileDescriptor> streams;  // Unix (one) when local, else TCP
  std::optional<Segment> segment;       // the peer's, when local
  int local_index = 0;                  // the peer's number among the ranks of this host
};

struct Mesh {
  std::vector<Connection> connections;  // by rank; this rank's own entry has no streams
  std::optional<Segment> segment;       // this rank's own; empty when it is alone on its host
  int local_index = 0;
  int local_ranks = 1;
};

// Blocks until every rank is connected to every other. Throws Error: timeout (names the ranks that never
// came), version, system.
Mesh connect_all(Store& store, const ConnectOptions& options);

}  // namespace talweg::live
