// All-reduce of sparse tensors: of their rows, by keys, as talweg::all_reduce_rows sums them.
//
// The call blocks until done, as that does.
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <utility>

#include "backend.h"
#include "talweg/sparse_rows.h"
#include "types.h"

namespace talweg::torch_face {
namespace {

constexpr int64_t kMostDimensions = 12;
static_assert(kMostDimensions + 1 <= RowsCall::kMostShape);

// The key of a non-zero is its place among all that there could be, in the order that coalesce() sorts by.
int64_t key_limit(const at::Tensor& tensor) {
  const auto sizes = tensor.sizes().slice(0, tensor.sparse_dim());
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

at::Tensor keys_of(const at::Tensor& coalesced) {
  const at::Tensor indices = coalesced.indices();
  at::Tensor keys = at::zeros({indices.size(1)}, indices.options());
  for (int64_t d = 0; d < coalesced.sparse_dim(); ++d)
    keys.mul_(coalesced.size(d)).add_(indices.select(0, d));
  return keys;
}

// Of keys of non-zeros of a tensor like `like`.
at::Tensor indices_of(const at::Tensor& keys, const at::Tensor& like) {
  at::Tensor indices = at::empty({like.sparse_dim(), keys.numel()}, keys.options());
  at::Tensor left = keys;
  for (int64_t d = like.sparse_dim() - 1; d >= 0; --d) {
    indices.select(0, d).copy_(left.remainder(like.size(d)));
    left = left.floor_divide(like.size(d));
  }
  return indices;
}

// The sum's rows, which it takes over, as a tensor of this many dimensions beside the first.
at::Tensor values_of(SparseRows& sum, at::IntArrayRef value_sizes, const at::TensorOptions& options) {
  std::vector<int64_t> sizes{static_cast<int64_t>(sum.keys.size())};
  sizes.insert(sizes.end(), value_sizes.begin(), value_sizes.end());
  std::byte* const data = sum.values.get();
  const auto drop = [kept = std::shared_ptr<std::byte[]>(std::move(sum.values))](void*) {};
  return at::from_blob(data, sizes, drop, options);
}

}  // namespace

TalwegBackend::TorchWork TalwegBackend::allreduce_sparse(Tensors& tensors,
                                                         const c10d::AllreduceOptions& options) {
  const char* const operation = "all_reduce of a sparse tensor";
  check_value(tensors.size() == 1, "talweg: ", operation, " takes one tensor per rank, got ", tensors.size());
  at::Tensor& tensor = tensors.front();
  check_value(tensor.device().is_cpu(), "talweg: ", operation, " takes CPU tensors; this one is on ",
              tensor.device());
  check_type(tensor.layout() == at::kSparse, "talweg: ", operation, " takes COO tensors, not ",
             tensor.layout());
  check_value(options.reduceOp == c10d::ReduceOp::SUM, "talweg: ", operation, " can only sum");
  check_value(tensor.dim() <= kMostDimensions, "talweg: ", operation, " takes up to ", kMostDimensions,
              " dimensions, got ", tensor.dim());
  const auto type = reduced_type(operation, tensor.scalar_type(), options.reduceOp);
  const auto group = this->group();
  CallOptions call;
  call.timeout = std::max(options.timeout, std::chrono::milliseconds(0));

  with_torch_errors([&] {
    const at::NoGradGuard no_grad;
    const at::Tensor mine = tensor.coalesce();
    std::vector<int64_t> shape{mine.sparse_dim()};
    shape.insert(shape.end(), mine.sizes().begin(), mine.sizes().end());
    const at::Tensor keys = keys_of(mine).contiguous();
    const at::Tensor values = mine.values().contiguous();
    const auto value_sizes = values.sizes().slice(1);
    RowsCall rows;
    rows.keys = {keys.const_data_ptr<int64_t>(), static_cast<std::size_t>(keys.numel())};
    rows.values = values.const_data_ptr();
    rows.limit = key_limit(mine);
    rows.width = static_cast<std::size_t>(
        std::accumulate(value_sizes.begin(), value_sizes.end(), int64_t{1}, std::multiplies<>()));
    rows.type = type;
    rows.shape = shape;
    rows.options = call;
    SparseRows sum = all_reduce_rows(*group, rows);
    at::Tensor sum_keys = at::empty({static_cast<int64_t>(sum.keys.size())}, keys.options());
    std::ranges::copy(sum.keys, sum_keys.mutable_data_ptr<int64_t>());
    tensor.copy_(at::sparse_coo_tensor(indices_of(sum_keys, mine),
                                       values_of(sum, value_sizes, values.options()), mine.sizes(),
                                       mine.options(), true));
  });
  return run({c10d::OpType::_ALLREDUCE_SPARSE, "talweg:all_reduce", tensors, tensors}, options.timeout, {},
             {}, {});
}

}  // namespace talweg::torch_face
