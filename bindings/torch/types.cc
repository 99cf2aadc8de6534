#include "types.h"

#include <c10/util/Exception.h>

#include <optional>

namespace talweg::torch_face {
namespace {

std::optional<DataType> counterpart(at::ScalarType type) {
  switch (type) {
    case at::kByte:
      return DataType::u8;
    case at::kChar:
      return DataType::i8;
    case at::kUInt16:
      return DataType::u16;
    case at::kShort:
      return DataType::i16;
    case at::kUInt32:
      return DataType::u32;
    case at::kInt:
      return DataType::i32;
    case at::kUInt64:
      return DataType::u64;
    case at::kLong:
      return DataType::i64;
    case at::kHalf:
      return DataType::f16;
    case at::kBFloat16:
      return DataType::bf16;
    case at::kFloat:
      return DataType::f32;
    case at::kDouble:
      return DataType::f64;
    case at::kComplexFloat:
      return DataType::c64;
    case at::kComplexDouble:
      return DataType::c128;
    case at::kBool:
      return DataType::boolean;
    default:
      return std::nullopt;
  }
}

bool is_bitwise(c10d::ReduceOp::RedOpType op) {
  return op == c10d::ReduceOp::BAND || op == c10d::ReduceOp::BOR || op == c10d::ReduceOp::BXOR;
}

bool is_ordering(c10d::ReduceOp::RedOpType op) {
  return op == c10d::ReduceOp::MIN || op == c10d::ReduceOp::MAX;
}

const char* torch_name(c10d::ReduceOp::RedOpType op) {
  switch (op) {
    case c10d::ReduceOp::SUM:
      return "SUM";
    case c10d::ReduceOp::AVG:
      return "AVG";
    case c10d::ReduceOp::PRODUCT:
      return "PRODUCT";
    case c10d::ReduceOp::MIN:
      return "MIN";
    case c10d::ReduceOp::MAX:
      return "MAX";
    case c10d::ReduceOp::BAND:
      return "BAND";
    case c10d::ReduceOp::BOR:
      return "BOR";
    case c10d::ReduceOp::BXOR:
      return "BXOR";
    case c10d::ReduceOp::PREMUL_SUM:
      return "PREMUL_SUM";
    default:
      return "UNUSED";
  }
}

}  // namespace

DataType moved_type(const char* operation, at::ScalarType type) {
  if (const auto same = counterpart(type)) return *same;
  switch (c10::elementSize(type)) {
    case 1:
      return DataType::u8;
    case 2:
      return DataType::u16;
    case 4:
      return DataType::u32;
    case 8:
      return DataType::u64;
    default:
      TORCH_CHECK_TYPE(false, "talweg: ", operation, " does not take tensors of type ", type);
  }
}

DataType reduced_type(const char* operation, at::ScalarType type, const c10d::ReduceOp& op) {
  const auto same = counterpart(type);
  const bool meaningless =
      (is_bitwise(op) && !c10::isIntegralType(type, /*includeBool=*/true)) ||
      (is_ordering(op) && c10::isComplexType(type)) ||
      (op == c10d::ReduceOp::PREMUL_SUM && c10::isIntegralType(type, /*includeBool=*/true));
  TORCH_CHECK_TYPE(same && !meaningless, "talweg: ", operation, " cannot reduce tensors of type ", type,
                   " with ", torch_name(op));
  return *same;
}

ReduceOp reduction(const char* operation, const c10d::ReduceOp& op) {
  switch (op) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::PREMUL_SUM:
      return ReduceOp::sum;
    case c10d::ReduceOp::AVG:
      return ReduceOp::avg;
    case c10d::ReduceOp::PRODUCT:
      return ReduceOp::product;
    case c10d::ReduceOp::MIN:
      return ReduceOp::min;
    case c10d::ReduceOp::MAX:
      return ReduceOp::max;
    case c10d::ReduceOp::BAND:
      return ReduceOp::bit_and;
    case c10d::ReduceOp::BOR:
      return ReduceOp::bit_or;
    case c10d::ReduceOp::BXOR:
      return ReduceOp::bit_xor;
    default:
      TORCH_CHECK_VALUE(false, "talweg: ", operation, " does not know the reduction ", torch_name(op));
  }
}

std::exception_ptr as_torch_error(std::exception_ptr error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    const c10::SourceLocation where{__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)};
    switch (e.code()) {
      case ErrorCode::invalid_argument:
      case ErrorCode::bad_file:
        return std::make_exception_ptr(c10::ValueError(where, e.what()));
      case ErrorCode::unsupported:
        return std::make_exception_ptr(c10::TypeError(where, e.what()));
      default:
        return std::make_exception_ptr(
            c10::DistBackendError(where, std::string("talweg ") + name(e.code()) + " error: " + e.what()));
    }
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace talweg::torch_face
