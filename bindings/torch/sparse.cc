// All-reduce of sparse tensors: every rank gathers everybody's non-zeros and adds them up in rank order,
// sorted streams merged by key, so that all have the same bits.
//
// The call blocks until done, because what is gathered second depends on what came first. That keeps the
// calls of all ranks in one order, which a chain of callbacks would not.
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "backend.h"
#include "kernel/merge.h"
#include "types.h"

namespace talweg::torch_face {
namespace {

constexpr int kMostDimensions = 12;

// What ranks must agree on, then how many non-zeros this one has. Sent as int64.
struct Shape {
  std::array<int64_t, kMostDimensions> sizes{};
  int64_t sparse_dimensions = 0;
  int64_t type = 0;
  int64_t non_zeros = 0;

  bool fits(const Shape& other) const {
    return sizes == other.sizes && sparse_dimensions == other.sparse_dimensions && type == other.type;
  }
};
constexpr std::size_t kShapeCount = sizeof(Shape) / sizeof(int64_t);
static_assert(sizeof(Shape) == kShapeCount * sizeof(int64_t));

Shape shape_of(const at::Tensor& tensor) {
  Shape shape;
  shape.sizes.fill(-1);
  std::copy(tensor.sizes().begin(), tensor.sizes().end(), shape.sizes.begin());
  shape.sparse_dimensions = tensor.sparse_dim();
  shape.type = static_cast<int64_t>(tensor.scalar_type());
  shape.non_zeros = tensor._nnz();
  return shape;
}

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

// `mine` of every rank, one behind the other, where `counts` says how many elements each has.
at::Tensor gather_all(Group& group, const at::Tensor& mine, const std::vector<std::size_t>& counts,
                      DataType type, const CallOptions& options) {
  const auto total = static_cast<int64_t>(std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
  const at::Tensor input = mine.contiguous();
  at::Tensor all = at::empty({total}, mine.options());
  group.all_gather(input.const_data_ptr(), all.mutable_data_ptr(), counts, type, options);
  return all;
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
    const Shape shape = shape_of(mine);
    std::vector<Shape> shapes(size_);
    group->all_gather(&shape, shapes.data(), std::vector<std::size_t>(size_, kShapeCount), DataType::i64,
                      call);
    for (int rank = 0; rank < size_; ++rank)
      TORCH_CHECK_WITH(DistBackendError, shape.fits(shapes[rank]), "talweg: ranks ", rank_, " and ", rank,
                       " disagree about size, type or sparse dimensions in ", operation,
                       " (here: ", mine.sizes(), " of ", mine.scalar_type(), ")");
    const at::Tensor values = mine.values();
    const auto value_sizes = values.sizes().slice(1);
    const auto width = static_cast<std::size_t>(
        std::accumulate(value_sizes.begin(), value_sizes.end(), int64_t{1}, std::multiplies<>()));
    std::vector<std::size_t> key_counts;
    std::vector<std::size_t> value_counts;
    for (const Shape& s : shapes) {
      key_counts.push_back(static_cast<std::size_t>(s.non_zeros));
      value_counts.push_back(static_cast<std::size_t>(s.non_zeros) * width);
    }
    const at::Tensor keys = gather_all(*group, keys_of(mine), key_counts, DataType::i64, call);
    const at::Tensor all_values = gather_all(*group, values, value_counts, type, call);

    std::vector<kernel::KeyedRows> streams;
    const auto* key = keys.const_data_ptr<int64_t>();
    const auto* row = static_cast<const char*>(all_values.const_data_ptr());
    const std::size_t row_bytes = width * size_of(type);
    for (int rank = 0; rank < size_; ++rank) {
      const std::size_t count = key_counts[rank];
      TORCH_CHECK_WITH(DistBackendError, kernel::are_keys({key, count}, key_limit(mine)), "talweg: rank ",
                       rank, " sent indices that are out of order or out of range in ", operation);
      streams.push_back({key, row, count});
      key += count;
      row += count * row_bytes;
    }
    at::Tensor sum_keys = at::empty_like(keys);
    auto sum_sizes = values.sizes().vec();
    sum_sizes[0] = keys.numel();
    at::Tensor sum_values = at::empty(sum_sizes, values.options());
    const auto count = static_cast<int64_t>(kernel::merge_rows(
        streams, type, width, sum_keys.mutable_data_ptr<int64_t>(), sum_values.mutable_data_ptr()));
    tensor.copy_(at::sparse_coo_tensor(indices_of(sum_keys.narrow(0, 0, count), mine),
                                       sum_values.narrow(0, 0, count), mine.sizes(), mine.options(), true));
  });
  return run({c10d::OpType::_ALLREDUCE_SPARSE, "talweg:all_reduce", tensors, tensors}, options.timeout, {},
             {}, {});
}

}  // namespace talweg::torch_face
