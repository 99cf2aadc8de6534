/* What needs no other rank: explicit options, names, and every kind of nonsense that a caller may pass. */
#include <string.h>

#include "expect.h"

static void names_and_sizes(void) {
  EXPECT(strcmp(talweg_status_name(TALWEG_OK), "ok") == 0);
  EXPECT(strcmp(talweg_status_name(TALWEG_PEER_FAILED), "peer_failed") == 0);
  EXPECT(strcmp(talweg_status_name(TALWEG_CORRUPTED), "corrupted") == 0);
  EXPECT(strcmp(talweg_status_name((talweg_status)999), "unknown") == 0);
  EXPECT(talweg_size_of(TALWEG_C128) == 16);
  EXPECT(talweg_size_of((talweg_type)999) == 0);
  EXPECT(strcmp(talweg_version(), TALWEG_EXPECTED_VERSION) == 0);
}

static talweg_group* join_alone(void) {
  talweg_join_options options = {0};
  options.size = 1;
  options.timeout_ms = 5000;
  talweg_group* group = NULL;
  EXPECT_OK(talweg_join(&options, &group));
  return group;
}

static void nonsense_is_refused(talweg_group* group) {
  float x = 1;
  talweg_work* work = NULL;
  int done = 5;
  talweg_group* sub = group;
  EXPECT(talweg_all_reduce(NULL, &x, &x, 1, TALWEG_F32, TALWEG_SUM) == TALWEG_INVALID_ARGUMENT);
  EXPECT(strstr(talweg_error_message(), "NULL"));
  EXPECT(talweg_all_reduce(group, &x, &x, 1, (talweg_type)-1, TALWEG_SUM) == TALWEG_INVALID_ARGUMENT);
  EXPECT(talweg_all_reduce(group, &x, &x, 1, TALWEG_F32, (talweg_op)99) == TALWEG_INVALID_ARGUMENT);
  EXPECT(talweg_all_gather(group, &x, &x, NULL, TALWEG_F32) == TALWEG_INVALID_ARGUMENT);
  EXPECT(talweg_broadcast(group, &x, 1, TALWEG_F32, 3) == TALWEG_INVALID_ARGUMENT);
  EXPECT(talweg_start_barrier(group, NULL, NULL) == TALWEG_INVALID_ARGUMENT);
  EXPECT(talweg_start_barrier(NULL, NULL, &work) == TALWEG_INVALID_ARGUMENT);
  EXPECT(work == NULL);
  EXPECT(talweg_wait(NULL) == TALWEG_INVALID_ARGUMENT);
  EXPECT(talweg_test(NULL, &done) == TALWEG_INVALID_ARGUMENT);
  EXPECT(done == 0);
  EXPECT(talweg_set_timeout(group, 0) == TALWEG_INVALID_ARGUMENT);
  EXPECT(talweg_split(group, NULL, 2, &sub) == TALWEG_INVALID_ARGUMENT);
  EXPECT(talweg_join(NULL, NULL) == TALWEG_INVALID_ARGUMENT);
  EXPECT(talweg_rank(NULL) == -1 && talweg_size(NULL) == -1);
  EXPECT(sub == NULL);
  talweg_work_free(NULL);
  talweg_leave(NULL);
}

static void a_rank_that_nobody_joins_learns_so(void) {
  talweg_join_options options = {0};
  options.rank = 0;
  options.size = 2;
  options.rendezvous = "tcp://127.71.3.1:27813";
  options.timeout_ms = 200;
  talweg_group* group = (talweg_group*)&options;
  EXPECT(talweg_join(&options, &group) == TALWEG_TIMEOUT);
  EXPECT(group == NULL);
  options.rank = 2;
  EXPECT(talweg_join(&options, &group) == TALWEG_INVALID_ARGUMENT);
  options.rank = 0;
  options.rendezvous = "nowhere";
  EXPECT(talweg_join(&options, &group) == TALWEG_INVALID_ARGUMENT);
  EXPECT(strstr(talweg_error_message(), "rendezvous"));
}

static void a_switch_that_can_never_serve_is_refused(void) {
  talweg_join_options options = {0};
  options.size = 1;
  options.switch_address = "nowhere";
  talweg_group* group = NULL;
  EXPECT(talweg_join(&options, &group) == TALWEG_INVALID_ARGUMENT);
  EXPECT(strstr(talweg_error_message(), "TALWEG_SWITCH: expected an address and a port"));
  EXPECT(strstr(talweg_error_message(), "\"nowhere\""));
  options.switch_address = "127.0.0.1:4711";
  options.switch_key_file = "/none/such";
  EXPECT(talweg_join(&options, &group) != TALWEG_OK);
  EXPECT(strstr(talweg_error_message(), "TALWEG_SWITCH_KEY_FILE"));
  EXPECT(strstr(talweg_error_message(), "/none/such"));
}

int main(void) {
  names_and_sizes();
  talweg_group* group = join_alone();
  EXPECT(talweg_rank(group) == 0 && talweg_size(group) == 1);
  double value = 3;
  EXPECT_OK(talweg_all_reduce(group, &value, &value, 1, TALWEG_F64, TALWEG_SUM));
  EXPECT(value == 3);
  nonsense_is_refused(group);
  talweg_leave(group);
  a_rank_that_nobody_joins_learns_so();
  a_switch_that_can_never_serve_is_refused();
  printf("alone and well\n");
  return 0;
}
