// What the functions of the C face have in common: what becomes of an exception, and of what a caller passes.
#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <new>
#include <string>

#include "talweg/group.h"
#include "talweg/talweg.h"

struct talweg_group {
  std::shared_ptr<talweg::Group> group;
};

namespace talweg::c_face {

// Of this thread, until the next one; where there is no memory for it, that is the message.
talweg_status failed(talweg_status status, const char* message) noexcept;
const char* last_message();

// Each code's number is the status' without TALWEG_OK in front.
static_assert(TALWEG_INVALID_ARGUMENT == static_cast<int>(ErrorCode::invalid_argument) + 1);
static_assert(TALWEG_CORRUPTED == static_cast<int>(ErrorCode::corrupted) + 1);

inline talweg_status status_of(ErrorCode code) {
  return static_cast<talweg_status>(static_cast<int>(code) + 1);
}

// Nothing but a status may leave: an exception that reached a C caller would end the process.
template <typename Body>
talweg_status guarded(const Body& body) {
  try {
    body();
    return TALWEG_OK;
  } catch (const Error& error) {
    return failed(status_of(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return failed(TALWEG_SYSTEM, "out of memory");
  } catch (const std::exception& error) {
    return failed(TALWEG_SYSTEM, error.what());
  }
}

// These throw Error{invalid_argument} for what is none.
[[noreturn]] void refuse(const char* what);
Group& checked(const talweg_group* handle);
DataType type_of(talweg_type type);
ReduceOp op_of(talweg_op op);

CallOptions options_of(const talweg_call_options* options);  // NULL: none
// As talweg_describe() says of what it returns.
std::size_t copy_text(const std::string& whole, char* text, std::size_t capacity);

}  // namespace talweg::c_face
