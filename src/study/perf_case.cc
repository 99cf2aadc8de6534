#include "study/perf_case.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/fail.h"
#include "kernel/reduce.h"
#include "study/perf_options.h"

namespace talweg::study {

std::size_t count_for(Collective op, std::size_t bytes, DataType type, int ranks) {
  if (!moves_data(op)) return 0;
  const std::size_t elements = bytes / size_of(type);
  return has_parts(op) ? elements / static_cast<std::size_t>(ranks) : elements;
}

std::size_t least_bytes(Collective op, DataType type, int ranks) {
  if (!moves_data(op)) return 0;
  return size_of(type) * (has_parts(op) ? static_cast<std::size_t>(ranks) : 1);
}

void check_root(const char* flag, int root, Collective op, int ranks) {
  if (root != 0 && !has_root(op)) refuse("{} {}: {} has no root", flag, root, name(op));
  if (root < 0 || root >= ranks) refuse("{} {}: there are {} ranks, numbered from 0", flag, root, ranks);
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

std::string data_type_names() {
  std::string names;
  for (const DataTypeFacts& type : kDataTypeFacts)
    names += (names.empty() ? "" : ", ") + std::string(type.table_name);
  return names;
}

Collective collective_called(const std::string& name, const std::string& where) {
  if (const auto op = parse_collective(name)) return *op;
  std::string names;
  for (const CollectiveFacts& one : kCollectiveFacts)
    names += (names.empty() ? "" : &one == &kCollectiveFacts.back() ? " or " : ", ") + std::string(one.name);
  refuse("{}{} expected {}", where,
         name.empty() ? "which collective?" : fmt::format("no collective is called \"{}\":", name), names);
}

std::string table_name(ReduceOp op) {
  return op == ReduceOp::product ? "prod" : name(op);
}

std::vector<PerfCase> perf_cases(const PerfOptions& options, int ranks) {
  std::vector<PerfCase> cases;
  const int first_root = options.all_roots ? 0 : options.root;
  const int last_root = options.all_roots && has_root(options.op) ? ranks - 1 : first_root;
  for (const DataType type : options.types)
    for (const ReduceOp reduce : options.reductions) {
      if (has_reduction(options.op) && !kernel::reduce_function(type, reduce)) continue;  // of -d all, -o all
      for (int root = first_root; root <= last_root; ++root)
        for (const std::size_t size : options.sizes)
          if (size >= least_bytes(options.op, type, ranks))
            cases.push_back(
                {options.op, type, reduce, root, ranks, count_for(options.op, size, type, ranks)});
    }
  if (cases.empty()) {
    const DataType smallest =
        *std::ranges::min_element(options.types, [](auto a, auto b) { return size_of(a) < size_of(b); });
    check_holds_element(options.last_flag, options.sizes.back(), options.op, smallest, ranks);
  }
  return cases;
}

void check_root(const PerfOptions& options, int ranks) {
  if (has_root(options.op)) check_root("-r", options.root, options.op, ranks);
}

}  // namespace talweg::study
