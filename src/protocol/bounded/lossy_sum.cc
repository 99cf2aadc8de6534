#include "protocol/bounded/lossy_sum.h"

#include <cstring>

#include "base/fail.h"

namespace talweg::protocol {

namespace {

kernel::ReduceFunction summing(const BoundedShape& shape, DataType type) {
  if (shape.stride % size_of(type) != 0 || shape.bytes % size_of(type) != 0)
    refuse("tensor {} of {} bytes in packets of {} cuts elements of {} apart", shape.tensor, shape.bytes,
           shape.stride, size_of(type));
  const kernel::ReduceFunction add = kernel::reduce_function(type, ReduceOp::sum);
  if (add == nullptr) refuse("tensor {} has a type that cannot be summed", shape.tensor);
  return add;
}

}  // namespace

LossySum::LossySum(const BoundedShape& shape, DataType type)
    : shape_(shape), type_(type), add_(summing(shape, type)) {}

std::size_t LossySum::elements(std::uint32_t packet) const {
  return shape_.length(packet) / size_of(type_);
}

void LossySum::begin(std::byte* out) {
  out_ = out;
  received_.assign(shape_.packets(), 0);
}

void LossySum::add(const std::byte* data, const PacketSet& missing) {
  for (std::uint32_t i = 0; i < shape_.packets(); ++i) {
    if (missing.has(i)) continue;
    const std::uint64_t at = std::uint64_t{i} * shape_.stride;
    if (received_[i]++ > 0)
      add_(out_ + at, out_ + at, data + at, elements(i));
    else if (data != out_)
      std::memcpy(out_ + at, data + at, shape_.length(i));
  }
}

void LossySum::finish(LossScale scale, int workers) {
  for (std::uint32_t i = 0; i < shape_.packets(); ++i) {
    std::byte* const at = out_ + std::uint64_t{i} * shape_.stride;
    if (received_[i] == 0) std::memset(at, 0, shape_.length(i));
    const int divisor = scale == LossScale::by_all ? workers : scale == LossScale::none ? 1 : received_[i];
    if (divisor > 1) kernel::divide(type_, at, elements(i), divisor);
  }
}

ErrorFeedback::ErrorFeedback(const BoundedShape& shape, DataType type)
    : shape_(shape), type_(type), add_(summing(shape, type)), held_(shape.packets()), bytes_(shape.bytes) {}

void ErrorFeedback::add_to(std::byte* gradient) {
  for (std::uint32_t i = held_.next(0); i < held_.size(); i = held_.next(i + 1)) {
    const std::uint64_t at = std::uint64_t{i} * shape_.stride;
    add_(gradient + at, gradient + at, bytes_.data() + at, shape_.length(i) / size_of(type_));
  }
}

void ErrorFeedback::remember(const std::byte* gradient, const PacketSet& lost) {
  held_ = lost;
  for (std::uint32_t i = lost.next(0); i < lost.size(); i = lost.next(i + 1)) {
    const std::uint64_t at = std::uint64_t{i} * shape_.stride;
    std::memcpy(bytes_.data() + at, gradient + at, shape_.length(i));
  }
}

}  // namespace talweg::protocol
