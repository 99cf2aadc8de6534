// Sums of which a part may be lost (talweg/bounded_loss.h), of torch's tensors: for talweg.torch.hooks.
#pragma once

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/utils/pybind.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "talweg/bounded_loss.h"
#include "types.h"

namespace talweg::torch_face {

class LossySums {
 public:
  // Every rank of `group` calls it. Throws CallError, or torch's DistBackendError.
  LossySums(Group& group, double p, const std::string& policy, std::size_t packet_bytes,
            const PacketClasses& classes, const std::vector<int>& servers, std::optional<double> p_sender,
            std::optional<double> p_call) {
    check_value(policy == "zero" || policy == "rescale",
                "talweg: policy: expected \"zero\" or \"rescale\", not ", policy);
    const auto what = policy == "zero" ? LossPolicy::zero : LossPolicy::rescale;
    sums_ = with_torch_errors([&] {
      return BoundedSums::make(group, {.p = p,
                                       .p_sender = p_sender,
                                       .p_call = p_call,
                                       .policy = what,
                                       .packet_bytes = packet_bytes,
                                       .classes = classes,
                                       .servers = servers});
    });
  }
  ~LossySums() {
    const pybind11::gil_scoped_release no_gil;
    sums_.reset();
  }
  LossySums(const LossySums&) = delete;
  LossySums& operator=(const LossySums&) = delete;

  // In place. `values` and `residual` are of one type and size, contiguous and on the CPU; else CallError.
  LossReport all_reduce(const at::Tensor& values, const std::optional<at::Tensor>& residual,
                        const std::vector<std::size_t>& layers, bool average, double depth, int priority) {
    const auto type = reduced_type("bounded all_reduce", values.scalar_type(), c10d::ReduceOp::SUM);
    check_layout("the gradients", values);
    if (residual) {
      check_layout("the residual", *residual);
      check_value(residual->scalar_type() == values.scalar_type() && residual->numel() == values.numel(),
                  "talweg: the residual must have ", values.numel(), " elements of ", values.scalar_type(),
                  ", not ", residual->numel(), " of ", residual->scalar_type());
    }
    void* const data = values.mutable_data_ptr();
    return with_torch_errors([&] {
      return sums_->all_reduce({.in = data,
                                .out = data,
                                .count = static_cast<std::size_t>(values.numel()),
                                .type = type,
                                .reduction = average ? ReduceOp::avg : ReduceOp::sum,
                                .residual = residual ? residual->mutable_data_ptr() : nullptr,
                                .layers = layers,
                                .depth = depth,
                                .priority = priority});
    });
  }

  std::string explain(std::size_t count, const std::string& type) const {
    const auto element = parse_data_type(type);
    check_value(element, "talweg: no element type is called ", type);
    return with_torch_errors([&] { return sums_->explain(count, *element); });
  }

 private:
  static void check_layout(const char* what, const at::Tensor& tensor) {
    check_value(tensor.device().is_cpu() && tensor.layout() == at::kStrided && tensor.is_contiguous(),
                "talweg: ", what, " must be a contiguous tensor on the CPU");
  }

  std::shared_ptr<BoundedSums> sums_;
};

}  // namespace talweg::torch_face
