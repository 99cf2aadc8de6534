#include "types.h"

#include <c10/util/Exception.h>
#include <pybind11/pybind11.h>

#include <algorithm>

namespace talweg::torch_face {
namespace {

struct TypeRow {
  at::ScalarType torch;
  DataType type;
};
constexpr TypeRow kTypes[] = {{at::kByte, DataType::u8},          {at::kChar, DataType::i8},
                              {at::kUInt16, DataType::u16},       {at::kShort, DataType::i16},
                              {at::kUInt32, DataType::u32},       {at::kInt, DataType::i32},
                              {at::kUInt64, DataType::u64},       {at::kLong, DataType::i64},
                              {at::kHalf, DataType::f16},         {at::kBFloat16, DataType::bf16},
                              {at::kFloat, DataType::f32},        {at::kDouble, DataType::f64},
                              {at::kComplexFloat, DataType::c64}, {at::kComplexDouble, DataType::c128},
                              {at::kBool, DataType::boolean}};

struct ReductionRow {
  c10d::ReduceOp::RedOpType torch;
  const char* name;
  ReduceOp op;
};
constexpr ReductionRow kReductions[] = {{c10d::ReduceOp::SUM, "SUM", ReduceOp::sum},
                                        {c10d::ReduceOp::AVG, "AVG", ReduceOp::avg},
                                        {c10d::ReduceOp::PRODUCT, "PRODUCT", ReduceOp::product},
                                        {c10d::ReduceOp::MIN, "MIN", ReduceOp::min},
                                        {c10d::ReduceOp::MAX, "MAX", ReduceOp::max},
                                        {c10d::ReduceOp::BAND, "BAND", ReduceOp::bit_and},
                                        {c10d::ReduceOp::BOR, "BOR", ReduceOp::bit_or},
                                        {c10d::ReduceOp::BXOR, "BXOR", ReduceOp::bit_xor},
                                        {c10d::ReduceOp::PREMUL_SUM, "PREMUL_SUM", ReduceOp::sum}};

// The row of a type or a reduction, or null.
template <class Row, std::size_t n, class Torch>
const Row* row_of(const Row (&rows)[n], Torch torch) {
  const auto* const found = std::find_if(rows, rows + n, [&](const Row& row) { return row.torch == torch; });
  return found == rows + n ? nullptr : found;
}

const char* torch_name(c10d::ReduceOp::RedOpType op) {
  const auto* const row = row_of(kReductions, op);
  return row ? row->name : "UNUSED";
}

bool is_bitwise(c10d::ReduceOp::RedOpType op) {
  return op == c10d::ReduceOp::BAND || op == c10d::ReduceOp::BOR || op == c10d::ReduceOp::BXOR;
}

bool is_ordering(c10d::ReduceOp::RedOpType op) {
  return op == c10d::ReduceOp::MIN || op == c10d::ReduceOp::MAX;
}

}  // namespace

DataType moved_type(const char* operation, at::ScalarType type) {
  if (const auto* const same = row_of(kTypes, type)) return same->type;
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
      throw CallError(CallError::Kind::type,
                      c10::str("talweg: ", operation, " does not take tensors of type ", type));
  }
}

DataType reduced_type(const char* operation, at::ScalarType type, const c10d::ReduceOp& op) {
  const auto* const same = row_of(kTypes, type);
  const bool meaningless =
      (is_bitwise(op) && !c10::isIntegralType(type, /*includeBool=*/true)) ||
      (is_ordering(op) && c10::isComplexType(type)) ||
      (op == c10d::ReduceOp::PREMUL_SUM && c10::isIntegralType(type, /*includeBool=*/true));
  check_type(same && !meaningless, "talweg: ", operation, " cannot reduce tensors of type ", type, " with ",
             torch_name(op));
  return same->type;
}

ReduceOp reduction(const char* operation, const c10d::ReduceOp& op) {
  const auto* const row = row_of(kReductions, static_cast<c10d::ReduceOp::RedOpType>(op));
  check_value(row, "talweg: ", operation, " does not know the reduction ", torch_name(op));
  return row->op;
}

PyObject* CallError::python_type() {
  const auto module = pybind11::module_::import("talweg._c10d");
  return module.attr(kind_ == Kind::value ? "CallValueError" : "CallTypeError").ptr();  // the module keeps it
}

std::exception_ptr as_torch_error(std::exception_ptr error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    const c10::SourceLocation where{__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)};
    switch (e.code()) {
      case ErrorCode::invalid_argument:
      case ErrorCode::bad_file:
        return std::make_exception_ptr(CallError(CallError::Kind::value, e.what()));
      case ErrorCode::unsupported:
        return std::make_exception_ptr(CallError(CallError::Kind::type, e.what()));
      default:
        return std::make_exception_ptr(
            c10::DistBackendError(where, std::string("talweg ") + name(e.code()) + " error: " + e.what()));
    }
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace talweg::torch_face
