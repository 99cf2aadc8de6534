#include "cli/perf_case.h"

#include <fmt/format.h>

#include "talweg/error.h"

namespace talweg::cli {

std::size_t count_for(Collective op, std::size_t bytes, DataType type, int ranks) {
  if (!moves_data(op)) return 0;
  const std::size_t elements = bytes / size_of(type);
  return has_parts(op) ? elements / static_cast<std::size_t>(ranks) : elements;
}

std::size_t least_bytes(Collective op, DataType type, int ranks) {
  if (!moves_data(op)) return 0;
  return size_of(type) * (has_parts(op) ? static_cast<std::size_t>(ranks) : 1);
}

void check_holds_element(const char* flag, std::size_t bytes, Collective op, DataType type, int ranks) {
  const std::size_t least = least_bytes(op, type, ranks);
  if (bytes >= least) return;
  std::string text = fmt::format("{}: {} B is less than one element of {} ({} B)", flag, bytes,
                                 table_name(type), size_of(type));
  if (least > size_of(type)) text += fmt::format(" for each of {} ranks, {} B", ranks, least);
  throw Error(ErrorCode::invalid_argument, text);
}

std::size_t vector_elements(const PerfCase& c) {
  return has_parts(c.op) ? c.count * static_cast<std::size_t>(c.ranks) : c.count;
}

std::size_t vector_bytes(const PerfCase& c) {
  return vector_elements(c) * size_of(c.type);
}

namespace {

std::size_t elements_in(const PerfCase& c, Extent extent, int rank) {
  switch (extent) {
    case Extent::whole:
    case Extent::blocks:
      return vector_elements(c);
    case Extent::root:  // of messages, each rank has one to send
      return rank == c.root || !has_root(c.op) ? vector_elements(c) : 0;
    case Extent::peer:
    case Extent::part:
      break;
  }
  return c.count;
}

}  // namespace

std::size_t input_elements(const PerfCase& c, int rank) {
  return elements_in(c, facts(c.op).input, rank);
}

std::size_t output_elements(const PerfCase& c, int rank) {
  if (facts(c.op).one_buffer && rank == c.root) return 0;
  return elements_in(c, facts(c.op).output, rank);
}

std::vector<std::size_t> sizes_to_scan(std::size_t first, std::size_t last, std::size_t step,
                                       std::size_t factor) {
  std::vector<std::size_t> sizes;
  for (std::size_t size = first; size <= last;) {
    sizes.push_back(size);
    const std::size_t next = factor > 1 ? size * factor : size + step;
    if (next <= size) break;  // 0 * factor, or past the largest number
    size = next;
  }
  return sizes;
}

std::string table_name(ReduceOp op) {
  return op == ReduceOp::product ? "prod" : name(op);
}

}  // namespace talweg::cli
