// The runs of digests.h without GoogleTest, for builds that have none: the preset `fuzz`, whose compiler is
// another. Prints a line for each; ends with 1 if any has another digest than the stored one.
#include <fmt/format.h>

#include "sim/digests.h"

int main() {
  int status = 0;
  for (const talweg::sim::DigestRun& run : talweg::sim::digest_runs()) {
    const std::uint64_t digest = run.digest();
    fmt::print("{:<16} {:>20} stored {:>20} {}\n", run.name, digest, run.stored,
               digest == run.stored ? "same" : "DIFFERS");
    if (digest != run.stored) status = 1;
  }
  return status;
}
