// From a rendezvous to a connection with every rank, each opened by a handshake (wire/handshake.h).
//
// Besides ranks, aggregators join: nodes of the network that sum for the others. Ranks know their names from
// the cluster; those that are there in time get the seats behind the ranks, and the group forms without the
// others.
//
// The key of the handshake is the job's. Without one, rank 0 draws a key for this group and publishes it in
// the store, if that is a place that only members can read. Without either, ranks meet openly, and only on
// loopback: anything else is refused. When all are connected, the listeners are closed: nothing of a group
// listens.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "live/shared/segment.h"
#include "live/system.h"
#include "talweg/store.h"
#include "wire/handshake.h"

namespace talweg::live {

struct ConnectOptions {
  int rank = 0;
  int size = 1;
  std::vector<std::string> aggregators;  // that may come, the same on all ranks
  // Rank 0: where they look, under names without a prefix; null: in the store of the ranks. And why none of
  // them will be taken; empty: they may be.
  Store* aggregator_store = nullptr;
  std::string no_aggregators;
  // Rank 0: how long they are waited for when all ranks are there.
  std::chrono::milliseconds patience{2000};
  std::string
      aggregator;       // this process is the aggregator of that name; it need not know rank, size and names
  std::string prefix;   // of the keys in the store
  std::string address;  // of this rank: what it listens on and tells the others
  int streams = 1;      // TCP connections to each rank of another host
  std::string transport = "tcp";  // a word for what frames travel over: aggregators' must be the ranks'
  bool shared_memory = true;
  std::optional<wire::Secret> key;  // the job's
  bool encrypt = false;             // frames to other hosts; must be the same on all ranks
  // Further settings that must be the same on all ranks: what each is called, and a digest of its value.
  std::vector<std::pair<std::string, std::uint64_t>> alike;
  std::int64_t deadline_ns = 0;
};

// One other rank or aggregator, connected.
struct Connection {
  int rank = 0;         // the seat: ranks come first, aggregators behind them
  std::string name;     // of an aggregator; empty for a rank
  std::string host;     // "name pid 123"
  bool local = false;   // reached through shared memory
  int host_number = 0;  // hosts numbered in the order in which ranks name them: the same on all ranks
  std::vector<FileDescriptor> streams;        // Unix (one) when local, else TCP; none: it has died already
  std::vector<wire::SessionSecrets> secrets;  // by stream, where frames are encrypted; else empty
  std::optional<Segment> segment;             // the peer's, when local
  int local_index = 0;                        // the peer's number among the ranks of this host
};

struct Mesh {
  std::uint64_t job = 0;                // a number that rank 0 drew: the same on all ranks of this group
  std::vector<Connection> connections;  // by seat; this process's own entry has no streams
  int seat = 0;                         // its own
  int ranks = 1;
  std::vector<std::string> absent;  // of each aggregator that is not there: its name and why
  std::optional<Segment> segment;   // this rank's own; empty when it is alone on its host
  int local_index = 0;
  int local_ranks = 1;
  std::string security = "nobody else to talk to";  // who was let in and how, for people
  bool one_machine = false;  // all ranks run on one, be it in several network namespaces
  int cores = 1;             // of this machine
  std::string address;       // where the others reach this process
  bool encrypted = false;    // frames to other hosts
};

// Blocks until every rank is connected to every other. Throws Error: timeout (names the ranks that never
// came; an aggregator: that no group asked for it), version, invalid_argument (no key where one is needed,
// another key, encryption not everywhere; an aggregator: that its name is taken), system. When what the ranks
// publish does not fit together, every rank throws the same error.
Mesh connect_all(Store& store, const ConnectOptions& options);

}  // namespace talweg::live
