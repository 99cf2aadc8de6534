#include "buffer.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>

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

}  // namespace

Buffer::Buffer(PyObject* object, const char* what, Access access) {
  const int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (access == Access::write ? PyBUF_WRITABLE : 0);
  if (PyObject_GetBuffer(object, &view_, flags) != 0) {
    PyErr_Clear();
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("{} must be a C-contiguous{} array (anything with the buffer protocol), not this {}",
                    what, access == Access::write ? ", writable" : "", Py_TYPE(object)->tp_name));
  }
  const auto type = parse_format(view_.format, view_.itemsize);
  if (!type) {
    const auto text = fmt::format("{} has elements of format '{}', which Talweg does not know", what,
                                  view_.format == nullptr ? "" : view_.format);
    PyBuffer_Release(&view_);
    throw Error(ErrorCode::unsupported, text);
  }
  type_ = *type;
  count_ = static_cast<std::size_t>(view_.len / view_.itemsize);
}

}  // namespace talweg::python
