// Runs of the simulator that between them use all it has, and a digest of what each came to: made once and
// stored here, so that every compiler, build type and machine can be held to it. It changes only when the
// model does.
#pragma once

#include <cstdint>
#include <ostream>
#include <vector>

namespace talweg::sim {

struct DigestRun {
  const char* name;
  std::uint64_t stored;
  std::uint64_t (*digest)();  // runs it
};

inline std::ostream& operator<<(std::ostream& out, const DigestRun& run) {
  return out << run.name;
}

const std::vector<DigestRun>& digest_runs();

}  // namespace talweg::sim
