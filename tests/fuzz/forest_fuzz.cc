// Forest files: refused with an Error, or read, and then the same after a round trip; the verifier takes any.
#include "forest/forest.h"
#include "forest/verify.h"
#include "fuzz/fuzz.h"

using namespace talweg;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::may_refuse([&] {
    const std::string text(reinterpret_cast<const char*>(data), size);
    const forest::Forest forest = forest::parse_forest(text, "f.yaml");
    fuzz::require(forest::parse_forest(to_yaml(forest), "again.yaml") == forest);
    forest::verify(forest);
  });
  return 0;
}
