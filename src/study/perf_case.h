// One line of `talweg perf`: which collective, how much, and the arithmetic of nccl-tests around it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/collectives.h"
#include "base/data_types.h"
#include "talweg/types.h"

namespace talweg::study {

struct PerfCase {
  Collective op = Collective::all_reduce;
  DataType type = DataType::f32;
  ReduceOp reduce = ReduceOp::sum;
  int root = 0;
  int ranks = 1;
  std::size_t count =
      0;  // elements: of one rank's part where the vector is made of parts, else of the vector
};

// In base/collectives.h: has_parts(op), where `count` is of each rank's part and the vector has `count *
// ranks`.
constexpr bool has_reduction(Collective op) {
  return facts(op).reduces;
}
constexpr bool has_root(Collective op) {
  return facts(op).rooted;
}
// The library can be asked to work in place (see talweg/group.h).
constexpr bool has_in_place(Collective op) {
  return moves_data(op) && facts(op).counts != Counts::per_pair && facts(op).output != Extent::peer;
}

// Elements (of a part) that come closest to `bytes` from below.
std::size_t count_for(Collective op, std::size_t bytes, DataType type, int ranks);
// Of one element, of each rank's part where there are parts: what a size must hold. Sizes above are rounded
// down to whole elements, as nccl-tests do; a range of sizes begins with the first of them that is large
// enough.
std::size_t least_bytes(Collective op, DataType type, int ranks);
// Throws Error{invalid_argument} that names the flag for a rank that there is not, and for any but 0 of a
// collective that has no root.
void check_root(const char* flag, int root, Collective op, int ranks);
// Throws Error{invalid_argument} that names the flag for a size below that. plan, perf, simulate and convert
// ask here.
void check_holds_element(const char* flag, std::size_t bytes, Collective op, DataType type, int ranks);
std::size_t vector_elements(const PerfCase& c);
std::size_t vector_bytes(const PerfCase& c);  // what the size column shows

// What one rank's own buffers hold, in elements; 0 where it has none. A broadcast's root has only an input.
std::size_t input_elements(const PerfCase& c, int rank);
std::size_t output_elements(const PerfCase& c, int rank);

// first, first + step, ... or first, first * factor, ... (factor > 1 wins) up to and including last.
std::vector<std::size_t> sizes_to_scan(std::size_t first, std::size_t last, std::size_t step,
                                       std::size_t factor);

// As nccl-tests spells them in its table: "float", "bfloat16", "prod".
inline std::string table_name(DataType type) {
  return facts(type).table_name;
}
std::string data_type_names();  // all, with commas between them
// Throws Error{invalid_argument} that says which there are, behind `where`, such as "--op: ".
Collective collective_called(const std::string& name, const std::string& where = "");
std::string table_name(ReduceOp op);

}  // namespace talweg::study
