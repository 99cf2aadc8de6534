// Forest: every collective is a set of trees.
//
// A collective moves one *logical vector* of elements:
//   all_reduce, reduce, broadcast   the vector that every rank holds whole; `counts` = {n}
//   reduce_scatter                  the concatenation of what each rank receives; `counts` = {n_0 .. n_N-1}
//   all_gather, gather, scatter     the concatenation of every rank's part; `counts` = {n_0 .. n_N-1}
//   all_to_all                      blocks (source, destination), source-major; `counts` = N*N block sizes
//   send_recv                       the message; `counts` = {n}; root = sender, `peer` = receiver
//   barrier                         nothing; `counts` = {0}
// A tree takes one slice of it, sums what its contributors hold along `up` toward the root, and carries the
// result along `down` from the root to its receivers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "talweg/types.h"

namespace talweg::forest {

// Nodes 0 .. ranks-1 are the ranks; higher numbers are nodes that only forward or sum (aggregators,
// switches).
using NodeId = std::int32_t;

// What is asked for. `counts` is laid out as above, in elements. In all_to_all, gather and scatter a rank may
// not know the counts of pairs it takes no part in: it passes 0 there; tree numbers do not depend on counts.
struct Request {
  Collective op = Collective::all_reduce;
  int ranks = 1;
  NodeId root = 0;  // reduce, broadcast, gather, scatter: the root; send_recv: the sender
  NodeId peer = 0;  // send_recv: the receiver
  std::vector<std::int64_t> counts;
  std::int64_t element_size = 1;  // bytes
  bool operator==(const Request&) const = default;
};

// Throws Error{invalid_argument} unless ranks >= 1, root and peer are ranks, element_size >= 1, and counts
// are as many as the operation wants, none negative, none that adds up beyond 2^62 bytes (barrier: exactly
// one, 0).
void validate(const Request& request);

// A request for a logical vector of `elements`, spread evenly where ranks have parts (all_to_all: of one
// rank's row). send_recv: from rank 0 to rank 1.
Request even_request(Collective op, int ranks, NodeId root, std::int64_t elements, std::int64_t element_size);

struct Slice {
  std::int64_t offset = 0;  // elements into the logical vector
  std::int64_t count = 0;   // elements; 0 is allowed (the tree then only synchronises)
  bool operator==(const Slice&) const = default;
};

struct Edge {
  NodeId child = 0;
  NodeId parent = 0;
  bool operator==(const Edge&) const = default;
};

struct Tree {
  Slice slice;
  NodeId root = 0;
  std::vector<NodeId> contributors;  // sorted; each adds its slice exactly once
  std::vector<NodeId> receivers;     // sorted; each gets the sum exactly once
  std::vector<Edge> up;              // data flows child -> parent; spans the contributors and the root
  std::vector<Edge> down;            // data flows parent -> child; spans the root and the receivers
  std::int64_t chunk = 0;            // elements moved at a time, > 0; the unit of pipelining
  bool operator==(const Tree&) const = default;
};

struct Forest {
  std::string planner;  // who made it, such as "ring"
  Request request;
  int nodes = 0;  // ranks plus inner nodes
  std::vector<Tree> trees;
  // Trees over the same slice share their sums: one that several of them send over the same edge travels
  // once. SharedSums says what that takes of the trees.
  bool sums_once = false;
  bool operator==(const Forest&) const = default;
};

// The nodes that are not ranks and that its trees pass, ascending.
std::vector<NodeId> aggregators_of(const Forest& forest);

// Number of chunks of a tree: ceil(count / chunk), and 1 for an empty slice (one empty chunk synchronises).
std::int64_t chunk_count(const Tree& tree);

// Where a slice of the logical vector lies in one rank's own buffers, in elements; -1 when the rank holds
// none of it. Input: what the rank contributes. Output: what it receives. For counts unknown to `rank` see
// Request. Buffers are dense: for example rank r's all_gather input is its part alone, its output the whole
// vector; its all_to_all input is row r, its output column r, source by source.
std::int64_t input_offset(const Request& request, NodeId rank, const Slice& slice);
std::int64_t output_offset(const Request& request, NodeId rank, const Slice& slice);
std::int64_t input_count(const Request& request, NodeId rank);
std::int64_t output_count(const Request& request, NodeId rank);

// File form, YAML or JSON:
//   planner: ring
//   nodes: 4
//   sums_once: false                                                                    # may be left out
//   request: {op: all_reduce, ranks: 4, root: 0, peer: 0, counts: [1024], element_size: 4}
//   trees:
//     - {slice: [0, 256], root: 0, chunk: 256, contributors: [0, 1, 2, 3], receivers: [0, 1, 2, 3],
//        up: [[1, 2], [2, 3], [3, 0]], down: [[1, 0], [2, 1], [3, 2]]}        # edges: [child, parent]
// Reading throws Error{bad_file} with file, line and what was expected. It holds the text to the types and
// the request to validate(); whether the trees compute anything is verify()'s to say.
std::string to_yaml(const Forest& forest);
std::string to_json(const Forest& forest);
Forest parse_forest(const std::string& text, const std::string& origin);
Forest load_forest(const std::string& path);

}  // namespace talweg::forest
