// All that users and launchers say in a line of text: settings files, hosts, units, interfaces, where to
// meet, algorithms. The first byte says which.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include "base/log.h"
#include "base/settings.h"
#include "base/units.h"
#include "cli/run_plan.h"
#include "fuzz/fuzz.h"
#include "group/environment.h"
#include "live/join/interface.h"
#include "steer/assumed_network.h"
#include "steer/plan_chooser.h"
#include "text/escape.h"

using namespace talweg;

namespace {

void read_settings_file(const std::string& text) {
  const int fd = ::memfd_create("settings", 0);
  fuzz::require(::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  ::setenv("TALWEG_CONF_FILE", ("/proc/self/fd/" + std::to_string(fd)).c_str(), 1);
  fuzz::may_refuse([] { resolve("TALWEG_TIMEOUT"); });
  ::unsetenv("TALWEG_CONF_FILE");
  ::close(fd);
}

// With `name` set to the text while `function` runs.
template <class Function>
void with(const char* name, const std::string& text, Function&& function) {
  ::setenv(name, text.c_str(), 1);
  fuzz::may_refuse(function);
  ::unsetenv(name);
}

void find_meeting() {
  const group::Meeting meeting = group::find_meeting({0, 2, ""});
  fuzz::require(!meeting.file.empty() || !meeting.origin.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 12) {
    case 0:
      read_settings_file(text);
      break;
    case 1:
      fuzz::may_refuse([&] {
        for (const auto& host : cli::parse_hosts(text)) fuzz::require(host.slots > 0 && !host.host.empty());
      });
      break;
    case 2:
      fuzz::may_refuse(
          [&] { fuzz::require(parse_bytes(to_string(parse_bytes(text))) == parse_bytes(text)); });
      break;
    case 3:
      fuzz::may_refuse([&] { fuzz::require(parse_bandwidth(text).bits_per_second > 0); });
      break;
    case 4:
      fuzz::may_refuse([&] { fuzz::require(parse_nanoseconds(text).value >= 0); });
      break;
    case 5:
      fuzz::may_refuse([&] {
        live::choose_interface(text, {{"lo", "127.0.0.1", true}, {"eth0", "10.0.0.1", false}});
      });
      break;
    case 6:
      with("TALWEG_STORE", text, find_meeting);
      break;
    case 7:
      ::setenv("SLURM_JOB_ID", "17", 1);
      with("SLURM_JOB_NODELIST", text, find_meeting);
      ::unsetenv("SLURM_JOB_ID");
      break;
    case 8:
      ::setenv("RANK", "0", 1);
      with("WORLD_SIZE", text, [] { fuzz::require(group::find_place({}).size > 0); });
      ::unsetenv("RANK");
      break;
    case 9:
      with("TALWEG_TIMEOUT", text, [] { fuzz::require(group::find_timeout({}).count() > 0); });
      break;
    case 10:
      fuzz::may_refuse([&] {
        const steer::PlanChooser chooser(steer::assumed_network({0, 1}), text, nullptr);
      });
      break;
    default:
      parse_log_level(text);
      fuzz::require(text::shell_quoted(text).size() >= text.size() + 2);
  }
  return 0;
}
