// Which switches a group is to have its all_reduces summed by, as options, settings and its network say it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cluster/cluster.h"
#include "live/system.h"
#include "live/udp/udp_sender.h"
#include "live/udp/udp_socket.h"
#include "talweg/group.h"
#include "wire/aggregation.h"
#include "wire/key.h"

namespace talweg::group {

// GroupOptions::algorithm, taken apart: "switch;broadcast:chain" names a switch, and trees for broadcast.
struct NamedAlgorithms {
  std::string trees;        // as PlanChooser takes it
  bool by_switch = false;   // for all_reduce
  bool reduces_by = false;  // trees, for all_reduce
};
NamedAlgorithms take_apart(const std::string& algorithm);

// What of vectors does not travel.
enum class SwitchSparse {
  none,
  blocks,  // that are zero
  pairs,   // float that is zero; of other types blocks
  chosen,  // by vector: what is quickest, or all by trees
};
// Of TALWEG_SWITCH_FORMAT. Throws Error{invalid_argument}.
std::optional<wire::AggregationFormat> switch_format();
// Of TALWEG_SWITCH_SPARSE. Throws Error{invalid_argument}.
SwitchSparse switch_sparse();

struct SwitchWish {
  struct At {
    live::Endpoint address;
    std::string from;  // "127.0.0.1:4711 (environment)", for people
  };
  bool wanted = false;   // there is one, and no trees are named for all_reduce
  bool always = false;   // whatever it costs
  bool exact = false;    // floats come to the same bits in whatever order they come
  bool ordered = false;  // the same of those that come as they are, in the order of ranks
  std::optional<wire::AggregationFormat> floats_as;  // a coded format of float32; empty: as it is, or exact
  std::uint16_t block = 0;                           // elements; 0: as the switch finds best
  SwitchSparse sparse = SwitchSparse::none;
  std::vector<At> at;    // each sums a part of every vector
  bool of_rack = false;  // other ranks may be at others, below the same one
  // Whether what sums cost is measured, as it decides whether they go by it, or in which form.
  bool is_measured() const { return !always || sparse == SwitchSparse::chosen || rows; }
  std::optional<wire::Secret> key;  // of all
  bool encrypted = false;           // what goes to them, under that key
  bool tolerant = false;            // a part of sums may be missing (protocol::Tolerance)
  bool rows = false;                // they are of sparse tensors by rows
  live::UdpOptions socket = {};     // these three for tests
  live::UdpSenderOptions sender = {};
  live::UdpSender::SendCall send = {};
  // Of vectors that go by them. Shorter ones are not worth the votes, unless the user says that they are.
  std::int64_t least_bytes() const { return always ? 1 : 16 << 10; }
};
// How they sum elements of this type; empty: not at all.
std::optional<wire::AggregationFormat> format_of(const SwitchWish& wish, DataType type);
// Those that options or settings name, or else those of the nodes of `network` (null: it is not known), which
// TALWEG_CLUSTER describes; where these are of racks, that of this rank's. Throws Error{invalid_argument} for
// what can never work, Error{system} for a host without address.
SwitchWish find_switch_wish(const GroupOptions& options, const NamedAlgorithms& named,
                            const cluster::Cluster* network, int rank = 0);

}  // namespace talweg::group
