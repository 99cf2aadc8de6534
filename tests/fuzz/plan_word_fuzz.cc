// What rank 0 says of plans: refused with an Error, or read, and then the same after a round trip.
#include "fuzz/fuzz.h"
#include "steer/plan_word.h"

using namespace talweg;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::may_refuse([&] {
    const auto bytes = to_bytes(steer::word_from_bytes(fuzz::bytes_of(data, size)));
    fuzz::require(to_bytes(steer::word_from_bytes(bytes)) == bytes);
  });
  return 0;
}
