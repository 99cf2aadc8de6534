#include "face.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <string>

namespace talweg::c_face {

namespace {

// As errno: a thread's own, so neither threads nor groups meet in it.
thread_local std::string message_of_thread;

}  // namespace

talweg_status failed(talweg_status status, const char* message) noexcept {
  try {
    message_of_thread = message;
  } catch (const std::bad_alloc&) {
    message_of_thread = "out of memory";  // as short a text has room in the string itself
  }
  return status;
}

const char* last_message() {
  return message_of_thread.c_str();
}

void refuse(const char* what) {
  throw Error(ErrorCode::invalid_argument, what);
}

Group& checked(const talweg_group* handle) {
  if (!handle) refuse("the group is NULL");
  return *handle->group;
}

DataType type_of(talweg_type type) {
  if (type < 0 || type >= kDataTypes) refuse("the element type is none of talweg_type");
  return static_cast<DataType>(type);
}

ReduceOp op_of(talweg_op op) {
  if (op < 0 || op >= kReduceOps) refuse("the reduction is none of talweg_op");
  return static_cast<ReduceOp>(op);
}

CallOptions options_of(const talweg_call_options* options) {
  CallOptions call;
  if (!options) return call;
  call.timeout = std::chrono::milliseconds(options->timeout_ms);
  call.priority = options->priority;
  return call;
}

std::size_t copy_text(const std::string& whole, char* text, std::size_t capacity) {
  if (text && capacity > 0) {
    const std::size_t shown = std::min(whole.size(), capacity - 1);
    std::memcpy(text, whole.data(), shown);
    text[shown] = '\0';
  }
  return whole.size() + 1;
}

}  // namespace talweg::c_face
