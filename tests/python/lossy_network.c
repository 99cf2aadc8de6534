// A network that loses datagrams: preloaded (LD_PRELOAD), it stands before sendmmsg() and drops what it is told
// to, by a seed, once lose() has been called in this process. Messages of several datagrams are refused, as by
// a card that cannot cut them, so that one message is one datagram.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

typedef int (*SendCall)(int, struct mmsghdr*, unsigned, int);

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static double loss;
static unsigned long state;

// From now on only those that are not ECN-capable are lost, as by a switch with RED and ECN.
static int selective;
void lose_selectively(int only_those) {
  pthread_mutex_lock(&mutex);
  selective = only_those;
  pthread_mutex_unlock(&mutex);
}

static int is_spared(const struct msghdr* header) {
  int octet = 0;
  for (struct cmsghdr* c = CMSG_FIRSTHDR(header); c != NULL; c = CMSG_NXTHDR((struct msghdr*)header, c))
    if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) memcpy(&octet, CMSG_DATA(c), sizeof octet);
  return selective && (octet & 3) != 0;
}

// The part of all datagrams of UDP that this process sends from now on.
void lose(double part, unsigned seed) {
  pthread_mutex_lock(&mutex);
  loss = part;
  state = seed;
  pthread_mutex_unlock(&mutex);
}

// Knuth's linear congruential generator (MMIX), of which the upper half is used.
static int is_lost(void) {
  pthread_mutex_lock(&mutex);
  state = state * 6364136223846793005UL + 1442695040888963407UL;
  const int lost = (double)(state >> 32) < loss * 4294967296.0;
  pthread_mutex_unlock(&mutex);
  return lost;
}

static int is_several(const struct msghdr* header) {
  for (struct cmsghdr* c = CMSG_FIRSTHDR(header); c != NULL; c = CMSG_NXTHDR((struct msghdr*)header, c))
    if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_SEGMENT) return 1;
  return 0;
}

int sendmmsg(int fd, struct mmsghdr* messages, unsigned n, int flags) {
  const SendCall send = (SendCall)dlsym(RTLD_NEXT, "sendmmsg");
  pthread_mutex_lock(&mutex);
  const int loses = loss > 0;
  pthread_mutex_unlock(&mutex);
  if (!loses) return send(fd, messages, n, flags);
  for (unsigned i = 0; i < n; ++i) {
    if (is_several(&messages[i].msg_hdr)) {
      errno = EIO;
      return i > 0 ? (int)i : -1;
    }
    if ((is_spared(&messages[i].msg_hdr) || !is_lost()) && send(fd, messages + i, 1, flags) != 1) return i > 0 ? (int)i : -1;
  }
  return (int)n;
}
