// A Python object with the buffer protocol (NumPy array, bytearray, memoryview, array.array) as elements of
// one type. Holding a Buffer keeps the object from moving or being resized; make and drop it with Python's
// lock held.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <memory>
#include <utility>

#include "talweg/types.h"

namespace talweg::python {

class Buffer {
 public:
  enum class Access { read, write };

  // Throws Error{invalid_argument} for objects without the protocol, not C-contiguous, masked or (for
  // `write`) read-only, and Error{unsupported} for element types that Talweg does not have. `what` names the
  // argument; the text says what was found and what was expected.
  Buffer(PyObject* object, const char* what, Access access);
  ~Buffer() { PyBuffer_Release(&view_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* data() const { return view_.buf; }
  std::size_t count() const { return count_; }
  DataType type() const { return type_; }

 private:
  Py_buffer view_{};
  std::size_t count_ = 0;
  DataType type_ = DataType::u8;
};

using BufferPtr = std::shared_ptr<Buffer>;

BufferPtr readable(pybind11::handle object, const char* what);
BufferPtr writable(pybind11::handle object, const char* what);

// Throws Error{invalid_argument} unless both have elements of one type.
void check_types(const Buffer& in, const Buffer& out);

// The input of a reduction and its output: the same array where `out` is None, else two with equally many
// elements of one type. Throws Error{invalid_argument}.
std::pair<BufferPtr, BufferPtr> reduction_buffers(pybind11::handle array, pybind11::handle out);

}  // namespace talweg::python
