/* Sums of which a part may be lost, over a network that loses none, or ("lossy") one that does
 * (tests/python/lossy_network.c, which is preloaded then), or ("switched") by a switch. Wants 3 ranks. */
#include <dlfcn.h>
#include <string.h>

#include "expect.h"

enum { kCount = 36000, kRanks = 3, kExactCalls = 20, kPacketBytes = 400 };

static float number(size_t i, int rank, int call) {
  return (float)(int)((i * 37 + (size_t)rank * 11 + (size_t)call * 5) % 201) - 100.0F;
}

static float sum_of(size_t i, int call) {
  float sum = 0;
  for (int r = 0; r < kRanks; ++r) sum += number(i, r, call);
  return sum;
}

static void fill(float* data, int rank, int call) {
  for (size_t i = 0; i < kCount; ++i) data[i] = number(i, rank, call);
}

static float* zeros(void) {
  float* data = calloc(kCount, sizeof *data);
  EXPECT(data);
  return data;
}

static void expect_sums(const float* data, int call) {
  for (size_t i = 0; i < kCount; ++i) EXPECT(data[i] == sum_of(i, call));
}

static void sums_are_sums(talweg_group* group) {
  talweg_bounded* sums = NULL;
  EXPECT_OK(talweg_bounded_make(group, NULL, &sums));
  float *in = zeros(), *out = zeros(), *residual = zeros();
  const int rank = talweg_rank(group);
  const size_t layers[2] = {kCount - 1000, 1000};
  uint64_t of_layer[2] = {7, 7}, of_sender[kRanks] = {7, 7, 7};
  talweg_bounded_call_options options = {0};
  options.timeout_ms = 20000;
  options.priority = 2;
  options.depth = 0.5;
  options.layers = layers;
  options.layer_count = 2;
  options.lost_of_layer = of_layer;
  options.lost_of_sender = of_sender;
  talweg_loss_report report;
  memset(&report, 1, sizeof report);
  fill(in, rank, 0);
  EXPECT_OK(
      talweg_bounded_all_reduce(sums, in, out, kCount, TALWEG_F32, TALWEG_SUM, residual, &options, &report));
  expect_sums(out, 0);
  EXPECT(report.exact == 1 && report.lost_bytes == 0 && report.lost_important_bytes == 0);
  EXPECT(report.sent_bytes == (uint64_t)kCount / kRanks * (kRanks - 1) * sizeof *in);
  EXPECT(report.seconds > 0);
  EXPECT(report.by_switch == 0);
  EXPECT(of_layer[0] == 0 && of_layer[1] == 0);
  for (int r = 0; r < kRanks; ++r) EXPECT(of_sender[r] == 0);

  /* Room for layer_count numbers is room for none. */
  options.layers = NULL;
  options.layer_count = 0;
  of_layer[0] = 7;
  fill(in, rank, 1);
  EXPECT_OK(talweg_bounded_all_reduce(sums, in, in, kCount, TALWEG_F32, TALWEG_AVG, NULL, &options, NULL));
  EXPECT(of_layer[0] == 7 && of_sender[0] == 0);
  for (size_t i = 0; i < kCount; ++i) EXPECT(in[i] == sum_of(i, 1) / (float)kRanks);

  size_t first = 0, part = 0;
  EXPECT_OK(talweg_bounded_part(sums, rank, kCount, &first, &part));
  EXPECT(part == kCount / kRanks && first == part * (size_t)rank);
  fill(in, rank, 2);
  EXPECT_OK(
      talweg_bounded_push(sums, in, in + first, kCount, TALWEG_F32, TALWEG_SUM, residual, NULL, &report));
  const talweg_call_options soon = {20000, 1};
  EXPECT_OK(talweg_bounded_pull(sums, in + first, out, kCount, TALWEG_F32, &soon));
  expect_sums(out, 2);
  for (size_t i = 0; i < kCount; ++i) EXPECT(residual[i] == 0);

  char text[4096];
  EXPECT(talweg_bounded_explain(sums, kCount, TALWEG_F32, text, sizeof text) == strlen(text) + 1);
  /* 1 % of a third of 36000 floats, in whole packets or not. */
  EXPECT(strstr(
      text, "\np: 0.01: of what a rank sends a server in a call up to 480 of 48000 bytes may be missing"));
  EXPECT(talweg_bounded_explain(sums, kCount, TALWEG_U8, text, sizeof text) == 1);
  EXPECT(text[0] == '\0' && strstr(talweg_error_message(), "of u8"));
  talweg_bounded_free(sums);
  free(residual);
  free(out);
  free(in);
}

static void servers_sum(talweg_group* group) {
  const int servers[1] = {1};
  talweg_bounded_options options = {0};
  options.servers = servers;
  options.server_count = 1;
  options.dedicated = 1;
  talweg_bounded* sums = NULL;
  EXPECT_OK(talweg_bounded_make(group, &options, &sums));
  const int rank = talweg_rank(group);
  size_t part = 99;
  EXPECT_OK(talweg_bounded_part(sums, rank, kCount, NULL, &part));
  EXPECT(part == (rank == 1 ? (size_t)kCount : 0));
  float *in = zeros(), *out = zeros();
  fill(in, rank, 0);
  talweg_loss_report report;
  EXPECT_OK(talweg_bounded_all_reduce(sums, rank == 1 ? NULL : in, out, kCount, TALWEG_F32, TALWEG_SUM, NULL,
                                      NULL, &report));
  for (size_t i = 0; i < kCount; ++i) EXPECT(out[i] == sum_of(i, 0) - number(i, 1, 0));
  EXPECT(report.exact == 1 && (report.sent_bytes == 0) == (rank == 1));
  talweg_bounded_free(sums);
  free(out);
  free(in);
}

static void what_is_wrong_is_said(talweg_group* group) {
  const int rank = talweg_rank(group);
  talweg_bounded* sums = (talweg_bounded*)group;
  talweg_bounded_options options = {0};
  options.p = 0.7;
  EXPECT(talweg_bounded_make(group, &options, &sums) == TALWEG_INVALID_ARGUMENT);
  EXPECT(sums == NULL && strstr(talweg_error_message(), "p = 0.7: expected 0 to 0.5"));
  options.p = 0.1;
  options.p_sender = 0.2;
  EXPECT(talweg_bounded_make(group, &options, &sums) == TALWEG_INVALID_ARGUMENT);
  EXPECT(strstr(talweg_error_message(), "p_sender"));
  options.p_sender = 0;
  options.policy = 2;
  EXPECT(talweg_bounded_make(group, &options, &sums) == TALWEG_INVALID_ARGUMENT);
  EXPECT(strstr(talweg_error_message(), "talweg_loss_policy"));
  options.policy = TALWEG_LOSS_RESCALE;
  options.server_count = 1;
  EXPECT(talweg_bounded_make(group, &options, &sums) == TALWEG_INVALID_ARGUMENT);
  EXPECT(talweg_bounded_make(NULL, NULL, &sums) == TALWEG_INVALID_ARGUMENT);
  EXPECT(talweg_bounded_make(group, NULL, NULL) == TALWEG_INVALID_ARGUMENT);
  options.server_count = 0;
  options.p = rank == 0 ? 0.1 : 0.2;
  EXPECT(talweg_bounded_make(group, &options, &sums) == TALWEG_MISMATCH);
  options.p = 0.1;
  EXPECT_OK(talweg_bounded_make(group, &options, &sums));

  float data[2] = {1, 2};
  talweg_loss_report report;
  memset(&report, 1, sizeof report);
  EXPECT(talweg_bounded_all_reduce(NULL, data, data, 2, TALWEG_F32, TALWEG_AVG, NULL, NULL, &report) ==
         TALWEG_INVALID_ARGUMENT);
  EXPECT(report.sent_bytes == 0 && report.exact == 0 && report.seconds == 0);
  EXPECT(talweg_bounded_part(sums, kRanks, 2, NULL, NULL) == TALWEG_INVALID_ARGUMENT);
  /* What one rank gets wrong all hear of, and the next call may be right. */
  const talweg_status theirs = rank == 1 ? TALWEG_INVALID_ARGUMENT : TALWEG_MISMATCH;
  const talweg_type none = rank == 1 ? 99 : TALWEG_F32;
  EXPECT(talweg_bounded_all_reduce(sums, data, data, 2, none, TALWEG_AVG, NULL, NULL, NULL) == theirs);
  if (rank == 1) EXPECT(strstr(talweg_error_message(), "none of talweg_type"));
  EXPECT(talweg_bounded_pull(sums, data, data, 2, none, NULL) == theirs);
  const talweg_op sum = rank == 1 ? TALWEG_SUM : TALWEG_AVG; /* with rescale */
  EXPECT(talweg_bounded_all_reduce(sums, data, data, 2, TALWEG_F32, sum, NULL, NULL, NULL) == theirs);
  talweg_bounded_call_options layers = {0};
  layers.layer_count = rank == 1 ? 1 : 0;
  EXPECT(talweg_bounded_all_reduce(sums, data, data, 2, TALWEG_F32, TALWEG_AVG, NULL, &layers, NULL) ==
         theirs);
  EXPECT(talweg_bounded_all_reduce(sums, data, data, rank == 1 ? 1 : 2, TALWEG_F32, TALWEG_AVG, NULL, NULL,
                                   NULL) == TALWEG_MISMATCH);
  EXPECT(data[0] == 1 && data[1] == 2);
  EXPECT_OK(talweg_bounded_all_reduce(sums, data, data, 2, TALWEG_F32, TALWEG_AVG, NULL, NULL, NULL));
  EXPECT(data[0] == 1 && data[1] == 2);

  /* Rank 0 leaves its barrier when all have entered theirs, which its abort may meet. */
  const talweg_status entered = talweg_barrier(group);
  EXPECT(entered == TALWEG_OK || (entered == TALWEG_ABORTED && rank != 0));
  if (rank == 0) EXPECT_OK(talweg_abort(group, "the loss is not a number"));
  EXPECT(talweg_bounded_all_reduce(sums, data, data, 2, TALWEG_F32, TALWEG_AVG, NULL, NULL, NULL) ==
         TALWEG_ABORTED);
  EXPECT(strstr(talweg_error_message(), "the loss is not a number"));
  talweg_bounded_free(sums);
  talweg_bounded_free(NULL);
}

/* Of what this process sends in datagrams from now on. */
static void lose(double part, unsigned seed) {
  void (*begin)(double, unsigned) = NULL;
  void* const found = dlsym(dlopen(NULL, RTLD_NOW), "lose");
  EXPECT(found);
  memcpy(&begin, &found, sizeof begin);
  begin(part, seed);
}

/* What calls have given, and what residuals have left, is what went in. */
static void what_is_lost_comes_later(talweg_group* group) {
  const int rank = talweg_rank(group);
  talweg_bounded_options options = {0};
  options.p = 0.3;
  options.packet_bytes = kPacketBytes;
  talweg_bounded* sums = NULL;
  lose(0.2, (unsigned)rank);
  EXPECT_OK(talweg_bounded_make(group, &options, &sums));
  float *in = zeros(), *out = zeros(), *residual = zeros(), *all = zeros(), *least = zeros(), *most = zeros();
  const size_t layers[2] = {kCount / 2, kCount / 2};
  uint64_t of_layer[2], of_sender[kRanks];
  talweg_bounded_call_options call = {0};
  call.layers = layers;
  call.layer_count = 2;
  call.lost_of_layer = of_layer;
  call.lost_of_sender = of_sender;
  int64_t lost = 0, missed = 0;
  const int calls = kExactCalls + 10;
  for (int c = 0; c < calls; ++c) {
    fill(in, rank, c);
    talweg_loss_report report;
    EXPECT_OK(
        talweg_bounded_all_reduce(sums, in, out, kCount, TALWEG_F32, TALWEG_SUM, residual, &call, &report));
    EXPECT(report.exact == (c < kExactCalls));
    if (report.exact) EXPECT(report.lost_bytes == 0);
    EXPECT((double)report.lost_bytes <= 0.3 * (double)report.sent_bytes);
    EXPECT(of_layer[0] + of_layer[1] == report.lost_bytes && of_sender[rank] == 0);
    lost += (int64_t)report.lost_bytes;
    for (int r = 0; r < kRanks; ++r) missed += (int64_t)of_sender[r];
    for (size_t i = 0; i < kCount; ++i) all[i] += out[i];
    EXPECT_OK(talweg_all_reduce(group, out, least, kCount, TALWEG_F32, TALWEG_MIN));
    EXPECT_OK(talweg_all_reduce(group, out, most, kCount, TALWEG_F32, TALWEG_MAX));
    EXPECT(memcmp(least, most, kCount * sizeof *least) == 0);
  }
  EXPECT_OK(talweg_all_reduce(group, &lost, &lost, 1, TALWEG_I64, TALWEG_SUM));
  EXPECT_OK(talweg_all_reduce(group, &missed, &missed, 1, TALWEG_I64, TALWEG_SUM));
  EXPECT(lost > 0 && lost == missed);
  EXPECT_OK(talweg_all_reduce(group, residual, residual, kCount, TALWEG_F32, TALWEG_SUM));
  for (size_t i = 0; i < kCount; ++i) {
    float whole = 0;
    for (int c = 0; c < calls; ++c) whole += sum_of(i, c);
    EXPECT(all[i] + residual[i] == whole);
  }
  talweg_bounded_free(sums);
  free(most);
  free(least);
  free(all);
  free(residual);
  free(out);
  free(in);
}

/* By datagrams, of which some may be lost after the first 20 sums, until all ranks have joined it. */
static void a_report_says_so_where_a_switch_made_the_sum(talweg_group* group) {
  talweg_bounded* sums = NULL;
  EXPECT_OK(talweg_bounded_make(group, NULL, &sums));
  float* in = zeros();
  talweg_loss_report report = {0};
  while (!report.by_switch) {
    fill(in, talweg_rank(group), 0);
    EXPECT_OK(talweg_bounded_all_reduce(sums, in, in, kCount, TALWEG_F32, TALWEG_SUM, NULL, NULL, &report));
    if (report.exact) expect_sums(in, 0);
  }
  EXPECT(report.by_switch == 1 && report.exact == 1 && report.sent_bytes == kCount * sizeof *in);
  talweg_bounded_free(sums);
  free(in);
}

int main(int argc, char** argv) {
  talweg_group* group = NULL;
  EXPECT_OK(talweg_join(NULL, &group));
  EXPECT(talweg_size(group) == kRanks);
  const int rank = talweg_rank(group);
  if (argc > 1 && strcmp(argv[1], "lossy") == 0) {
    what_is_lost_comes_later(group);
    EXPECT_OK(talweg_barrier(group));
  } else if (argc > 1 && strcmp(argv[1], "switched") == 0) {
    a_report_says_so_where_a_switch_made_the_sum(group);
    EXPECT_OK(talweg_barrier(group));
  } else {
    sums_are_sums(group);
    servers_sum(group);
    what_is_wrong_is_said(group);
  }
  talweg_leave(group);
  if (rank == 0) printf("what was lost is known\n");
  return 0;
}
