// The collectives of TalwegBackend. Each method checks what this rank alone can check, says what is read and
// what is written as runs of elements, and leaves the rest to `run`.
#include <c10/util/Exception.h>

#include <utility>

#include "backend.h"
#include "types.h"

namespace talweg::torch_face {
namespace {

using Tensors = TalwegBackend::Tensors;

FlatPtr flat(const char* operation, Tensors tensors, bool own_copy = false) {
  return std::make_shared<Flat>(operation, std::move(tensors), own_copy);
}

// The input of a reduction: with PREMUL_SUM already multiplied by the factor, in a copy.
FlatPtr reduction_input(const char* operation, Tensors tensors, const c10d::ReduceOp& op) {
  const bool scaled = op == c10d::ReduceOp::PREMUL_SUM;
  auto input = flat(operation, std::move(tensors), scaled);
  if (scaled) input->scale_on_load(op);
  input->set_summed();
  return input;
}

// Of the only tensor that there is.
void check_root_tensor(const char* operation, int64_t root_tensor) {
  check_value(root_tensor == 0, "talweg: ", operation, " takes one tensor per rank, got root tensor ",
              root_tensor);
}

const Tensors& the_only_list(const char* operation, const std::vector<Tensors>& lists, int size) {
  check_value(lists.size() == 1, "talweg: ", operation, " takes one list of tensors per rank, got ",
              lists.size());
  check_value(static_cast<int>(lists.front().size()) == size, "talweg: ", operation, " needs a list of ",
              size, " tensors, one per rank, got ", lists.front().size());
  return lists.front();
}

void check_same_type(const char* operation, const Flat& in, const Flat& out) {
  check_type(in.type() == out.type(), "talweg: ", operation, " needs input and output of one type, not ",
             in.type(), " and ", out.type());
}

void check_count(const char* operation, const char* what, std::size_t have, std::size_t want) {
  check_value(have == want, "talweg: ", operation, " needs ", want, " elements in its ", what, ", got ",
              have);
}

// Elements for each rank when a tensor is split along its first dimension: as `splits` says, or evenly.
std::vector<std::size_t> split_counts(const char* what, const at::Tensor& tensor,
                                      const std::vector<int64_t>& splits, int size) {
  check_dense_on_cpu("all_to_all_single", tensor);
  const int64_t rows = tensor.dim() == 0 ? tensor.numel() : tensor.size(0);
  const int64_t row = rows == 0 ? 0 : tensor.numel() / rows;
  if (splits.empty()) {
    check_value(rows % size == 0, "talweg: all_to_all_single cannot split the ", rows, " rows of its ", what,
                " evenly over ", size, " ranks");
    return std::vector<std::size_t>(size, static_cast<std::size_t>(rows / size * row));
  }
  check_value(static_cast<int>(splits.size()) == size, "talweg: all_to_all_single needs ", size,
              " splits of its ", what, ", got ", splits.size());
  std::vector<std::size_t> counts;
  int64_t sum = 0;
  for (const int64_t split : splits) {
    check_value(split >= 0, "talweg: all_to_all_single was given the negative split ", split);
    sum += split;
    counts.push_back(static_cast<std::size_t>(split * row));
  }
  check_value(sum == rows, "talweg: the splits of all_to_all_single's ", what, " add up to ", sum,
              ", but it has ", rows, " rows");
  return counts;
}

}  // namespace

TalwegBackend::TorchWork TalwegBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  the_only("broadcast", tensors);
  check_root_tensor("broadcast", options.rootTensor);
  const auto data = flat("broadcast", tensors);
  const auto type = moved_type("broadcast", data->type());
  const int root = static_cast<int>(options.rootRank);
  return run({c10d::OpType::BROADCAST, "talweg:broadcast", tensors, tensors}, options.timeout, {data}, {data},
             {[=](Group& g, const CallOptions& o) {
               return g.start_broadcast(data->data(), data->count(), type, root, o);
             }});
}

TalwegBackend::TorchWork TalwegBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (the_only("all_reduce", tensors).layout() == at::kSparse) return allreduce_sparse(tensors, options);
  return all_reduce("all_reduce", c10d::OpType::ALLREDUCE, tensors, options);
}

TalwegBackend::TorchWork TalwegBackend::allreduce_with_priority(Tensors& tensors,
                                                                const c10d::AllreduceOptions& options,
                                                                int priority) {
  the_only("all_reduce", tensors);
  return all_reduce("all_reduce", c10d::OpType::ALLREDUCE, tensors, options, priority);
}

TalwegBackend::TorchWork TalwegBackend::allreduce_coalesced(Tensors& tensors,
                                                            const c10d::AllreduceCoalescedOptions& options) {
  check_value(!tensors.empty(), "talweg: all_reduce_coalesced takes at least one tensor");
  return all_reduce("all_reduce_coalesced", c10d::OpType::ALLREDUCE_COALESCED, tensors, options);
}

TalwegBackend::TorchWork TalwegBackend::all_reduce(const char* operation, c10d::OpType op_type,
                                                   const Tensors& tensors,
                                                   const c10d::AllreduceOptions& options, int priority) {
  const auto data = reduction_input(operation, tensors, options.reduceOp);
  const auto type = reduced_type(operation, data->type(), options.reduceOp);
  const auto op = reduction(operation, options.reduceOp);
  return run({op_type, "talweg:all_reduce", tensors, tensors}, options.timeout, {data}, {data},
             {[=](Group& g, const CallOptions& o) {
               return g.start_all_reduce(data->data(), data->data(), data->count(), type, op, o);
             }},
             priority);
}

TalwegBackend::TorchWork TalwegBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  the_only("reduce", tensors);
  check_root_tensor("reduce", options.rootTensor);
  const auto data = reduction_input("reduce", tensors, options.reduceOp);
  const auto type = reduced_type("reduce", data->type(), options.reduceOp);
  const auto op = reduction("reduce", options.reduceOp);
  const int root = static_cast<int>(options.rootRank);
  return run({c10d::OpType::REDUCE, "talweg:reduce", tensors, tensors}, options.timeout, {data},
             root == rank_ ? std::vector<FlatPtr>{data} : std::vector<FlatPtr>{},
             {[=, this](Group& g, const CallOptions& o) {
               return g.start_reduce(data->data(), root == rank_ ? data->data() : nullptr, data->count(),
                                     type, op, root, o);
             }});
}

TalwegBackend::TorchWork TalwegBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                                  const c10d::AllgatherOptions& options) {
  the_only("all_gather", inputs);
  const Tensors& list = the_only_list("all_gather", outputs, size_);
  const auto in = flat("all_gather", inputs);
  const auto out = flat("all_gather", list);
  const auto type = moved_type("all_gather", in->type());
  const auto counts = counts_of(list);
  check_same_type("all_gather", *in, *out);
  check_count("all_gather", "input (the size of this rank's slot in the output list)", in->count(),
              counts[rank_]);
  return run({c10d::OpType::ALLGATHER, "talweg:all_gather", inputs, list}, options.timeout, {in}, {out},
             {[=](Group& g, const CallOptions& o) {
               return g.start_all_gather(in->data(), out->data(), counts, type, o);
             }});
}

TalwegBackend::TorchWork TalwegBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                        const c10d::AllgatherOptions& options) {
  Tensors outputs{output};
  Tensors inputs{input};
  return allgather_into_tensor_coalesced(outputs, inputs, options);
}

TalwegBackend::TorchWork TalwegBackend::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  const char* const operation = "all_gather_into_tensor";
  check_value(outputs.size() == inputs.size(), "talweg: ", operation,
              " needs as many outputs as inputs, got ", outputs.size(), " and ", inputs.size());
  TalwegWork::Description call{outputs.size() == 1 ? c10d::OpType::_ALLGATHER_BASE : c10d::OpType::COALESCED,
                               "talweg:all_gather_into_tensor", inputs, outputs};
  std::vector<FlatPtr> loads, stores;
  std::vector<Start> starts;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto in = flat(operation, {inputs[i]});
    const auto out = flat(operation, {outputs[i]});
    const auto type = moved_type(operation, in->type());
    check_same_type(operation, *in, *out);
    check_count(operation, "output (input times ranks)", out->count(), in->count() * size_);
    loads.push_back(in);
    stores.push_back(out);
    starts.push_back(
        [=, counts = std::vector<std::size_t>(size_, in->count())](Group& g, const CallOptions& o) {
          return g.start_all_gather(in->data(), out->data(), counts, type, o);
        });
  }
  return run(std::move(call), options.timeout, std::move(loads), std::move(stores), std::move(starts));
}

TalwegBackend::TorchWork TalwegBackend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                                            const c10d::AllgatherOptions& options) {
  const char* const operation = "all_gather_coalesced";
  check_value(static_cast<int>(outputs.size()) == size_, "talweg: ", operation, " needs ", size_,
              " output lists, one per rank, got ", outputs.size());
  Tensors all;
  std::vector<std::size_t> counts;
  for (const Tensors& list : outputs) {
    std::size_t count = 0;
    for (const std::size_t n : counts_of(list)) count += n;
    counts.push_back(count);
    all.insert(all.end(), list.begin(), list.end());
  }
  const auto in = flat(operation, inputs);
  const auto out = flat(operation, all);
  const auto type = moved_type(operation, in->type());
  check_same_type(operation, *in, *out);
  check_count(operation, "inputs (the size of this rank's output list)", in->count(), counts[rank_]);
  return run({c10d::OpType::ALLGATHER_COALESCED, "talweg:all_gather", inputs, all}, options.timeout, {in},
             {out}, {[=](Group& g, const CallOptions& o) {
               return g.start_all_gather(in->data(), out->data(), counts, type, o);
             }});
}

TalwegBackend::TorchWork TalwegBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                               const c10d::GatherOptions& options) {
  the_only("gather", inputs);
  const int root = static_cast<int>(options.rootRank);
  const bool is_root = root == rank_;
  check_value(is_root || outputs.empty() || (outputs.size() == 1 && outputs.front().empty()),
              "talweg: gather takes an output list on the root (rank ", root, ") only");
  const Tensors list = is_root ? the_only_list("gather", outputs, size_) : Tensors{};
  const auto in = flat("gather", inputs);
  const auto out = flat("gather", list);
  const auto type = moved_type("gather", in->type());
  std::vector<std::size_t> counts(size_, 0);
  counts[rank_] = in->count();
  if (is_root) {
    check_same_type("gather", *in, *out);
    counts = counts_of(list);
    check_count("gather", "input (the size of this rank's slot in the output list)", in->count(),
                counts[rank_]);
  }
  return run({c10d::OpType::GATHER, "talweg:gather", inputs, list}, options.timeout, {in}, {out},
             {[=](Group& g, const CallOptions& o) {
               return g.start_gather(in->data(), out->data(), counts, type, root, o);
             }});
}

TalwegBackend::TorchWork TalwegBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                const c10d::ScatterOptions& options) {
  the_only("scatter", outputs);
  const int root = static_cast<int>(options.rootRank);
  const bool is_root = root == rank_;
  check_value(is_root || inputs.empty() || (inputs.size() == 1 && inputs.front().empty()),
              "talweg: scatter takes an input list on the root (rank ", root, ") only");
  const Tensors list = is_root ? the_only_list("scatter", inputs, size_) : Tensors{};
  const auto in = flat("scatter", list);
  const auto out = flat("scatter", outputs);
  const auto type = moved_type("scatter", out->type());
  std::vector<std::size_t> counts(size_, 0);
  counts[rank_] = out->count();
  if (is_root) {
    check_same_type("scatter", *in, *out);
    counts = counts_of(list);
    check_count("scatter", "output (the size of this rank's input)", out->count(), counts[rank_]);
  }
  return run({c10d::OpType::SCATTER, "talweg:scatter", list, outputs}, options.timeout, {in}, {out},
             {[=](Group& g, const CallOptions& o) {
               return g.start_scatter(in->data(), out->data(), counts, type, root, o);
             }});
}

TalwegBackend::TorchWork TalwegBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                       const c10d::ReduceScatterOptions& options) {
  the_only("reduce_scatter", outputs);
  const Tensors& list = the_only_list("reduce_scatter", inputs, size_);
  const auto in = reduction_input("reduce_scatter", list, options.reduceOp);
  const auto out = flat("reduce_scatter", outputs);
  const auto type = reduced_type("reduce_scatter", in->type(), options.reduceOp);
  const auto op = reduction("reduce_scatter", options.reduceOp);
  const auto counts = counts_of(list);
  check_same_type("reduce_scatter", *in, *out);
  check_count("reduce_scatter", "output (the size of this rank's input)", out->count(), counts[rank_]);
  return run({c10d::OpType::REDUCE_SCATTER, "talweg:reduce_scatter", list, outputs}, options.timeout, {in},
             {out}, {[=](Group& g, const CallOptions& o) {
               return g.start_reduce_scatter(in->data(), out->data(), counts, type, op, o);
             }});
}

TalwegBackend::TorchWork TalwegBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                             const c10d::ReduceScatterOptions& options) {
  Tensors outputs{output};
  Tensors inputs{input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

TalwegBackend::TorchWork TalwegBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  const char* const operation = "reduce_scatter_tensor";
  check_value(outputs.size() == inputs.size(), "talweg: ", operation,
              " needs as many outputs as inputs, got ", outputs.size(), " and ", inputs.size());
  TalwegWork::Description call{
      outputs.size() == 1 ? c10d::OpType::_REDUCE_SCATTER_BASE : c10d::OpType::COALESCED,
      "talweg:reduce_scatter_tensor", inputs, outputs};
  std::vector<FlatPtr> loads, stores;
  std::vector<Start> starts;
  const auto op = reduction(operation, options.reduceOp);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto in = reduction_input(operation, {inputs[i]}, options.reduceOp);
    const auto out = flat(operation, {outputs[i]});
    const auto type = reduced_type(operation, in->type(), options.reduceOp);
    check_same_type(operation, *in, *out);
    check_count(operation, "input (output times ranks)", in->count(), out->count() * size_);
    loads.push_back(in);
    stores.push_back(out);
    starts.push_back(
        [=, counts = std::vector<std::size_t>(size_, out->count())](Group& g, const CallOptions& o) {
          return g.start_reduce_scatter(in->data(), out->data(), counts, type, op, o);
        });
  }
  return run(std::move(call), options.timeout, std::move(loads), std::move(stores), std::move(starts));
}

TalwegBackend::TorchWork TalwegBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                      std::vector<int64_t>& output_splits,
                                                      std::vector<int64_t>& input_splits,
                                                      const c10d::AllToAllOptions& options) {
  const auto in_counts = split_counts("input", input, input_splits, size_);
  const auto out_counts = split_counts("output", output, output_splits, size_);
  const auto in = flat("all_to_all_single", {input});
  const auto out = flat("all_to_all_single", {output});
  const auto type = moved_type("all_to_all_single", in->type());
  check_same_type("all_to_all_single", *in, *out);
  check_count("all_to_all_single", "output for this rank's own part", out_counts[rank_], in_counts[rank_]);
  return run({c10d::OpType::ALLTOALL_BASE, "talweg:all_to_all", {input}, {output}}, options.timeout, {in},
             {out}, {[=](Group& g, const CallOptions& o) {
               return g.start_all_to_all(in->data(), in_counts, out->data(), out_counts, type, o);
             }});
}

TalwegBackend::TorchWork TalwegBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                                 const c10d::AllToAllOptions& options) {
  for (const Tensors* list : {&inputs, &outputs})
    check_value(static_cast<int>(list->size()) == size_, "talweg: all_to_all needs ", size_,
                " tensors, one per rank, got ", list->size());
  const auto in = flat("all_to_all", inputs);
  const auto out = flat("all_to_all", outputs);
  const auto type = moved_type("all_to_all", in->type());
  const auto in_counts = counts_of(inputs);
  const auto out_counts = counts_of(outputs);
  check_same_type("all_to_all", *in, *out);
  check_count("all_to_all", "output for this rank's own part", out_counts[rank_], in_counts[rank_]);
  return run({c10d::OpType::ALLTOALL, "talweg:all_to_all", inputs, outputs}, options.timeout, {in}, {out},
             {[=](Group& g, const CallOptions& o) {
               return g.start_all_to_all(in->data(), in_counts, out->data(), out_counts, type, o);
             }});
}

TalwegBackend::TorchWork TalwegBackend::barrier(const c10d::BarrierOptions& options) {
  return run({c10d::OpType::BARRIER, "talweg:barrier", {}, {}}, options.timeout, {}, {},
             {[](Group& g, const CallOptions& o) { return g.start_barrier(o); }});
}

}  // namespace talweg::torch_face
