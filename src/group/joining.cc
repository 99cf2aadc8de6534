#include "group/joining.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/fail.h"
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

live::LinkOptions::Transport transport() {
  using Transport = live::LinkOptions::Transport;
  const ResolvedSetting setting = resolve("TALWEG_TRANSPORT");
  if (setting.value == "tcp") return Transport::tcp;
  if (setting.value == "udp") return Transport::datagrams;
  if (setting.value == "auto") return Transport::either;
  refuse("TALWEG_TRANSPORT: expected tcp, udp or auto, got \"{}\"", setting.value);
}

std::shared_ptr<Store> open_store(const Meeting& at, bool serves, std::int64_t deadline_ns,
                                  const std::string& key) {
  const std::chrono::steady_clock::time_point deadline{std::chrono::nanoseconds(deadline_ns)};
  return at.file.empty() ? tcp_store(at.host, at.port, serves, deadline, key) : file_store(at.file);
}

}  // namespace

live::UdpPaths udp_paths() {
  live::UdpPaths paths;
  paths.count = static_cast<std::size_t>(whole_number_of("TALWEG_PATHS"));
  const std::string choice = resolve("TALWEG_PATHS_IFNAME").value;
  if (choice.empty()) return paths;
  try {
    for (const live::Interface& i : live::choose_interfaces(choice, live::interfaces()))
      paths.addresses.emplace_back(fmt::format("{}:0", i.address));
  } catch (const Error& e) {
    throw_error(e.code(), "TALWEG_PATHS_IFNAME: {}", e.what());
  }
  if (paths.addresses.size() > live::kMostPathAddresses)
    refuse("TALWEG_PATHS_IFNAME: expected up to {} interfaces, and {} match \"{}\"", live::kMostPathAddresses,
           paths.addresses.size(), choice);
  paths.count = std::max(paths.count, paths.addresses.size());
  return paths;
}

Joining prepare_joining(const GroupOptions& options, const Place& place, std::chrono::milliseconds timeout,
                        const std::string& aggregator) {
  const std::optional<live::JobKey> job_key = live::find_job_key();
  Joining joining;
  live::ConnectOptions& connect = joining.connect;
  connect.streams = static_cast<int>(whole_number_of("TALWEG_STREAMS"));
  connect.shared_memory = switch_of("TALWEG_SHM");
  connect.encrypt = switch_of("TALWEG_ENCRYPT");
  joining.engine.stream.checksum = switch_of("TALWEG_CHECKSUM");
  joining.engine.transport = transport();
  connect.transport = resolve("TALWEG_TRANSPORT").value;
  if (joining.engine.transport != live::LinkOptions::Transport::tcp) ++connect.streams;
  joining.engine.paths.count = static_cast<std::size_t>(whole_number_of("TALWEG_PATHS"));
  if (place.size > 1) joining.engine.paths = udp_paths();
  joining.engine.host_timeout_ns = wait_of("TALWEG_HOST_TIMEOUT").value;
  if (const std::string wanted = resolve("TALWEG_SOCKET_IFNAME", options.interface).value;
      place.size > 1 && !wanted.empty())
    live::choose_interface(wanted, live::interfaces());
  joining.store = options.store;
  connect.deadline_ns = live::now_ns() + std::chrono::nanoseconds(timeout).count();
  if (place.size > 1 && !joining.store) {
    joining.meeting = find_meeting(place, options.rendezvous);
    joining.store = open_store(joining.meeting, place.rank == 0, connect.deadline_ns,
                               job_key ? job_key->text : std::string());
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
  return joining;
}

void expect_aggregators(Joining& joining, std::vector<std::string> names, const std::string& why_not) {
  live::ConnectOptions& connect = joining.connect;
  connect.aggregators = std::move(names);
  connect.no_aggregators = why_not;
  if (connect.rank != 0 || connect.aggregators.empty()) return;
  // What keeps them away must not keep the ranks from forming a group.
  try {
    const std::optional<live::JobKey> job_key = live::find_job_key();
    const std::optional<Meeting> at = find_aggregator_meeting();
    if (!at && !joining.store->seen_by_aggregators())
      throw Error(ErrorCode::unsupported,
                  "the ranks meet in their program's own store, where it cannot look: set "
                  "TALWEG_AGGREGATORS_AT, as talweg run does");
    // There, a key out of a store that members alone can read would be for others to read.
    if (at && !job_key && joining.store->confidential())
      throw Error(ErrorCode::invalid_argument, "TALWEG_AGGREGATORS_AT needs a job key: set TALWEG_KEY");
    if (!at) return;
    joining.aggregator_store =
        open_store(*at, true, connect.deadline_ns, job_key ? job_key->text : std::string());
    connect.aggregator_store = joining.aggregator_store.get();
  } catch (const Error& e) {
    if (connect.no_aggregators.empty()) connect.no_aggregators = e.what();
  }
}

}  // namespace talweg::group
