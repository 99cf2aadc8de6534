#include "buffer.h"

#include <fmt/format.h>
#include <pybind11/pybind11.h>

#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "arguments.h"
#include "base/data_types.h"
#include "base/fail.h"

namespace talweg::python {
namespace {

// The letters of Python's struct module, and NumPy's Z for complex numbers. `format` may be null: plain
// bytes.
std::optional<DataType> parse_format(const char* format, Py_ssize_t size) {
  std::string_view letters = format == nullptr ? "B" : format;
  // Byte order: everything but big-endian is this machine's own.
  if (!letters.empty() && std::string_view("@=<").find(letters.front()) != std::string_view::npos)
    letters.remove_prefix(1);
  constexpr std::pair<std::string_view, DataType> kFixed[] = {
      {"Zf", DataType::c64}, {"Zd", DataType::c128}, {"?", DataType::boolean},
      {"e", DataType::f16},  {"f", DataType::f32},   {"d", DataType::f64}};
  for (const auto& [name, type] : kFixed)
    if (letters == name) return type;
  if (letters.size() != 1) return std::nullopt;
  const bool is_signed = std::string_view("bhilq").find(letters) != std::string_view::npos;
  if (!is_signed && std::string_view("BHILQc").find(letters) == std::string_view::npos) return std::nullopt;
  const auto kind = is_signed ? NumberKind::signed_integer : NumberKind::unsigned_integer;
  for (std::size_t i = 0; i < kDataTypeFacts.size(); ++i)
    if (kDataTypeFacts[i].kind == kind && kDataTypeFacts[i].bytes == static_cast<std::size_t>(size))
      return static_cast<DataType>(i);
  return std::nullopt;
}

constexpr const char* kElements =
    "expected integers of 8 to 64 bits, float16 to float64, complex64, complex128 or bool";

// NumPy's: through the buffer protocol the mask would be lost without a word. Looked up by name, since
// nothing here depends on NumPy.
bool is_masked(PyObject* object) {
  PyObject* const bases = Py_TYPE(object)->tp_mro;
  for (Py_ssize_t i = 0; bases != nullptr && i < PyTuple_GET_SIZE(bases); ++i) {
    const auto* const base = reinterpret_cast<const PyTypeObject*>(PyTuple_GET_ITEM(bases, i));
    if (std::strcmp(base->tp_name, "MaskedArray") == 0) return true;
  }
  return false;
}

// What the object said when it was asked for its memory.
std::string python_complaint() {
  const pybind11::error_already_set error;
  return pybind11::str(error.value());
}

// `view` is of any shape and may be read-only.
void check_layout(const Py_buffer& view, const char* what, Buffer::Access access) {
  if (access == Buffer::Access::write && view.readonly != 0)
    refuse("{} is read-only: expected memory that can be written", what);
  if (PyBuffer_IsContiguous(&view, 'C') == 0)
    refuse(
        "{} is not C-contiguous: expected elements that lie one after the other, the "
        "last index the fastest",
        what);
}

DataType element_type(const Py_buffer& view, const char* what) {
  if (const auto type = parse_format(view.format, view.itemsize)) return *type;
  const std::string_view format = view.format == nullptr ? "B" : view.format;
  const bool swapped = !format.empty() && (format.front() == '>' || format.front() == '!') &&
                       parse_format(view.format + 1, view.itemsize).has_value();
  throw Error(ErrorCode::unsupported,
              swapped ? fmt::format("{} has elements in big-endian byte order ('{}'): expected this "
                                    "machine's own",
                                    what, format)
                      : fmt::format("{} has elements of format '{}': {}", what, format, kElements));
}

}  // namespace

Buffer::Buffer(PyObject* object, const char* what, Access access) {
  if (is_masked(object))
    refuse(
        "{} is a masked array, and its mask would be ignored: expected a plain one, such "
        "as its data or filled()",
        what);
  if (PyObject_CheckBuffer(object) == 0)
    refuse(
        "{}: expected an array (anything with the buffer "
        "protocol), got {}",
        what, given(pybind11::handle(object)));
  if (PyObject_GetBuffer(object, &view_, PyBUF_FULL_RO) != 0)
    throw_error(ErrorCode::unsupported, "{} has no memory to share ({}): {}", what, python_complaint(),
                kElements);
  try {
    check_layout(view_, what, access);
    type_ = element_type(view_, what);
  } catch (...) {
    PyBuffer_Release(&view_);
    throw;
  }
  count_ = static_cast<std::size_t>(view_.len / view_.itemsize);
}

BufferPtr readable(pybind11::handle object, const char* what) {
  return std::make_shared<Buffer>(object.ptr(), what, Buffer::Access::read);
}

BufferPtr writable(pybind11::handle object, const char* what) {
  return std::make_shared<Buffer>(object.ptr(), what, Buffer::Access::write);
}

void check_types(const Buffer& in, const Buffer& out) {
  if (in.type() != out.type())
    refuse("input and output must have one element type, not {} and {}", name(in.type()), name(out.type()));
}

std::pair<BufferPtr, BufferPtr> reduction_buffers(pybind11::handle array, pybind11::handle out) {
  const bool in_place = out.is_none();
  const auto to = writable(in_place ? array : out, in_place ? "array" : "out");
  const auto from = in_place ? to : readable(array, "array");
  check_types(*from, *to);
  if (from->count() != to->count())
    refuse("out must have {} elements like array, not {}", from->count(), to->count());
  return {from, to};
}

}  // namespace talweg::python
