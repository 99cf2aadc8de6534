#include "study/perf_case.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernel/reduce.h"
#include "study/perf_options.h"
#include "talweg/error.h"

namespace talweg::study {

bool has_reduction(Collective op) {
  return op == Collective::all_reduce || op == Collective::reduce || op == Collective::reduce_scatter;
}

bool has_root(Collective op) {
  return op == Collective::reduce || op == Collective::broadcast || op == Collective::gather ||
         op == Collective::scatter;
}

bool has_parts(Collective op) {
  return op == Collective::reduce_scatter || op == Collective::all_gather || op == Collective::all_to_all ||
         op == Collective::gather || op == Collective::scatter;
}

bool has_in_place(Collective op) {
  return op != Collective::all_to_all && op != Collective::send_recv && op != Collective::barrier;
}

std::size_t count_for(Collective op, std::size_t bytes, DataType type, int ranks) {
  if (op == Collective::barrier) return 0;
  const std::size_t elements = bytes / size_of(type);
  return has_parts(op) ? elements / static_cast<std::size_t>(ranks) : elements;
}

std::size_t least_bytes(Collective op, DataType type, int ranks) {
  if (op == Collective::barrier) return 0;
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

std::size_t input_elements(const PerfCase& c, int rank) {
  switch (c.op) {
    case Collective::all_reduce:
    case Collective::reduce:
    case Collective::all_gather:
    case Collective::gather:
    case Collective::send_recv:
      return c.count;
    case Collective::reduce_scatter:
    case Collective::all_to_all:
      return vector_elements(c);
    case Collective::broadcast:
    case Collective::scatter:
      return rank == c.root ? vector_elements(c) : 0;
    case Collective::barrier:
      return 0;
  }
  return 0;
}

std::size_t output_elements(const PerfCase& c, int rank) {
  switch (c.op) {
    case Collective::all_reduce:
    case Collective::reduce_scatter:
    case Collective::scatter:
    case Collective::send_recv:
      return c.count;
    case Collective::all_gather:
    case Collective::all_to_all:
      return vector_elements(c);
    case Collective::reduce:
    case Collective::gather:
      return rank == c.root ? vector_elements(c) : 0;
    case Collective::broadcast:
      return rank == c.root ? 0 : c.count;
    case Collective::barrier:
      return 0;
  }
  return 0;
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

std::string table_name(DataType type) {
  switch (type) {
    case DataType::u8:
      return "uint8";
    case DataType::i8:
      return "int8";
    case DataType::u16:
      return "uint16";
    case DataType::i16:
      return "int16";
    case DataType::u32:
      return "uint32";
    case DataType::i32:
      return "int32";
    case DataType::u64:
      return "uint64";
    case DataType::i64:
      return "int64";
    case DataType::f16:
      return "half";
    case DataType::bf16:
      return "bfloat16";
    case DataType::f32:
      return "float";
    case DataType::f64:
      return "double";
    case DataType::c64:
      return "complex64";
    case DataType::c128:
      return "complex128";
    case DataType::boolean:
      return "bool";
  }
  return "?";
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
    const DataType smallest = *std::min_element(options.types.begin(), options.types.end(),
                                                [](auto a, auto b) { return size_of(a) < size_of(b); });
    check_holds_element(options.last_flag, options.sizes.back(), options.op, smallest, ranks);
  }
  return cases;
}

void check_root(const PerfOptions& options, int ranks) {
  if (has_root(options.op) && options.root >= ranks)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("-r {}: there are {} ranks, numbered from 0", options.root, ranks));
}

}  // namespace talweg::study
