#include "group/environment.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>

#include "base/settings.h"

namespace talweg::group {

namespace {

constexpr std::int64_t kMillisecondNs = 1'000'000;

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

int number(const std::string& name, const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: expected a whole number, got \"{}\"", name, text));
  return value;
}

int port_number(const std::string& name, const std::string& text) {
  constexpr int kHighest = 65535;
  const int port = number(name, text);
  if (port < 1 || port > kHighest)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: expected a port from 1 to {}, got {}", name, kHighest, port));
  return port;
}

struct Pair {
  const char* rank;
  const char* size;
};
constexpr Pair kLaunchers[] = {{"RANK", "WORLD_SIZE"},
                               {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                               {"PMI_RANK", "PMI_SIZE"},
                               {"SLURM_PROCID", "SLURM_NTASKS"}};

constexpr const char* kAlone = "alone: no launcher";

// Every rank would work on its own and nobody notice. Slurm, in contrast, tells a size to programs that are
// started without it.
void refuse_half_a_place() {
  const auto& [rank, size] = kLaunchers[0];
  if (variable(rank) || variable(size))
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} is set but {} is not: set both, or neither", variable(rank) ? rank : size,
                            variable(rank) ? size : rank));
}

// The first host of a Slurm list: "node[03-07,9],other" -> "node03".
std::string first_slurm_host(const std::string& list) {
  const std::size_t end = list.find_first_of(",[");
  std::string host = list.substr(0, end);
  if (end != std::string::npos && list[end] == '[')
    host += list.substr(end + 1, list.find_first_of(",-]", end + 1) - end - 1);
  return host;
}

// Jobs that tell us no port still have a number of their own; ranks derive the same port from it.
constexpr int kFirstDerivedPort = 20000;
constexpr int kDerivedPorts = 10000;

int derived_port(const std::string& job) {
  unsigned hash = 5381;
  for (const char c : job) hash = hash * 33 + static_cast<unsigned char>(c);
  return kFirstDerivedPort + static_cast<int>(hash % kDerivedPorts);
}

// "file:/path" or "tcp://host:port".
Meeting meeting_at(const std::string& store, const std::string& origin) {
  if (store.starts_with("file:")) return {store.substr(5), "", 0, origin};
  std::string address = store.starts_with("tcp://") ? store.substr(6) : store;
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos || address.find("://") != std::string::npos)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: expected file:/path or tcp://host:port, got \"{}\"", origin, store));
  return {"", address.substr(0, colon), port_number(origin + "'s port", address.substr(colon + 1)), origin};
}

}  // namespace

std::optional<Meeting> find_aggregator_meeting() {
  constexpr const char* kSetting = "TALWEG_AGGREGATORS_AT";
  const std::string store = resolve(kSetting).value;
  if (store.empty()) return std::nullopt;
  return meeting_at(store, kSetting);
}

Place find_place(const GroupOptions& options) {
  Place place;
  place.origin = kAlone;
  if ((options.rank >= 0) != (options.size >= 0))
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("rank {} of {} (option): give rank and size, or neither", options.rank, options.size));
  if (options.rank >= 0 && options.size >= 0) {
    place = {options.rank, options.size, "option"};
  } else {
    for (const Pair& launcher : kLaunchers) {
      const auto rank = variable(launcher.rank);
      const auto size = variable(launcher.size);
      if (!rank || !size) continue;
      place = {number(launcher.rank, *rank), number(launcher.size, *size),
               fmt::format("{} and {}", launcher.rank, launcher.size)};
      break;
    }
    if (place.origin == kAlone) refuse_half_a_place();
  }
  if (place.size < 1 || place.rank < 0 || place.rank >= place.size)
    throw Error(ErrorCode::invalid_argument, fmt::format("rank {} of {} ({}): expected 0 <= rank < size",
                                                         place.rank, place.size, place.origin));
  return place;
}

Meeting find_meeting(const Place& place, const std::string& rendezvous) {
  const bool is_rank = place.rank >= 0;
  if (!rendezvous.empty()) return meeting_at(rendezvous, is_rank ? "option rendezvous" : "--rendezvous");
  if (!is_rank)
    if (auto meeting = find_aggregator_meeting()) return *meeting;
  if (const std::string store = resolve("TALWEG_STORE").value; !store.empty())
    return meeting_at(store, "TALWEG_STORE");
  const auto master = variable("MASTER_ADDR");
  const auto port = variable("MASTER_PORT");
  if (master && port) {
    // Under torchrun the agent's own store listens on MASTER_PORT; ours goes next to it.
    const int shift = variable("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True" ? 1 : 0;
    return {"", *master, port_number("MASTER_PORT", *port) + shift, "MASTER_ADDR and MASTER_PORT"};
  }
  if (const auto job = variable("SLURM_JOB_ID"); job) {
    const auto list =
        variable("SLURM_STEP_NODELIST") ? variable("SLURM_STEP_NODELIST") : variable("SLURM_JOB_NODELIST");
    if (list) return {"", first_slurm_host(*list), derived_port(*job), "Slurm's node list"};
  }
  if (const auto local = variable("OMPI_COMM_WORLD_LOCAL_SIZE");
      local && number("OMPI_COMM_WORLD_LOCAL_SIZE", *local) == place.size)
    return {"", "127.0.0.1",
            derived_port(variable("OMPI_MCA_ess_base_jobid").value_or("0") +
                         variable("OMPI_MCA_orte_hnp_uri").value_or("")),
            "Open MPI on one host"};
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{} does not know where to meet the others: set MASTER_ADDR and MASTER_PORT, or "
                          "TALWEG_STORE=file:/path that all ranks see",
                          is_rank ? fmt::format("rank {} of {}", place.rank, place.size) : place.origin));
}

std::chrono::milliseconds find_timeout(const GroupOptions& options) {
  if (options.timeout.count() > 0) return options.timeout;
  return std::chrono::milliseconds(wait_of("TALWEG_TIMEOUT").value / kMillisecondNs);
}

}  // namespace talweg::group
