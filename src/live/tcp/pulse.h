// Whether the machine at the other end of a TCP connection still answers.
//
// A machine that loses power or its network sends no reset, and the kernel tries for a quarter of an hour. A
// process that is merely stopped must not be taken for dead: its kernel goes on answering. TCP_USER_TIMEOUT
// cannot tell the two apart, since it also counts the time for which a full receiver takes nothing; so what
// counts here is the time since the last answer, while one is owed. A connection that has lost much asks ever
// less often, so that an answer may be long in coming over a network that works again: after half the
// patience the machine is asked anew, by trying to connect to it. That it refuses is an answer.
#pragma once

#include <cstdint>
#include <vector>

#include "live/system.h"

namespace talweg::live {

class Pulse {
 public:
  // To be called some sixteen times in `patience_ns`. True when the other machine owes an answer, and has
  // owed it at the last call, and has not sent anything for `patience_ns`, asked anew or not. False for a
  // socket that is not TCP.
  bool lost(int socket, std::int64_t patience_ns);
  // The same for a connection that is no socket: whether an answer is owed, and for how long none has come.
  bool lost(bool owes, std::int64_t silence_ns, std::int64_t patience_ns);

 private:
  bool answered();
  void knock(int socket);

  bool owed_ = false;
  std::vector<FileDescriptor> knocks_;  // connections that are being tried, none of them answered
  std::int64_t first_knock_ns_ = 0;
  std::int64_t answered_ns_ = 0;
};

}  // namespace talweg::live
