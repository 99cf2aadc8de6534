/* Talweg for C: a group of ranks that call collectives together. Plain C99; link libtalweg.
 *
 * How to use it:
 *   1. Start N processes that know their rank (talweg run, torchrun, mpirun and srun all tell them).
 *   2. talweg_group* group;
 *      if (talweg_join(NULL, &group) != TALWEG_OK) { fprintf(stderr, "%s\n", talweg_error_message()); ... }
 *   3. talweg_all_reduce(group, in, out, n, TALWEG_F32, TALWEG_SUM);                        blocks, or:
 *      talweg_work* work;
 *      talweg_start_all_reduce(group, in, out, n, TALWEG_F32, TALWEG_SUM, NULL, &work);     in flight
 *   4. talweg_wait(work); talweg_work_free(work);
 *   5. talweg_leave(group);
 *
 * Rules. Every rank calls the same collectives in the same order; a call that differs in operation, type,
 * count, reduction or root returns TALWEG_MISMATCH on every rank before any buffer is written, and the group
 * stays usable. Counts are elements, never bytes. Buffers belong to the caller and must stay untouched until
 * the call has returned or its work is done. `in == out` is allowed in all_reduce, reduce and broadcast, and
 * where one is the rank's own part of the other (all_gather, gather, reduce_scatter, scatter) at its own
 * offset; all_to_all wants distinct buffers. Any thread may call; calls of one group are ordered by when they
 * were made. Every call has a deadline and ends in TALWEG_OK or in a status whose message names rank,
 * operation and sequence number: nothing hangs.
 *
 * Handles. What a function hands out through a pointer is the caller's to give back: groups by talweg_leave,
 * works by talweg_work_free, bounded sums by talweg_bounded_free. Where a function fails, it has set the
 * handle to NULL. A null handle that is passed in is TALWEG_INVALID_ARGUMENT.
 */
#ifndef TALWEG_TALWEG_H
#define TALWEG_TALWEG_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What came of a call. The numbers are part of the library's interface: append only. */
typedef enum talweg_status {
  TALWEG_OK = 0,
  TALWEG_INVALID_ARGUMENT = 1, /* a call or an option that can never work; nothing was changed */
  TALWEG_BAD_FILE = 2,         /* an input file says something wrong; the message has file and line */
  TALWEG_UNSUPPORTED = 3,      /* well-formed, but this build or this machine cannot do it */
  TALWEG_SYSTEM = 4,           /* the operating system refused; the message has its reason */
  TALWEG_TIMEOUT = 5,          /* a deadline passed; the message names who was waited for */
  TALWEG_PEER_FAILED = 6,      /* another rank died or left */
  TALWEG_ABORTED = 7,          /* this rank or another one called abort */
  TALWEG_VERSION = 8,          /* the two sides speak different versions */
  TALWEG_MISMATCH = 9,         /* ranks disagree about what collective they are in; no buffer was written */
  TALWEG_CORRUPTED = 10        /* a checksum did not match */
} talweg_status;

/* Element types. An int, as reductions are: a number that is none of these is refused, whatever it is. */
enum {
  TALWEG_U8 = 0,
  TALWEG_I8 = 1,
  TALWEG_U16 = 2,
  TALWEG_I16 = 3,
  TALWEG_U32 = 4,
  TALWEG_I32 = 5,
  TALWEG_U64 = 6,
  TALWEG_I64 = 7,
  TALWEG_F16 = 8,  /* IEEE binary16; arithmetic in float */
  TALWEG_BF16 = 9, /* bfloat16; arithmetic in float */
  TALWEG_F32 = 10,
  TALWEG_F64 = 11,
  TALWEG_C64 = 12,     /* two floats: real, imaginary */
  TALWEG_C128 = 13,    /* two doubles */
  TALWEG_BOOLEAN = 14, /* one byte, 0 or 1: sum and max are OR, product and min are AND */
  TALWEG_TYPES         /* how many there are: a later version may have more */
};
typedef int talweg_type;

/* Reductions. */
enum {
  TALWEG_SUM = 0,
  TALWEG_PRODUCT = 1,
  TALWEG_MIN = 2,
  TALWEG_MAX = 3,
  TALWEG_BIT_AND = 4,
  TALWEG_BIT_OR = 5,
  TALWEG_BIT_XOR = 6,
  TALWEG_AVG = 7 /* the sum, divided by the number of ranks (integers: truncated toward zero) */
};
typedef int talweg_op;

typedef struct talweg_group talweg_group;
typedef struct talweg_work talweg_work;

/* How to join. All zero means: everything from the environment, as talweg_join(NULL, ...) does. Strings may
 * be NULL, are read during the call only, and beat the environment. */
typedef struct talweg_join_options {
  int rank;                    /* 0 .. size-1; read where size > 0 */
  int size;                    /* 0: rank and size from the launcher's environment */
  const char* rendezvous;      /* "tcp://host:port", served by rank 0, or "file:/path" that all ranks see */
  const char* prefix;          /* of the keys at the rendezvous: several groups can share one */
  int64_t timeout_ms;          /* default deadline of calls and of joining; 0: TALWEG_TIMEOUT or 30 s */
  const char* interface;       /* as TALWEG_SOCKET_IFNAME */
  const char* cluster;         /* file that describes the network, as TALWEG_CLUSTER */
  const char* algorithm;       /* as TALWEG_ALGO */
  const char* switch_address;  /* of switches that sum, as TALWEG_SWITCH */
  const char* switch_key_file; /* as TALWEG_SWITCH_KEY_FILE */
} talweg_join_options;

/* Of one call in flight. All zero means: the group's deadline, the lowest priority. */
typedef struct talweg_call_options {
  int64_t timeout_ms; /* 0: the group's */
  int priority; /* 0 .. 7: what this rank sends of a call with a higher one overtakes, at chunk granularity;
                   other ranks may give another, which changes no result */
} talweg_call_options;

/* "0.1.0", of the library that is loaded. Static. */
const char* talweg_version(void);
/* "peer_failed" for TALWEG_PEER_FAILED. Static; "unknown" for a number that is no status. */
const char* talweg_status_name(talweg_status status);
/* One line about the last call of this thread that did not return TALWEG_OK: what was attempted, with whom,
 * and the reason. Valid until this thread's next such call; "" before the first. */
const char* talweg_error_message(void);
/* Bytes of one element; 0 for a number that is no type. */
size_t talweg_size_of(talweg_type type);

/* Blocks until all ranks are connected to each other. `options` may be NULL. TALWEG_INVALID_ARGUMENT
 * (options, an interface that does not exist), TALWEG_TIMEOUT (names the ranks that never came),
 * TALWEG_SYSTEM, TALWEG_VERSION. */
talweg_status talweg_join(const talweg_join_options* options, talweg_group** group);
/* Gives the handle back; local and bounded. What is in flight ends with TALWEG_ABORTED here, and the other
 * ranks learn that this one has left. NULL is allowed. */
void talweg_leave(talweg_group* group);
/* Fails everything in flight and every later call, here and on all other ranks, with TALWEG_ABORTED. `why`
 * becomes part of every rank's message. */
talweg_status talweg_abort(talweg_group* group, const char* why);
/* A group of `count` of this group's ranks, numbered in the order given; every rank of *this* group calls it,
 * in the same order. *sub is NULL on ranks that are not in the list. It shares this group's connections. */
talweg_status talweg_split(talweg_group* group, const int* ranks, size_t count, talweg_group** sub);
talweg_status talweg_set_timeout(talweg_group* group, int64_t timeout_ms);
/* This process's rank, 0 .. size-1, and the number of ranks; -1 for NULL. */
int talweg_rank(const talweg_group* group);
int talweg_size(const talweg_group* group);
/* How the group is connected and what was chosen and why, one "key: value (origin)" a line. Writes at most
 * `capacity` bytes, the final '\0' included, and returns how many the whole text needs, as snprintf does, but
 * with the '\0'. */
size_t talweg_describe(const talweg_group* group, char* text, size_t capacity);

/* The collectives: each blocks until done. */

/* `in`, `out`: count elements. */
talweg_status talweg_all_reduce(talweg_group* group, const void* in, void* out, size_t count,
                                talweg_type type, talweg_op op);
/* `out` is written on the root only and may be NULL elsewhere. */
talweg_status talweg_reduce(talweg_group* group, const void* in, void* out, size_t count, talweg_type type,
                            talweg_op op, int root);
/* `data`: count elements, read on the root and written elsewhere. */
talweg_status talweg_broadcast(talweg_group* group, void* data, size_t count, talweg_type type, int root);
/* `counts`, here and below: one number for each rank. `in`: sum(counts) elements; `out`: counts[rank]. */
talweg_status talweg_reduce_scatter(talweg_group* group, const void* in, void* out, const size_t* counts,
                                    talweg_type type, talweg_op op);
/* `in`: counts[rank] elements; `out`: sum(counts). */
talweg_status talweg_all_gather(talweg_group* group, const void* in, void* out, const size_t* counts,
                                talweg_type type);
/* `in`: in_counts[d] elements for each destination d, one behind the other; `out`: out_counts[s] from each
 * source. */
talweg_status talweg_all_to_all(talweg_group* group, const void* in, const size_t* in_counts, void* out,
                                const size_t* out_counts, talweg_type type);
/* `in`: counts[rank] elements; `out`: sum(counts), on the root. The root knows every count; another rank may
 * pass 0 for the ranks that it does not know. */
talweg_status talweg_gather(talweg_group* group, const void* in, void* out, const size_t* counts,
                            talweg_type type, int root);
/* `in`: sum(counts) elements, on the root; `out`: counts[rank]. */
talweg_status talweg_scatter(talweg_group* group, const void* in, void* out, const size_t* counts,
                             talweg_type type, int root);
/* Matched by (peer, tag), in order; not ordered against collectives. */
talweg_status talweg_send(talweg_group* group, const void* data, size_t count, talweg_type type,
                          int destination, uint32_t tag);
/* `source` may be TALWEG_ANY_RANK. `from`, unless NULL, is set to who sent. */
talweg_status talweg_recv(talweg_group* group, void* data, size_t count, talweg_type type, int source,
                          uint32_t tag, int* from);
/* Done when every rank has called it, and everything that this rank started before it has ended. */
talweg_status talweg_barrier(talweg_group* group);

#define TALWEG_ANY_RANK (-1)

/* The same, in flight: each returns at once and hands out a work. `options` may be NULL. */

talweg_status talweg_start_all_reduce(talweg_group* group, const void* in, void* out, size_t count,
                                      talweg_type type, talweg_op op, const talweg_call_options* options,
                                      talweg_work** work);
talweg_status talweg_start_reduce(talweg_group* group, const void* in, void* out, size_t count,
                                  talweg_type type, talweg_op op, int root,
                                  const talweg_call_options* options, talweg_work** work);
talweg_status talweg_start_broadcast(talweg_group* group, void* data, size_t count, talweg_type type,
                                     int root, const talweg_call_options* options, talweg_work** work);
talweg_status talweg_start_reduce_scatter(talweg_group* group, const void* in, void* out,
                                          const size_t* counts, talweg_type type, talweg_op op,
                                          const talweg_call_options* options, talweg_work** work);
talweg_status talweg_start_all_gather(talweg_group* group, const void* in, void* out, const size_t* counts,
                                      talweg_type type, const talweg_call_options* options,
                                      talweg_work** work);
talweg_status talweg_start_all_to_all(talweg_group* group, const void* in, const size_t* in_counts, void* out,
                                      const size_t* out_counts, talweg_type type,
                                      const talweg_call_options* options, talweg_work** work);
talweg_status talweg_start_gather(talweg_group* group, const void* in, void* out, const size_t* counts,
                                  talweg_type type, int root, const talweg_call_options* options,
                                  talweg_work** work);
talweg_status talweg_start_scatter(talweg_group* group, const void* in, void* out, const size_t* counts,
                                   talweg_type type, int root, const talweg_call_options* options,
                                   talweg_work** work);
talweg_status talweg_start_send(talweg_group* group, const void* data, size_t count, talweg_type type,
                                int destination, uint32_t tag, const talweg_call_options* options,
                                talweg_work** work);
talweg_status talweg_start_recv(talweg_group* group, void* data, size_t count, talweg_type type, int source,
                                uint32_t tag, const talweg_call_options* options, talweg_work** work);
talweg_status talweg_start_barrier(talweg_group* group, const talweg_call_options* options,
                                   talweg_work** work);

/* Sets *done to 1 when the work is done, well or badly, else to 0; makes progress. Returns what came of it:
 * TALWEG_OK while it is in flight and after success. */
talweg_status talweg_test(talweg_work* work, int* done);
/* Blocks until done and returns what came of it; may be called again. The collective's own deadline bounds
 * the wait. */
talweg_status talweg_wait(talweg_work* work);
/* The call's number within its group, the same on all ranks; 0 for NULL. */
uint64_t talweg_work_sequence(const talweg_work* work);
/* Of a receive that is done: who sent; otherwise -1. */
int talweg_work_source(const talweg_work* work);
/* Gives the handle back. It does not cancel: the buffers still belong to the call until it is done. NULL is
 * allowed. */
void talweg_work_free(talweg_work* work);

/* Sums of gradients of which a bounded part may be lost on the way: nobody waits for the last packets
 * (docs/bounded-loss.md). All ranks end with the same bits, whatever was lost. A residual keeps what was lost
 * of this rank's, and brings it with the next call.
 *
 *   talweg_bounded* sums;                                               every rank, with the same options
 *   talweg_bounded_options bounds = {.p = 0.01};
 *   talweg_bounded_make(group, &bounds, &sums);
 *   float* residual = calloc(n, sizeof *residual);                      one for each tensor, and kept
 *   talweg_bounded_all_reduce(sums, gradient, gradient, n, TALWEG_F32, TALWEG_AVG, residual, NULL, NULL);
 *   talweg_bounded_free(sums);
 */
typedef struct talweg_bounded talweg_bounded;

/* What is done about a part that was lost. */
enum {
  TALWEG_LOSS_ZERO = 0,   /* it counts as zero, and comes later where there is a residual */
  TALWEG_LOSS_RESCALE = 1 /* the mean (TALWEG_AVG) is over those ranks whose part has come; no residual */
};
typedef int talweg_loss_policy;

/* The same on all ranks, but for what the network may do with packets. All zero means: nothing is lost. */
typedef struct talweg_bounded_options {
  double p;        /* 0 .. 0.5: the part of a rank's data that may be missing */
  double p_sender; /* up to p: of what one rank sends another one, on average over calls of one size; 0: p */
  double p_call;   /* up to p: of what all others together send a rank in one call; 0: p */
  talweg_loss_policy policy;
  size_t packet_bytes; /* the most that a packet holds of the data; 0: 8 KiB, or what the network takes */
  /* What the network may do with packets: the part of them, 0 .. 1, that it may drop where it marks others,
   * in the model's first layer and in its last one; whether none of all others may be missing; into how many
   * priorities, 1 .. 7, layers are put, the first ones the most urgent, or the last ones. */
  double droppable_front, droppable_back;
  int keep_important;
  int queues; /* 0: 1 */
  int back_first;
  const int* servers; /* ranks that sum, read during the call only; NULL: all */
  size_t server_count;
  int dedicated; /* servers add nothing of their own: `in` and `residual` are NULL on them */
} talweg_bounded_options;

/* Of one call. All zero means: the timeout of the group when the sums were made, the lowest priority. */
typedef struct talweg_bounded_call_options {
  int64_t timeout_ms;   /* 0: as above */
  int priority;         /* 0 .. 7: of what ranks tell each other of the call, and of the sums */
  double depth;         /* where in the model it is: 0, next to its input, .. 1, next to its output */
  const size_t* layers; /* elements of each layer, `count` together; read during the call only. NULL: none */
  size_t layer_count;
  uint64_t* lost_of_layer; /* bytes of lost_bytes, by layer: room for layer_count, of which all is written;
                              NULL: not asked for */
  /* Bytes of each rank's data that this rank has summed without: room for the group's size; NULL: not asked
   * for. Neither is written where the call fails. */
  uint64_t* lost_of_sender;
} talweg_bounded_call_options;

/* What was lost in one call. */
typedef struct talweg_loss_report {
  uint64_t sent_bytes;           /* this rank's data for the others */
  uint64_t lost_bytes;           /* of these, what never arrived; in the residual, where there is one */
  uint64_t lost_important_bytes; /* of these, what was in packets that are not droppable */
  uint64_t packets_again;        /* that were sent again */
  int exact; /* 1: nothing may be lost: one of the first 20 calls of a size, p is 0, or datagrams do not pass
              */
  int by_switch; /* 1: the group's switches have made the sum: sent_bytes are what they were sent */
  double seconds;
} talweg_loss_report;

/* Every rank of `group` calls it, in the same order as other collectives. `options` may be NULL: p is 0.01.
 * They share the group's connections, and may outlive it; talweg_abort ends them as well. Of what this
 * rank's options alone have wrong, a NULL list of servers too, the other ranks hear nothing: they wait for
 * it until their timeout.
 * TALWEG_INVALID_ARGUMENT (options), TALWEG_MISMATCH (ranks have other options; on every rank), TALWEG_SYSTEM
 * (no socket), and what a collective returns. */
talweg_status talweg_bounded_make(talweg_group* group, const talweg_bounded_options* options,
                                  talweg_bounded** sums);
/* Gives the handle back. NULL is allowed. No thread may be in a call of these sums, or begin one. */
void talweg_bounded_free(talweg_bounded* sums);

/* These block. Every rank calls the same, in the same order; of one thread at a time: while one is in a call,
 * any other gets TALWEG_INVALID_ARGUMENT at once. `options` and `report` may be NULL. A report is all zero
 * where the call fails. After TALWEG_TIMEOUT, TALWEG_PEER_FAILED and TALWEG_ABORTED these sums are of no use
 * any more on any rank; the group is, unless it was aborted. After others the next call may be right. */

/* `in`, `out`: count elements, one buffer or distinct ones; F16, BF16, F32 or F64, SUM or AVG. `residual`:
 * count elements, zeros at first, or NULL: what was lost is gone. It is added to the input; afterwards it has
 * what was lost of this rank's: after an error on the way, all of the input; after one before any data were
 * sent, what it had before. */
talweg_status talweg_bounded_all_reduce(talweg_bounded* sums, const void* in, void* out, size_t count,
                                        talweg_type type, talweg_op op, void* residual,
                                        const talweg_bounded_call_options* options,
                                        talweg_loss_report* report);
/* The first half of it: `part` gets what this rank sums, talweg_bounded_part() elements, where these are in
 * `in`, or in a distinct buffer; NULL where there are none. */
talweg_status talweg_bounded_push(talweg_bounded* sums, const void* in, void* part, size_t count,
                                  talweg_type type, talweg_op op, void* residual,
                                  const talweg_bounded_call_options* options, talweg_loss_report* report);
/* The other half: all ranks get all parts, of any type, whatever these are by now. Nothing is lost. `part`:
 * this rank's, where it belongs in `out`, or in a distinct buffer; `out`: count elements. */
talweg_status talweg_bounded_pull(talweg_bounded* sums, const void* part, void* out, size_t count,
                                  talweg_type type, const talweg_call_options* options);
/* Which of `count` elements `rank` sums: `elements` from `first` on, either of which may be NULL. Any thread.
 */
talweg_status talweg_bounded_part(const talweg_bounded* sums, int rank, size_t count, size_t* first,
                                  size_t* elements);
/* How an all_reduce of so many elements would go, and what that rests on: a line, and one "key: value" a
 * line. Writes and returns as talweg_describe does; "" for what no all_reduce takes, of which
 * talweg_error_message() says why. Any thread; no collective. */
size_t talweg_bounded_explain(const talweg_bounded* sums, size_t count, talweg_type type, char* text,
                              size_t capacity);

#ifdef __cplusplus
}
#endif

#endif
