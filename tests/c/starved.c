/* There is no memory from some allocation of a call on, each of them in turn: a status and a message come
 * back all the same, and nothing ends the process. */
#include <stddef.h>
#include <string.h>

#include "expect.h"

void* __libc_malloc(size_t bytes);

static int allocations_left = -1; /* -1: as many as there is memory for */

/* That of all libraries in this process. */
void* malloc(size_t bytes) {
  if (allocations_left == 0) return NULL;
  if (allocations_left > 0) --allocations_left;
  return __libc_malloc(bytes);
}

int main(void) {
  int without_message = 0, allocations = 0;
  for (int starved = 1; starved; ++allocations) {
    talweg_bounded* sums = NULL;
    allocations_left = allocations;
    const talweg_status status = talweg_bounded_make(NULL, NULL, &sums);
    starved = allocations_left == 0;
    allocations_left = -1;
    const char* const message = talweg_error_message();
    EXPECT(status == TALWEG_INVALID_ARGUMENT || (starved && status == TALWEG_SYSTEM));
    if (strcmp(message, "out of memory") == 0)
      without_message += status == TALWEG_INVALID_ARGUMENT;
    else
      EXPECT(strcmp(message, "the group is NULL") == 0);
  }
  EXPECT(allocations > 2 && without_message == 1);
  printf("starved and well\n");
  return 0;
}
