// Whether the machine at the other end of a TCP connection still answers.
//
// A machine that loses power or its network sends no reset, and the kernel tries for a quarter of an hour. A
// process that is merely stopped must not be taken for dead: its kernel goes on answering. TCP_USER_TIMEOUT
// cannot tell the two apart, since it also counts the time for which a full receiver takes nothing; so what
// counts here is the time since the last answer, while one is owed.
#pragma once

#include <cstdint>

namespace talweg::live {

class Pulse {
 public:
  // To be called about once a second. True when the other machine owes an answer, and has owed it at the
  // last call, and has not sent anything for `patience_ns`. False for a socket that is not TCP.
  bool lost(int socket, std::int64_t patience_ns);
  // The same for a connection that is no socket: whether an answer is owed, and for how long none has come.
  bool lost(bool owes, std::int64_t silence_ns, std::int64_t patience_ns);

 private:
  bool owed_ = false;
};

}  // namespace talweg::live
