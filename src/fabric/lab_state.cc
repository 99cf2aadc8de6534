#include "fabric/lab_state.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "base/child_process.h"
#include "base/fail.h"
#include "base/temporary_folder.h"
#include "fabric/privileges.h"
#include "text/escape.h"

namespace talweg::fabric {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

bool is_name_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
}

std::string note_path(const std::string& folder, const std::string& name) {
  return fmt::format("{}/lab-{}.json", folder, name);
}

// Field 22 of /proc/PID/stat; empty when there is no such process or it is a zombie.
std::string start_of(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  if (!std::getline(file, text)) return {};
  std::istringstream fields(text.substr(text.rfind(')') + 1));
  std::string state, field;
  fields >> state;
  if (state == "Z" || state == "X") return {};
  for (int i = 4; i <= 22; ++i) fields >> field;
  return field;
}

bool holder_lives(const LabNote& note) {
  return note.holder > 0 && start_of(note.holder) == note.holder_started;
}

json to_json(const LabNote& note) {
  json hosts = json::array();
  for (const LabNote::Host& host : note.hosts)
    hosts.push_back(
        {{"name", host.name}, {"worker", host.worker}, {"address", host.address}, {"net", host.net}});
  return {{"name", note.name},         {"cluster_file", note.cluster_file},
          {"network", note.network},   {"holder", note.holder},
          {"switches", note.switches}, {"holder_started", note.holder_started},
          {"hosts", std::move(hosts)}};
}

std::optional<LabNote> read_note(const fs::path& path) try {
  const json tree = json::parse(std::ifstream(path));
  LabNote note{tree.at("name"),    tree.at("cluster_file"),   tree.at("network"),
               tree.at("holder"),  tree.at("holder_started"), {},
               tree.at("switches")};
  for (const json& host : tree.at("hosts"))
    note.hosts.push_back({host.at("name"), host.at("worker"), host.at("address"), host.at("net")});
  return note;
} catch (const json::exception&) {
  return std::nullopt;  // half-written by a process that was killed
}

// In /tmp anybody can be first, also with a link; notes of a stranger could lead into a stranger's
// namespaces.
bool is_own(const std::string& folder) {
  struct stat info {};
  return lstat(folder.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid();
}

void make_folder(const std::string& folder) {
  std::error_code failure;
  fs::create_directories(fs::path(folder).parent_path(), failure);
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) throw_system("make the folder {}", folder);
  if (!is_own(folder))
    throw_error(ErrorCode::system, "cannot keep notes in {}: not a folder of one's own", folder);
}

// Keeps open what makes the lab and nothing else: a forgotten pipe would have its reader wait for ever.
void close_all_but(std::vector<int> kept) {
  std::ranges::sort(kept);
  unsigned next = 3;
  for (const int fd : kept) {
    if (static_cast<unsigned>(fd) > next) close_range(next, static_cast<unsigned>(fd) - 1, 0);
    next = static_cast<unsigned>(fd) + 1;
  }
  close_range(next, ~0U, 0);
}

[[noreturn]] void hold(const Lab& lab) {
  setsid();
  prctl(PR_SET_NAME, "talweg-lab");
  // The kernel clears this with the change of credentials, and without it nobody else may open /proc/PID/fd.
  prctl(PR_SET_DUMPABLE, 1);
  const int nowhere = open("/dev/null", O_RDWR);
  for (int fd = 0; fd < 3; ++fd) dup2(nowhere, fd);
  std::vector<int> kept = {lab.switches().fd()};
  for (const LabHost& host : lab.hosts()) kept.push_back(host.net.fd());
  close_all_but(std::move(kept));
  [[maybe_unused]] const int moved = chdir("/");
  for (const int signal_number : {SIGINT, SIGHUP}) signal(signal_number, SIG_IGN);
  for (;;) pause();
}

}  // namespace

std::string lab_state_folder() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && access(runtime, W_OK) == 0) return std::string(runtime) + "/talweg";
  if (geteuid() == 0 && access("/run", W_OK) == 0) return "/run/talweg";
  return fmt::format("{}/talweg-{}", temporary_folder(), geteuid());
}

std::vector<LabNote> labs_up(const std::string& folder) {
  std::vector<LabNote> labs;
  if (!is_own(folder)) return labs;
  std::error_code failure;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, failure)) {
    const std::string file = entry.path().filename().string();
    if (!file.starts_with("lab-") || !file.ends_with(".json")) continue;
    std::optional<LabNote> note = read_note(entry.path());
    if (note && holder_lives(*note))
      labs.push_back(std::move(*note));
    else
      fs::remove(entry.path(), failure);
  }
  std::ranges::sort(labs, [](const LabNote& a, const LabNote& b) { return a.name < b.name; });
  return labs;
}

LabNote keep_up(const Lab& lab, const std::string& name, const std::string& cluster_file,
                const cluster::Cluster& cluster, const std::string& folder) {
  const bool plain = std::ranges::all_of(name, is_name_character);
  if (name.empty() || !plain || name[0] == '.')
    refuse("expected a lab's name of letters, digits, '-', '_' and '.', got \"{}\"", name);
  make_folder(folder);
  for (const LabNote& other : labs_up(folder))
    if (other.name == name) refuse("a lab named {} is up already (of {})", name, other.cluster_file);
  LabNote note{name, fs::absolute(cluster_file).string(), cluster::to_yaml(cluster), -1, {}, {}, {}};
  ChildProcess holder("start the process that holds the lab", [&] { hold(lab); });
  note.holder = holder.pid();
  const auto theirs = [&](const NetNamespace& net) {
    return fmt::format("/proc/{}/fd/{}", note.holder, net.fd());
  };
  for (const LabHost& host : lab.hosts())
    note.hosts.push_back({host.name, host.worker, host.address, theirs(host.net)});
  note.switches = theirs(lab.switches());
  note.holder_started = start_of(note.holder);
  std::ofstream file(note_path(folder, name));
  file << text::json_document(to_json(note)) << std::flush;
  if (!file.good()) throw_system("write {}", note_path(folder, name));
  holder.release();
  return note;
}

Lab attach(const LabNote& note, const cluster::Cluster& cluster) {
  join_user_namespace_of(note.holder);
  std::vector<LabHost> hosts;
  for (const LabNote::Host& host : note.hosts)
    hosts.push_back({host.name, host.worker, host.address, NetNamespace::open(host.net)});
  LabPlan plan = plan_lab(cluster, {});
  plan.warnings.clear();
  return Lab(std::move(hosts), NetNamespace::open(note.switches), plan);
}

void take_down(const LabNote& note, const std::string& folder) {
  if (holder_lives(note) && kill(note.holder, SIGTERM) != 0)
    throw_system("end process {}, which holds lab {}", note.holder, note.name);
  while (holder_lives(note)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  fs::remove(note_path(folder, note.name));
}

std::string default_lab_name(const std::string& cluster_file) {
  std::string name = fs::path(cluster_file).stem().string();
  for (char& c : name)
    if (!is_name_character(c)) c = '_';
  return name;
}

}  // namespace talweg::fabric
