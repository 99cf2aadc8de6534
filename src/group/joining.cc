#include "group/joining.h"

#include "base/settings.h"
#include "live/join/interface.h"
#include "live/join/job_key.h"
#include "wire/key.h"

namespace talweg::group {

namespace {

void find_address(const GroupOptions& options, Joining& joining) {
  const ResolvedSetting choice = resolve("TALWEG_SOCKET_IFNAME", options.interface);
  if (choice.value.empty() && !joining.meeting.host.empty()) {
    // The way to where the ranks meet is the way to the ranks.
    joining.connect.address = live::address_toward(joining.meeting.host);
    joining.address_from = "route to " + joining.meeting.host;
    return;
  }
  const live::Interface i = live::choose_interface(choice.value, live::interfaces());
  joining.connect.address = i.address;
  joining.address_from = i.name + ", " + (choice.value.empty() ? "automatic" : name(choice.origin));
}

}  // namespace

Joining prepare_joining(const GroupOptions& options, const Place& place, std::chrono::milliseconds timeout,
                        const std::string& aggregator) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  const std::optional<live::JobKey> job_key = live::find_job_key();
  Joining joining;
  live::ConnectOptions& connect = joining.connect;
  connect.streams = static_cast<int>(whole_number_of("TALWEG_STREAMS"));
  connect.shared_memory = switch_of("TALWEG_SHM");
  connect.encrypt = switch_of("TALWEG_ENCRYPT");
  joining.engine.stream.checksum = switch_of("TALWEG_CHECKSUM");
  joining.engine.host_timeout_ns = wait_of("TALWEG_HOST_TIMEOUT").value;
  if (const std::string wanted = resolve("TALWEG_SOCKET_IFNAME", options.interface).value;
      place.size > 1 && !wanted.empty())
    live::choose_interface(wanted, live::interfaces());
  joining.store = options.store;
  if (place.size > 1 && !joining.store) {
    joining.meeting = find_meeting(place, options.rendezvous);
    const Meeting& at = joining.meeting;
    joining.store = at.file.empty() ? tcp_store(at.host, at.port, place.rank == 0, deadline,
                                                job_key ? job_key->text : std::string())
                                    : file_store(at.file);
  } else if (place.size == 1) {
    joining.meeting.origin = "not needed";
  }
  if (place.size > 1) {
    find_address(options, joining);
  } else {
    joining.connect.address = "127.0.0.1";
    joining.address_from = "alone";
  }
  connect.rank = place.rank;
  connect.size = place.size;
  connect.aggregator = aggregator;
  connect.prefix = options.prefix;
  if (job_key) connect.key = wire::secret_from_text(job_key->text);
  connect.deadline_ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(deadline.time_since_epoch()).count();
  return joining;
}

}  // namespace talweg::group
