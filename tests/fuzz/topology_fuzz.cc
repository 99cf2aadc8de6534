// Networks in one word: refused with an Error, or made, and then valid.
#include "fuzz/fuzz.h"
#include "sim/topology_text.h"

using namespace talweg;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kMostLinks = 20'000;  // of networks that are looked at: the rest would only take time
  fuzz::may_refuse([&] {
    const cluster::Cluster network = sim::parse_topology({reinterpret_cast<const char*>(data), size});
    fuzz::require(!network.links.empty());
    if (network.links.size() <= kMostLinks) fuzz::require(!cluster::find_problem(network));
  });
  return 0;
}
