// What is asked of a call, before anything is started.
#pragma once

#include "forest/forest.h"
#include "talweg/call.h"

namespace talweg::group {

// What a call of rank `rank` of `size` asks a planner for. Throws Error{invalid_argument} for counts that are
// not as many as the operation wants or out of range, for ranks that are none, for a null buffer where
// elements are needed, and for buffers that share memory other than as talweg/group.h allows.
forest::Request checked_request(const Call& call, int rank, int size);
// The same of a message, which is planned later.
void check_message(const Call& call, int rank, int size);
void check_rank(int rank, int size, const char* what);

}  // namespace talweg::group
