// Connection matrices of htsim: refused with an Error, or read, and then every number is one that a
// simulation can use.
#include "fuzz/fuzz.h"
#include "sim/matrix_file.h"

using namespace talweg;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::may_refuse([&] {
    const sim::Matrix matrix = sim::parse_matrix({reinterpret_cast<const char*>(data), size}, "f.cm");
    const auto is_trigger = [&](int t) { return t >= -1 && t < std::ssize(matrix.triggers); };
    for (const sim::Connection& c : matrix.connections) {
      fuzz::require(c.from >= 0 && c.from < matrix.nodes && c.to >= 0 && c.to < matrix.nodes &&
                    c.from != c.to);
      fuzz::require(c.start >= 0 && c.bytes > 0 && c.priority >= 0);  // a run takes those above 7 as 7
      fuzz::require(is_trigger(c.trigger) && is_trigger(c.send_done) && is_trigger(c.receive_done));
    }
    for (const int pulls : matrix.triggers) fuzz::require(pulls > 0);
  });
  return 0;
}
