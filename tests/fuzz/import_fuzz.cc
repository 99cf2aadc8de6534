// Networks in the format TALWEG_FORMAT: refused with an Error, or read, valid, and the same after a round
// trip through Talweg's own form. The recogniser takes any text.
#include "formats/import.h"
#include "fuzz/fuzz.h"

using namespace talweg;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kMostLinks =
      1000;  // of networks that are written and read: the rest would only take time
  const std::string text(reinterpret_cast<const char*>(data), size);
  fuzz::may_refuse([&] { formats::recognise(text, "f"); });
  fuzz::may_refuse([&] {
    const cluster::Cluster cluster = formats::import_text(formats::parse_format(TALWEG_FORMAT), text, "f");
    fuzz::require(!cluster::find_problem(cluster));
    if (cluster.links.size() <= kMostLinks)
      fuzz::require(cluster::parse_cluster(to_yaml(cluster), "again.yaml") == cluster);
  });
  return 0;
}
