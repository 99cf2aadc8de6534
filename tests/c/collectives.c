/* Every collective, blocking and in flight, against values that are easy to see. Wants 2 ranks or more. */
#include <pthread.h>
#include <string.h>

#include "expect.h"

enum { kMost = 16, kEach = 1000 };

/* Rank r brings r + 1: the sum over n ranks. */
static float sum_of(int n) {
  return (float)(n * (n + 1)) / 2.0F;
}

static float* filled(size_t count, float value) {
  float* data = malloc(count * sizeof *data);
  EXPECT(data);
  for (size_t i = 0; i < count; ++i) data[i] = value;
  return data;
}

static void expect_all(const float* data, size_t count, float value) {
  for (size_t i = 0; i < count; ++i) EXPECT(data[i] == value);
}

static void finish(talweg_work* work) {
  EXPECT(work);
  EXPECT_OK(talweg_wait(work));
  int done = 0;
  EXPECT_OK(talweg_test(work, &done));
  EXPECT(done == 1);
  talweg_work_free(work);
}

static void reductions(talweg_group* group, int in_flight) {
  const int rank = talweg_rank(group), n = talweg_size(group);
  const size_t whole = (size_t)n * kEach;
  size_t counts[kMost];
  for (int r = 0; r < n; ++r) counts[r] = kEach;
  float* in = filled(whole, (float)(rank + 1));
  float* out = filled(whole, -1);
  talweg_work* work = NULL;

  if (in_flight) {
    EXPECT_OK(talweg_start_all_reduce(group, in, out, whole, TALWEG_F32, TALWEG_SUM, NULL, &work));
    finish(work);
  } else {
    EXPECT_OK(talweg_all_reduce(group, in, out, whole, TALWEG_F32, TALWEG_SUM));
  }
  expect_all(out, whole, sum_of(n));
  expect_all(in, whole, (float)(rank + 1));

  memset(out, 0, whole * sizeof *out);
  float* result = rank == 1 ? out : NULL;
  if (in_flight) {
    EXPECT_OK(talweg_start_reduce(group, in, result, whole, TALWEG_F32, TALWEG_MAX, 1, NULL, &work));
    finish(work);
  } else {
    EXPECT_OK(talweg_reduce(group, in, result, whole, TALWEG_F32, TALWEG_MAX, 1));
  }
  expect_all(out, whole, rank == 1 ? (float)n : 0);

  if (in_flight) {
    EXPECT_OK(talweg_start_reduce_scatter(group, in, out, counts, TALWEG_F32, TALWEG_AVG, NULL, &work));
    finish(work);
  } else {
    EXPECT_OK(talweg_reduce_scatter(group, in, out, counts, TALWEG_F32, TALWEG_AVG));
  }
  expect_all(out, kEach, sum_of(n) / (float)n);
  free(in);
  free(out);
}

static void movements(talweg_group* group, int in_flight) {
  const int rank = talweg_rank(group), n = talweg_size(group);
  const size_t whole = (size_t)n * kEach;
  size_t counts[kMost];
  for (int r = 0; r < n; ++r) counts[r] = kEach;
  float* own = filled(kEach, (float)(rank + 1));
  float* in = filled(whole, (float)(rank + 1));
  float* out = filled(whole, -1);
  talweg_work* work = NULL;

  float* word = filled(kEach, rank == n - 1 ? 42.0F : 0.0F);
  if (in_flight) {
    EXPECT_OK(talweg_start_broadcast(group, word, kEach, TALWEG_F32, n - 1, NULL, &work));
    finish(work);
  } else {
    EXPECT_OK(talweg_broadcast(group, word, kEach, TALWEG_F32, n - 1));
  }
  expect_all(word, kEach, 42);
  free(word);

  if (in_flight) {
    EXPECT_OK(talweg_start_all_gather(group, own, out, counts, TALWEG_F32, NULL, &work));
    finish(work);
  } else {
    EXPECT_OK(talweg_all_gather(group, own, out, counts, TALWEG_F32));
  }
  for (int r = 0; r < n; ++r) expect_all(out + r * kEach, kEach, (float)(r + 1));

  memset(out, 0, whole * sizeof *out);
  if (in_flight) {
    EXPECT_OK(talweg_start_all_to_all(group, in, counts, out, counts, TALWEG_F32, NULL, &work));
    finish(work);
  } else {
    EXPECT_OK(talweg_all_to_all(group, in, counts, out, counts, TALWEG_F32));
  }
  for (int r = 0; r < n; ++r) expect_all(out + r * kEach, kEach, (float)(r + 1));

  memset(out, 0, whole * sizeof *out);
  if (in_flight) {
    EXPECT_OK(talweg_start_gather(group, own, out, counts, TALWEG_F32, 0, NULL, &work));
    finish(work);
  } else {
    EXPECT_OK(talweg_gather(group, own, out, counts, TALWEG_F32, 0));
  }
  for (int r = 0; r < n; ++r) expect_all(out + r * kEach, kEach, rank == 0 ? (float)(r + 1) : 0);

  for (int r = 0; r < n; ++r)
    for (int i = 0; i < kEach; ++i) in[r * kEach + i] = (float)(100 + r);
  if (in_flight) {
    EXPECT_OK(talweg_start_scatter(group, in, own, counts, TALWEG_F32, 0, NULL, &work));
    finish(work);
  } else {
    EXPECT_OK(talweg_scatter(group, in, own, counts, TALWEG_F32, 0));
  }
  expect_all(own, kEach, (float)(100 + rank));
  free(own);
  free(in);
  free(out);
}

static void messages(talweg_group* group, int in_flight) {
  const int rank = talweg_rank(group), n = talweg_size(group);
  const int next = (rank + 1) % n, previous = (rank + n - 1) % n;
  int64_t out = rank, in = -1;
  int from = -1;
  talweg_work* sending = NULL;
  EXPECT_OK(talweg_start_send(group, &out, 1, TALWEG_I64, next, 7, NULL, &sending));
  if (in_flight) {
    talweg_work* receiving = NULL;
    const talweg_call_options urgent = {20000, 3};
    EXPECT_OK(talweg_start_recv(group, &in, 1, TALWEG_I64, TALWEG_ANY_RANK, 7, &urgent, &receiving));
    EXPECT_OK(talweg_wait(receiving));
    from = talweg_work_source(receiving);
    talweg_work_free(receiving);
  } else {
    EXPECT_OK(talweg_recv(group, &in, 1, TALWEG_I64, TALWEG_ANY_RANK, 7, &from));
  }
  finish(sending);
  EXPECT(from == previous);
  EXPECT(in == previous);
  if (rank == 0) EXPECT_OK(talweg_send(group, &out, 1, TALWEG_I64, 1, 8));
  if (rank == 1) EXPECT_OK(talweg_recv(group, &in, 1, TALWEG_I64, 0, 8, NULL));
}

static void barriers(talweg_group* group) {
  talweg_work* work = NULL;
  EXPECT_OK(talweg_barrier(group));
  EXPECT_OK(talweg_start_barrier(group, NULL, &work));
  int done = 0;
  while (!done) EXPECT_OK(talweg_test(work, &done));
  EXPECT(talweg_work_sequence(work) > 0);
  talweg_work_free(work);
}

/* The ranks but the first, backwards. */
static void sub_groups(talweg_group* group) {
  const int rank = talweg_rank(group), n = talweg_size(group);
  int members[kMost];
  for (int i = 0; i + 1 < n; ++i) members[i] = n - 1 - i;
  talweg_group* sub = group;
  EXPECT_OK(talweg_split(group, members, (size_t)(n - 1), &sub));
  if (rank == 0) {
    EXPECT(sub == NULL);
    return;
  }
  EXPECT(talweg_rank(sub) == n - 1 - rank);
  EXPECT(talweg_size(sub) == n - 1);
  int32_t value = rank;
  EXPECT_OK(talweg_all_reduce(sub, &value, &value, 1, TALWEG_I32, TALWEG_SUM));
  EXPECT(value == n * (n - 1) / 2);
  talweg_leave(sub);
}

/* Threads that call the same may share a group: whichever of them comes first on each rank. */
static void* calls_of_a_thread(void* group) {
  float data[kEach];
  for (int call = 0; call < 200; ++call) {
    for (int i = 0; i < kEach; ++i) data[i] = (float)(talweg_rank(group) + 1);
    EXPECT_OK(talweg_all_reduce(group, data, data, kEach, TALWEG_F32, TALWEG_SUM));
    expect_all(data, kEach, sum_of(talweg_size(group)));
  }
  return NULL;
}

static void threads(talweg_group* group) {
  pthread_t some[4];
  for (int t = 0; t < 4; ++t) EXPECT(pthread_create(&some[t], NULL, calls_of_a_thread, group) == 0);
  for (int t = 0; t < 4; ++t) EXPECT(pthread_join(some[t], NULL) == 0);
}

static void descriptions(talweg_group* group) {
  char text[8192];
  const size_t needed = talweg_describe(group, text, sizeof text);
  EXPECT(needed <= sizeof text);
  EXPECT(strlen(text) + 1 == needed);
  char part[5];
  EXPECT(talweg_describe(group, part, sizeof part) == needed);
  EXPECT(strlen(part) == 4);
  EXPECT(strncmp(part, text, 4) == 0);
}

int main(void) {
  talweg_group* group = NULL;
  EXPECT_OK(talweg_join(NULL, &group));
  EXPECT(talweg_size(group) == atoi(getenv("WORLD_SIZE")));
  EXPECT(talweg_size(group) >= 2 && talweg_size(group) <= kMost);
  for (int in_flight = 0; in_flight < 2; ++in_flight) {
    reductions(group, in_flight);
    movements(group, in_flight);
    messages(group, in_flight);
  }
  barriers(group);
  sub_groups(group);
  threads(group);
  descriptions(group);
  EXPECT_OK(talweg_barrier(group));
  const int rank = talweg_rank(group);
  talweg_leave(group);
  if (rank == 0) printf("every collective is right\n");
  return 0;
}
