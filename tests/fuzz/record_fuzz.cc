// Flight records, as doctor reads them: JSON from ranks that may have died while they wrote.
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "observe/flight_record.h"

using namespace talweg;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const int fd = ::memfd_create("record", 0);
  fuzz::require(::write(fd, data, size) == static_cast<ssize_t>(size));
  fuzz::may_refuse([&] { observe::read_record("/proc/self/fd/" + std::to_string(fd)); });
  ::close(fd);
  return 0;
}
