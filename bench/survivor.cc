// Calls all-reduces until one fails, and says when: how long the others take to know of a killed rank.
//
//   survivor RANK SIZE RENDEZVOUS INTERFACE
//
// Prints "ready" after the first call and then one line: the steady clock's nanoseconds and the error.
#include <stdlib.h>
#include <talweg/group.h>

#include <cinttypes>
#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: survivor RANK SIZE RENDEZVOUS INTERFACE\n");
    return 2;
  }
  constexpr std::size_t kCount = 16384;
  float data[kCount] = {};
  std::shared_ptr<talweg::Group> group;  // outlives the error: leaving takes time of its own
  try {
    talweg::GroupOptions options;
    options.rank = std::atoi(argv[1]);
    options.size = std::atoi(argv[2]);
    options.rendezvous = argv[3];
    options.interface = argv[4];
    group = talweg::Group::join(options);
    for (long calls = 0;; ++calls) {
      group->all_reduce(data, data, kCount, talweg::DataType::f32, talweg::ReduceOp::sum);
      if (calls > 0) continue;
      std::printf("ready\n");
      std::fflush(stdout);
    }
  } catch (const talweg::Error& e) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    std::printf("%" PRId64 " %s\n", std::chrono::duration_cast<std::chrono::nanoseconds>(now).count(),
                e.what());
  }
  // Not the group's orderly end: whoever has not noticed yet must hear of the dead rank, not of this one.
  std::fflush(stdout);
  std::_Exit(0);
}
