// A forest's binary form: refused with an Error, or read, and then the same after a round trip; the verifier
// takes any.
#include "forest/forest_bytes.h"
#include "forest/verify.h"
#include "fuzz/fuzz.h"

using namespace talweg;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::may_refuse([&] {
    const forest::Forest forest = forest::forest_from_bytes(fuzz::bytes_of(data, size));
    const auto bytes = forest::to_bytes(forest);
    fuzz::require(forest::forest_from_bytes(bytes) == forest);
    fuzz::require(forest::to_bytes(forest::forest_from_bytes(bytes)) == bytes);
    if (forest.nodes <= 64) forest::verify(forest);
  });
  return 0;
}
