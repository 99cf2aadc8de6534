/* What goes wrong is a status and a message, on every rank, and costs nothing else. Wants 2 ranks or more. */
#include <string.h>

#include "expect.h"

static void mismatches_leave_the_group_usable(talweg_group* group) {
  float data[4] = {1, 2, 3, 4};
  const float before[4] = {1, 2, 3, 4};
  const size_t count = talweg_rank(group) == 0 ? 4 : 3;
  EXPECT(talweg_all_reduce(group, data, data, count, TALWEG_F32, TALWEG_SUM) == TALWEG_MISMATCH);
  EXPECT(strstr(talweg_error_message(), "all_reduce"));
  EXPECT(memcmp(data, before, sizeof data) == 0);
  EXPECT_OK(talweg_barrier(group));
}

static void deadlines_pass(talweg_group* group) {
  char byte = 0;
  talweg_work* work = NULL;
  const talweg_call_options soon = {50, 0};
  EXPECT_OK(talweg_start_recv(group, &byte, 1, TALWEG_U8, TALWEG_ANY_RANK, 99, &soon, &work));
  EXPECT(talweg_wait(work) == TALWEG_TIMEOUT);
  EXPECT(strlen(talweg_error_message()) > 0);
  int done = 0;
  EXPECT(talweg_test(work, &done) == TALWEG_TIMEOUT);
  EXPECT(done == 1);
  talweg_work_free(work);
}

static void works_outlive_the_group(void) {
  talweg_join_options options = {0};
  options.prefix = "second/";
  talweg_group* group = NULL;
  EXPECT_OK(talweg_join(&options, &group));
  char byte = 0;
  talweg_work* work = NULL;
  EXPECT_OK(talweg_barrier(group)); /* which would wait for the message */
  EXPECT_OK(talweg_start_recv(group, &byte, 1, TALWEG_U8, TALWEG_ANY_RANK, 1, NULL, &work));
  talweg_leave(group);
  EXPECT(talweg_wait(work) != TALWEG_OK);
  talweg_work_free(work);
}

/* Rank 0 leaves its barrier when all have entered theirs: its abort may meet the others still in it. */
static void an_abort_reaches_everybody(talweg_group* group) {
  talweg_status status = talweg_barrier(group);
  if (talweg_rank(group) == 0) {
    EXPECT(status == TALWEG_OK);
    EXPECT_OK(talweg_abort(group, "the loss is not a number"));
  }
  while (status == TALWEG_OK) status = talweg_barrier(group);
  EXPECT(status == TALWEG_ABORTED);
  EXPECT(strstr(talweg_error_message(), "the loss is not a number"));
}

int main(void) {
  talweg_group* group = NULL;
  EXPECT_OK(talweg_join(NULL, &group));
  EXPECT_OK(talweg_set_timeout(group, 20000));
  mismatches_leave_the_group_usable(group);
  deadlines_pass(group);
  an_abort_reaches_everybody(group);
  const int rank = talweg_rank(group);
  talweg_leave(group);
  works_outlive_the_group();
  if (rank == 0) printf("every failure has a name\n");
  return 0;
}
