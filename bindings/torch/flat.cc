#include "flat.h"

#include <c10/util/Exception.h>

#include <cstring>
#include <utility>

#include "types.h"

namespace talweg::torch_face {
namespace {

bool is_plain(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

bool lie_in_a_row(const std::vector<at::Tensor>& tensors) {
  const char* next = nullptr;
  for (const at::Tensor& tensor : tensors) {
    if (!is_plain(tensor)) return false;
    if (tensor.numel() == 0) continue;
    const auto* begin = static_cast<const char*>(tensor.const_data_ptr());
    if (next != nullptr && begin != next) return false;
    next = begin + tensor.nbytes();
  }
  return true;
}

void* first_address(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors)
    if (tensor.numel() != 0) return tensor.mutable_data_ptr();
  return nullptr;
}

}  // namespace

void check_dense_on_cpu(const char* operation, const at::Tensor& tensor) {
  check_value(tensor.defined(), "talweg: ", operation, " was given an undefined tensor");
  check_value(tensor.device().is_cpu(), "talweg: ", operation, " takes CPU tensors; this one is on ",
              tensor.device());
  check_type(tensor.layout() == at::kStrided, "talweg: ", operation, " takes dense tensors; this one is ",
             tensor.layout());
}

const at::Tensor& the_only(const char* operation, const std::vector<at::Tensor>& tensors) {
  check_value(tensors.size() == 1, "talweg: ", operation, " takes one tensor per rank, got ", tensors.size());
  return tensors.front();
}

std::vector<std::size_t> counts_of(const std::vector<at::Tensor>& tensors) {
  std::vector<std::size_t> counts;
  counts.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) counts.push_back(static_cast<std::size_t>(tensor.numel()));
  return counts;
}

Flat::Flat(const char* operation, std::vector<at::Tensor> tensors, bool own_copy)
    : tensors_(std::move(tensors)), type_(tensors_.empty() ? at::kByte : tensors_.front().scalar_type()) {
  for (const at::Tensor& tensor : tensors_) {
    check_dense_on_cpu(operation, tensor);
    check_type(tensor.scalar_type() == type_, "talweg: ", operation, " takes tensors of one type, not ",
               type_, " and ", tensor.scalar_type());
    count_ += static_cast<std::size_t>(tensor.numel());
  }
  if (tensors_.empty()) return;
  if (!own_copy && lie_in_a_row(tensors_)) {
    data_ = first_address(tensors_);
    return;
  }
  staging_ = at::empty({static_cast<int64_t>(count_)}, at::TensorOptions(type_).device(at::kCPU));
  data_ = staging_.mutable_data_ptr();
}

void Flat::scale_on_load(const c10d::ReduceOp& premul_sum) {
  const auto* given = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(premul_sum.supplement_.get());
  check_value(given != nullptr, "talweg: PREMUL_SUM came without its factor");
  factor_ = given->tensor_factor.defined() ? given->tensor_factor.to(staging_.options())
                                           : at::scalar_tensor(given->double_factor, staging_.options());
}

void Flat::load() {
  if (!is_staged()) return;
  const at::NoGradGuard no_grad;
  auto* to = static_cast<char*>(data_);
  int64_t offset = 0;
  for (const at::Tensor& tensor : tensors_) {
    if (is_plain(tensor)) {
      if (tensor.nbytes() != 0) std::memcpy(to, tensor.const_data_ptr(), tensor.nbytes());
    } else {
      staging_.narrow(0, offset, tensor.numel()).view(tensor.sizes()).copy_(tensor);
    }
    to += tensor.nbytes();
    offset += tensor.numel();
  }
  if (factor_.defined()) staging_.mul_(factor_);
}

// Along a dimension that was expanded, all elements are the first one.
void Flat::store_one(at::Tensor to, at::Tensor from) const {
  const at::Tensor all = from;
  for (int64_t d = 0; d < to.dim(); ++d) {
    if (to.size(d) < 2 || to.stride(d) != 0) continue;
    to = to.narrow(d, 0, 1);
    from = from.narrow(d, 0, 1);
  }
  check_value(summed_ || from.numel() == all.numel() || at::equal(from.expand_as(all), all),
              "talweg: different values came for the same element of an expanded tensor");
  to.copy_(from);
}

void Flat::store() {
  if (!is_staged()) return;
  const at::NoGradGuard no_grad;
  const auto* from = static_cast<const char*>(data_);
  int64_t offset = 0;
  for (at::Tensor& tensor : tensors_) {
    if (is_plain(tensor)) {
      if (tensor.nbytes() != 0) std::memcpy(tensor.mutable_data_ptr(), from, tensor.nbytes());
    } else {
      store_one(tensor, staging_.narrow(0, offset, tensor.numel()).view(tensor.sizes()));
    }
    from += tensor.nbytes();
    offset += tensor.numel();
  }
}

}  // namespace talweg::torch_face
