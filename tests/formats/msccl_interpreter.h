// Runs MSCCL programs from their XML, step by step, on small vectors; shares no code with what writes them.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace talweg::formats {

// A chunk is what it is the sum of: how often it holds the input chunk c of GPU g, at [g * inputs + c].
using MscclChunk = std::vector<std::int64_t>;

struct MscclRun {
  std::string problem;                           // empty: it ran to its end
  std::vector<std::vector<MscclChunk>> outputs;  // by GPU
  std::size_t blocks = 0;                        // of the GPU that has most
  int channels = 0;
};

// Which block is next is drawn, so that whatever may happen first does so for some seed. Connections hold
// `slots` messages. In place, output (or input, for reduce_scatter) lies in the other buffer as NCCL has it.
MscclRun run_msccl(const std::string& xml, bool in_place, int slots, std::uint32_t seed);

}  // namespace talweg::formats
