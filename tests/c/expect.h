/* What the C tests say when something is wrong: file, line, rank, expectation, and the library's own message.
 */
#ifndef TALWEG_TESTS_C_EXPECT_H
#define TALWEG_TESTS_C_EXPECT_H

#include <stdio.h>
#include <stdlib.h>

#include "talweg/talweg.h"

#define EXPECT(condition)                                                                     \
  do {                                                                                        \
    if (!(condition)) {                                                                       \
      fprintf(stderr, "%s:%d: expected %s; last error: %s\n", __FILE__, __LINE__, #condition, \
              talweg_error_message());                                                        \
      exit(1);                                                                                \
    }                                                                                         \
  } while (0)

#define EXPECT_OK(call) EXPECT((call) == TALWEG_OK)

#endif
