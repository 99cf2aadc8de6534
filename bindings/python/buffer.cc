#include "buffer.h"

#include <fmt/format.h>
#include <pybind11/pybind11.h>

#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "arguments.h"
#include "talweg/error.h"

namespace talweg::python {
namespace {

std::optional<DataType> signed_integer(Py_ssize_t size) {
  switch (size) {
    case 1:
      return DataType::i8;
    case 2:
      return DataType::i16;
    case 4:
      return DataType::i32;
    case 8:
      return DataType::i64;
    default:
      return std::nullopt;
  }
}

std::optional<DataType> unsigned_integer(Py_ssize_t size) {
  switch (size) {
    case 1:
      return DataType::u8;
    case 2:
      return DataType::u16;
    case 4:
      return DataType::u32;
    case 8:
      return DataType::u64;
    default:
      return std::nullopt;
  }
}

// The letters of Python's struct module, and NumPy's Z for complex numbers. `format` may be null: plain
// bytes.
std::optional<DataType> parse_format(const char* format, Py_ssize_t size) {
  std::string_view letters = format == nullptr ? "B" : format;
  // Byte order: everything but big-endian is this machine's own.
  if (!letters.empty() && std::string_view("@=<").find(letters.front()) != std::string_view::npos)
    letters.remove_prefix(1);
  if (letters == "Zf") return DataType::c64;
  if (letters == "Zd") return DataType::c128;
  if (letters.size() != 1) return std::nullopt;
  switch (letters.front()) {
    case '?':
      return DataType::boolean;
    case 'e':
      return DataType::f16;
    case 'f':
      return DataType::f32;
    case 'd':
      return DataType::f64;
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q':
      return signed_integer(size);
    case 'B':
    case 'H':
    case 'I':
    case 'L':
    case 'Q':
    case 'c':
      return unsigned_integer(size);
    default:
      return std::nullopt;
  }
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
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} is read-only: expected memory that can be written", what));
  if (PyBuffer_IsContiguous(&view, 'C') == 0)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} is not C-contiguous: expected elements that lie one after the other, the "
                            "last index the fastest",
                            what));
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
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} is a masked array, and its mask would be ignored: expected a plain one, such "
                            "as its data or filled()",
                            what));
  if (PyObject_CheckBuffer(object) == 0)
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: expected an array (anything with the buffer "
                                                         "protocol), got {}",
                                                         what, given(pybind11::handle(object))));
  if (PyObject_GetBuffer(object, &view_, PyBUF_FULL_RO) != 0)
    throw Error(ErrorCode::unsupported,
                fmt::format("{} has no memory to share ({}): {}", what, python_complaint(), kElements));
  try {
    check_layout(view_, what, access);
    type_ = element_type(view_, what);
  } catch (...) {
    PyBuffer_Release(&view_);
    throw;
  }
  count_ = static_cast<std::size_t>(view_.len / view_.itemsize);
}

}  // namespace talweg::python
