#include "fabric/tun_device.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <string.h>
#include <sys/ioctl.h>

#include <algorithm>

#include "base/fail.h"

namespace talweg::fabric {

FileDescriptor make_tun_device(const std::string& name) {
  constexpr const char* kTun = "/dev/net/tun";
  FileDescriptor device(open(kTun, O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!device)
    throw_error(ErrorCode::unsupported, "a lab with a simulated network needs {}: {}", kTun, strerror(errno));
  ifreq request{};
  std::copy_n(name.data(), std::min(name.size(), sizeof request.ifr_name - 1), request.ifr_name);
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  if (ioctl(device.get(), TUNSETIFF, &request) != 0) throw_system("make the device {} of {}", name, kTun);
  return device;
}

}  // namespace talweg::fabric
