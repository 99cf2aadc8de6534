// MSCCL programs: a forest as the steps of thread blocks that MSCCL's and RCCL's interpreters run on GPUs.
//
//   const MscclProgram program = to_msccl(forest);   // lowered and checked
//   write("allreduce.xml", to_xml(program));         // for MSCCL_XML_FILES
//
// The vector is cut into equal chunks. A thread block has one peer that it sends to and one that it receives
// from, both over one channel, and does its steps one after the other; a step may wait for a step of another
// block of its GPU. Reduction goes up a tree and broadcast down in chains: a node passes on what comes from
// its deepest child as it comes (receive-reduce-send), and so does the root (receive-reduce-copy-send); what
// comes from its other children is added to a buffer before. There is no barrier between the two ways.
#pragma once

#include <string>
#include <vector>

#include "forest/forest.h"

namespace talweg::formats {

using forest::Forest;

// A place in one of a GPU's buffers, in chunks.
struct MscclPlace {
  char buffer = 'i';  // i: input, o: output, s: scratch
  int offset = 0;
};

struct MscclStep {
  std::string type;  // s, r, rcs, rrs, rrc, rrcs or cpy: r receive, r reduce, c copy, s send, in this order
  MscclPlace source;
  MscclPlace target;
  int count = 1;           // chunks
  int awaited_block = -1;  // of this GPU, whose step must be done before
  int awaited_step = -1;
  bool is_awaited = false;  // by a step of another block
};

struct MscclThreadBlock {
  int send = -1;  // peer, -1: none
  int receive = -1;
  int channel = 0;
  std::vector<MscclStep> steps;
};

struct MscclGpu {
  int input_chunks = 0;
  int output_chunks = 0;
  int scratch_chunks = 0;
  std::vector<MscclThreadBlock> blocks;
};

struct MscclProgram {
  std::string name;
  std::string collective;  // in MSCCL's words
  int chunks = 0;          // of the longest buffer: its nchunksperloop
  int channels = 0;
  std::vector<MscclGpu> gpus;
};

// What the interpreters have room for (msccl.h, and the multiprocessors of an A100 for blocks).
struct MscclLimits {
  int channels = 32;
  int blocks = 108;  // of one GPU
  int steps = 256;   // of one block
  int count = 71;    // chunks of one step
  int chunks = 256;  // into which a vector is cut, at most; shares of trees are rounded to whole ones
};

// all_reduce, all_gather, reduce_scatter, broadcast and reduce. Works in place and out of place. Throws
// Error{unsupported} that names what MSCCL cannot express: another collective, trees through nodes that are
// no rank, trees that share sums, counts that differ by rank, or more of something than the limits allow.
MscclProgram to_msccl(const Forest& forest, const MscclLimits& limits = {});

// Throws Error{unsupported} unless the program can be run to its end: everything within the limits and the
// buffers, one block for each way of a connection, as many receives as sends, waits only for what exists, and
// no deadlock even if every connection holds a single message.
void check_executable(const MscclProgram& program, const MscclLimits& limits = {});

std::string to_xml(const MscclProgram& program);

}  // namespace talweg::formats
