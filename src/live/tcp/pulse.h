// Whether the machine at the other end of a TCP connection still answers.
//
// A machine that loses power or its network sends no reset, and the kernel tries for a quarter of an hour. A
// process that is merely stopped must not be taken for dead: its kernel goes on answering. TCP_USER_TIMEOUT
// cannot tell the two apart, since it also counts the time for which a full receiver takes nothing; and a
// connection that has lost much asks ever less often, so that an answer may be long in coming over a network
// that works again. So the machine itself is asked: after a quarter of the patience without a word from it,
// and again at each look, by trying to connect to it. That it refuses is an answer.
#pragma once

#include <cstdint>
#include <vector>

#include "live/system.h"

namespace talweg::live {

class Pulse {
 public:
  // To be called some 32 times in `patience_ns`. `answers`: a number that changes with what the machine
  // answers over any connection to it, of which `socket` is one. True when nothing has come for
  // `patience_ns`, and no question was answered either.
  bool lost(int socket, std::uint64_t answers, std::int64_t patience_ns);

  // The decision alone, for connections that are no sockets. At `ask`, whatever comes ends the silence.
  enum class Verdict { alive, ask, lost };
  Verdict judge(std::int64_t silence_ns, std::int64_t patience_ns);

 private:
  struct Knock {
    FileDescriptor socket;
    std::int64_t since_ns;
  };
  bool answered(Knock& knock);
  void knock(int socket, std::int64_t now);

  int asked_ = 0;              // times since the last answer
  std::vector<Knock> knocks_;  // connections that are being tried
  std::uint64_t answers_ = 0;
  std::int64_t answered_ns_ = 0;  // when a look last found anything new
};

}  // namespace talweg::live
