#include "fabric/lab.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <linux/capability.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <optional>

#include "fabric/lab_state.h"
#include "fabric/launch_fixture.h"
#include "fabric/privileges.h"
#include "fabric/tool.h"
#include "talweg/error.h"

namespace talweg::fabric {
namespace {

using cluster::Cluster;
using cluster::NodeKind;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

// Two fast hosts and a slow one.
Cluster three_hosts() {
  Cluster cluster = cluster::uniform_star(3, Bandwidth{1e9}, Nanoseconds{0});
  for (cluster::Link& link : cluster.links)
    if (link.from == 2 || link.to == 2) link.capacity = Bandwidth{2e8};
  return cluster;
}

Cluster pair_of_hosts_and_a_stranger() {
  Cluster cluster;
  for (const char* name : {"a", "b", "c"}) cluster.nodes.push_back({name, NodeKind::worker});
  cluster.links = {{0, 1, Bandwidth{1e9}, {}}, {1, 0, Bandwidth{2e8}, {}}};
  return cluster;
}

sockaddr_in address_of(const LabHost& host, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  inet_pton(AF_INET, host.address.c_str(), &address.sin_addr);
  return address;
}

// A socket stays in the namespace it was made in, wherever it is used.
FileDescriptor socket_on(const LabHost& host) {
  FileDescriptor fd;
  host.net.run([&] { fd = FileDescriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); });
  return fd;
}

FileDescriptor listen_on(const LabHost& host, std::uint16_t port) {
  FileDescriptor fd = socket_on(host);
  const sockaddr_in address = address_of(host, port);
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(listen(fd.get(), 8), 0);
  return fd;
}

// 0, or errno.
int connect_to(const FileDescriptor& from, const LabHost& to, std::uint16_t port) {
  const sockaddr_in address = address_of(to, port);
  return connect(from.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
}

std::string congestion_control(const FileDescriptor& socket_fd) {
  char name[16] = {};
  socklen_t length = sizeof name;
  getsockopt(socket_fd.get(), IPPROTO_TCP, TCP_CONGESTION, name, &length);
  return name;
}

std::string queueing_on(const NetNamespace& net, const std::string& device) {
  std::string text;
  net.run([&] {
    text =
        run_tool({"tc", "qdisc", "show", "dev", device}) + run_tool({"tc", "class", "show", "dev", device});
  });
  return text;
}

// Numbers of the processes whose network namespace this is ("net:[4026532000]").
std::vector<pid_t> processes_in(const std::string& namespace_name) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (!std::isdigit(static_cast<unsigned char>(name[0]))) continue;
    std::error_code gone;
    if (std::filesystem::read_symlink(entry.path() / "ns/net", gone).string() == namespace_name && !gone)
      found.push_back(std::stoi(name));
  }
  return found;
}

class LabTest : public InScratchFolder {
 protected:
  // Empty where this machine gives no namespaces; the test is then marked as skipped.
  std::optional<Lab> build(const Cluster& cluster) {
    try {
      return Lab::build(cluster);
    } catch (const Error& e) {
      if (e.code() != ErrorCode::unsupported) throw;
      reason_ = e.what();
      return std::nullopt;
    }
  }
  LaunchResult run(const Lab& lab, const std::string& script) {
    const FileDescriptor out(open(path("out").c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600));
    LaunchOptions options;
    options.out = out.get();
    return lab.run({"sh", "-c", script}, path("cluster.yaml"), options);
  }
  // Runs `work` in a process of its own and returns its exit code.
  static int apart(const std::function<int()>& work) {
    const pid_t pid = fork();
    if (pid == 0) {
      int code = 99;
      try {
        code = work();
      } catch (const std::exception& e) {
        fprintf(stderr, "%s\n", e.what());
      }
      _exit(code);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  std::string reason_;
};

#define BUILD_OR_SKIP(lab, cluster) \
  const auto lab = build(cluster);  \
  if (!lab) GTEST_SKIP() << reason_

TEST_F(LabTest, LetsEveryHostReachEveryOtherByCubic) {
  BUILD_OR_SKIP(lab, three_hosts());
  for (const LabHost& to : lab->hosts()) {
    const FileDescriptor listener = listen_on(to, 7000);
    for (const LabHost& from : lab->hosts()) {
      const FileDescriptor client = socket_on(from);
      ASSERT_EQ(connect_to(client, to, 7000), 0) << from.name << " to " << to.name;
      const FileDescriptor server(accept(listener.get(), nullptr, nullptr));
      if (from.name == to.name) continue;
      EXPECT_EQ(congestion_control(client), "cubic");
      EXPECT_EQ(congestion_control(server), "cubic");
    }
  }
}

TEST_F(LabTest, GivesDevicesTheRatesOfTheirLinks) {
  BUILD_OR_SKIP(lab, three_hosts());
  EXPECT_THAT(queueing_on(lab->hosts()[0].net, "eth0"),
              HasSubstr("tbf 1: root refcnt 2 rate 1Gbit burst 131"));
  EXPECT_THAT(queueing_on(lab->hosts()[2].net, "eth0"), HasSubstr("rate 200Mbit"));
  EXPECT_THAT(queueing_on(lab->switches(), "p0"), HasSubstr("rate 1Gbit"));
  EXPECT_THAT(queueing_on(lab->switches(), "p2"), HasSubstr("rate 200Mbit"));
}

TEST_F(LabTest, ShapesDirectLinksAndRefusesWhatHasNone) {
  BUILD_OR_SKIP(lab, pair_of_hosts_and_a_stranger());
  const LabHost &a = lab->hosts()[0], &b = lab->hosts()[1], &c = lab->hosts()[2];
  EXPECT_THAT(queueing_on(a.net, "eth0"), HasSubstr("class htb 1:2 root leaf"));
  EXPECT_THAT(queueing_on(b.net, "eth0"), HasSubstr("rate 200Mbit ceil 200Mbit"));
  const FileDescriptor at_b = listen_on(b, 7000), at_c = listen_on(c, 7000);
  EXPECT_EQ(connect_to(socket_on(a), b, 7000), 0);
  EXPECT_EQ(connect_to(socket_on(a), c, 7000), EHOSTUNREACH);
}

TEST_F(LabTest, SendsPacketsThroughAnotherHostWhereThereIsNoDirectLink) {
  Cluster line = pair_of_hosts_and_a_stranger();
  line.links.push_back({1, 2, Bandwidth{1e9}, {}});
  line.links.push_back({2, 1, Bandwidth{1e9}, {}});
  BUILD_OR_SKIP(lab, line);
  const FileDescriptor at_c = listen_on(lab->hosts()[2], 7000);
  EXPECT_EQ(connect_to(socket_on(lab->hosts()[0]), lab->hosts()[2], 7000), 0);
}

TEST_F(LabTest, JoinsTwoSwitches) {
  Cluster cluster = cluster::uniform_star(2, Bandwidth{1e9}, Nanoseconds{0});
  cluster.nodes.push_back({"far", NodeKind::switch_});
  for (cluster::Link& link : cluster.links) {
    if (link.from == 1) link.to = 3;
    if (link.to == 1) link.from = 3;
  }
  cluster.links.push_back({2, 3, Bandwidth{1e8}, {}});
  cluster.links.push_back({3, 2, Bandwidth{1e8}, {}});
  BUILD_OR_SKIP(lab, cluster);
  const FileDescriptor listener = listen_on(lab->hosts()[1], 7000);
  EXPECT_EQ(connect_to(socket_on(lab->hosts()[0]), lab->hosts()[1], 7000), 0);
}

Cluster leaves_under_spines() {
  Cluster cluster;
  for (int host = 0; host < 4; ++host) cluster.nodes.push_back({.name = "host" + std::to_string(host)});
  for (const char* name : {"leaf0", "leaf1", "spine0", "spine1"})
    cluster.nodes.push_back({.name = name, .kind = NodeKind::switch_});
  const auto join = [&](int a, int b, double rate) {
    cluster.links.push_back({a, b, Bandwidth{rate}, {}});
    cluster.links.push_back({b, a, Bandwidth{rate}, {}});
  };
  for (int host = 0; host < 4; ++host) join(host, 4 + host / 2, 1e9);
  for (const int leaf : {4, 5})
    for (const int spine : {6, 7}) join(leaf, spine, 3e8);
  return cluster;
}

TEST_F(LabTest, BuildsLeavesUnderSpinesAsTheRoutesUseThem) {
  BUILD_OR_SKIP(lab, leaves_under_spines());
  for (const LabHost& to : lab->hosts()) {
    const FileDescriptor listener = listen_on(to, 7000);
    for (const LabHost& from : lab->hosts())
      EXPECT_EQ(connect_to(socket_on(from), to, 7000), 0) << from.name << " to " << to.name;
  }
  EXPECT_THAT(queueing_on(lab->switches(), "t8a"), HasSubstr("rate 300Mbit"));
  EXPECT_THAT(queueing_on(lab->switches(), "t8b"), HasSubstr("rate 300Mbit"));
}

TEST_F(LabTest, GivesRanksTheNetworkThatItIsInAFileOfItsOwn) {
  BUILD_OR_SKIP(lab, leaves_under_spines());
  const std::string file = path("cluster.yaml");
  keep_up(*lab, "test", file, leaves_under_spines(), path("state"));
  const LabNote note = labs_up(path("state")).at(0);
  const Lab again = attach(note, leaves_under_spines());
  for (const Lab* each : {&*lab, &again}) {
    EXPECT_THAT(each->warnings(), Contains(HasSubstr("without the links leaf0 - spine1, leaf1 - spine1")));
    write("cluster.yaml", "the user's, to move and to change");
    const LaunchResult result = run(*each, "[ $RANK = 3 ] || exit 0; mv " + file + " " + path("moved.yaml") +
                                               "; cp $TALWEG_CLUSTER " + path("seen.yaml") +
                                               "; printf %s $TALWEG_CLUSTER >" + path("name"));
    EXPECT_EQ(result.exit_code, 0) << result.what;
    EXPECT_EQ(read("seen.yaml"), to_yaml(plan_lab(leaves_under_spines(), {}).network));
    EXPECT_EQ(read("moved.yaml"), "the user's, to move and to change");
    EXPECT_TRUE(read("name").ends_with(".yaml")) << read("name");
    EXPECT_FALSE(std::filesystem::exists(read("name"))) << "it goes with the ranks";
    EXPECT_FALSE(std::filesystem::exists(file));
    std::filesystem::remove(path("seen.yaml"));
  }
  take_down(note, path("state"));
}

TEST_F(LabTest, TellsEachRankWhoAndWhereItIs) {
  const Cluster cluster = three_hosts();
  BUILD_OR_SKIP(lab, cluster);
  write("cluster.yaml", "");
  const LaunchResult result = run(
      *lab, "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $TALWEG_CLUSTER; uname -n");
  EXPECT_EQ(result.exit_code, 0) << result.what;
  for (int r = 0; r < 3; ++r) {
    const std::string rank = std::to_string(r);
    EXPECT_THAT(read("out"), HasSubstr("[" + rank + "] " + rank + " 3 0 1 " + lab->hosts()[0].address + " " +
                                       path("cluster.yaml") + "\n"));
    EXPECT_THAT(read("out"), HasSubstr("[" + rank + "] " + cluster.nodes[r].name + "\n"));
  }
}

TEST_F(LabTest, ChangesNothingOutsideItself) {
  char before[65], after[65];
  gethostname(before, sizeof before);
  BUILD_OR_SKIP(lab, three_hosts());
  const std::string namespace_name = std::filesystem::read_symlink("/proc/self/ns/net").string();
  EXPECT_EQ(run(*lab, "true").exit_code, 0);
  gethostname(after, sizeof after);
  EXPECT_STREQ(before, after);
  EXPECT_EQ(std::filesystem::read_symlink("/proc/self/ns/net").string(), namespace_name);
  EXPECT_NE(access("/mnt/hosts", F_OK), 0);
}

TEST_F(LabTest, LeavesNoProcessBehindWhenARankFails) {
  BUILD_OR_SKIP(lab, three_hosts());
  const LaunchResult result =
      run(*lab, "readlink /proc/self/ns/net; sleep 100 & [ $RANK != 1 ] || exit 4; wait");
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_EQ(result.what, "rank 1 exited with code 4");
  const std::string out = read("out");
  const std::string namespace_name = out.substr(4, out.find('\n') - 4);
  ASSERT_THAT(namespace_name, HasSubstr("net:["));
  EXPECT_TRUE(eventually([&] { return processes_in(namespace_name).empty(); }));
}

TEST_F(LabTest, LeavesNothingBehindWhenItsProcessIsKilled) {
  if (!build(leaves_under_spines())) GTEST_SKIP() << reason_;
  const pid_t holder = fork();
  if (holder == 0) {
    const Lab lab = Lab::build(leaves_under_spines());
    run(lab,
        "printf %s $TALWEG_CLUSTER >" + path("") + "$RANK; readlink /proc/self/ns/net; sleep 100 & wait");
    _exit(0);
  }
  std::vector<std::string> names;
  const bool started = eventually([&] {
    names.clear();
    std::istringstream lines(read("out"));
    for (std::string line; std::getline(lines, line);) names.push_back(line.substr(4));
    return names.size() == 4;
  });
  EXPECT_TRUE(std::filesystem::exists(read("0"))) << read("0");
  kill(holder, SIGKILL);
  waitpid(holder, nullptr, 0);
  ASSERT_TRUE(started);
  for (const std::string& name : names)
    EXPECT_TRUE(eventually([&] { return processes_in(name).empty(); })) << name;
  EXPECT_TRUE(eventually([&] { return !std::filesystem::exists(read("0")); })) << read("0");
}

TEST_F(LabTest, StaysUpInTheHandsOfAHolderUntilItIsTakenDown) {
  {
    BUILD_OR_SKIP(lab, three_hosts());
    keep_up(*lab, "test", path("cluster.yaml"), three_hosts(), path("state"));
  }
  const std::vector<LabNote> notes = labs_up(path("state"));
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0].cluster_file, path("cluster.yaml"));
  const Lab again = attach(notes[0], three_hosts());
  EXPECT_EQ(run(again, "[ $WORLD_SIZE = 3 ]").exit_code, 0);
  EXPECT_THROW(keep_up(again, "test", path("cluster.yaml"), three_hosts(), path("state")), Error);
  take_down(notes[0], path("state"));
  EXPECT_FALSE(alive(notes[0].holder));
  EXPECT_THAT(labs_up(path("state")), IsEmpty());
}

TEST_F(LabTest, RemovesTheNoteOfALabWhoseHolderWasKilled) {
  {
    BUILD_OR_SKIP(lab, three_hosts());
    keep_up(*lab, "test", path("cluster.yaml"), three_hosts(), path("state"));
  }
  kill(labs_up(path("state")).at(0).holder, SIGKILL);
  EXPECT_TRUE(eventually([&] { return labs_up(path("state")).empty(); }));
  EXPECT_FALSE(std::filesystem::exists(path("state/lab-test.json")));
}

TEST_F(LabTest, TakesAProcessThatReusesAHoldersNumberForAStranger) {
  std::filesystem::create_directory(path("state"));
  write("state/lab-old.json",
        "{\"name\":\"old\",\"cluster_file\":\"/x\",\"network\":\"\",\"holder\":" + std::to_string(getpid()) +
            ",\"holder_started\":\"1\",\"switches\":\"\",\"hosts\":[]}");
  write("state/lab-broken.json", "{\"name\":");
  EXPECT_THAT(labs_up(path("state")), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(path("state/lab-old.json")));
  EXPECT_FALSE(std::filesystem::exists(path("state/lab-broken.json")));
}

// A link in /tmp to where somebody has files of such names.
TEST_F(LabTest, ReadsAndRemovesNoNotesWhereALinkLeads) {
  std::filesystem::create_directory(path("other"));
  write("other/lab-results.json", "{}");
  std::filesystem::create_symlink(path("other"), path("state"));
  EXPECT_THAT(labs_up(path("state")), IsEmpty());
  EXPECT_TRUE(std::filesystem::exists(path("other/lab-results.json")));
}

TEST_F(LabTest, ReadsAndRemovesNoNotesInAFolderThatAStrangerHasFilled) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root in order to give a folder away";
  std::filesystem::create_directory(path("other"));
  write("other/lab-results.json", "{}");
  ASSERT_EQ(chown(path("other").c_str(), 65534, 65534), 0);
  EXPECT_THAT(labs_up(path("other")), IsEmpty());
  EXPECT_TRUE(std::filesystem::exists(path("other/lab-results.json")));
}

TEST_F(LabTest, RefusesAFileWhereTheStateFolderShouldBe) {
  BUILD_OR_SKIP(lab, three_hosts());
  write("state", "");
  EXPECT_THROW(keep_up(*lab, "test", path("cluster.yaml"), three_hosts(), path("state")), Error);
}

TEST_F(LabTest, RefusesANameThatWouldLeadOutOfTheStateFolder) {
  BUILD_OR_SKIP(lab, three_hosts());
  EXPECT_THROW(keep_up(*lab, "../test", path("cluster.yaml"), three_hosts(), path("state")), Error);
  EXPECT_THROW(keep_up(*lab, "", path("cluster.yaml"), three_hosts(), path("state")), Error);
}

TEST_F(LabTest, NamesALabAfterItsFile) {
  EXPECT_EQ(default_lab_name("some/folder/my cluster.yaml"), "my_cluster");
}

TEST_F(LabTest, ServesAnOrdinaryUserThroughAUserNamespace) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root in order to become an ordinary user";
  constexpr uid_t kNobody = 65534;
  const int code = apart([&] {
    if (setgroups(0, nullptr) != 0 || setgid(kNobody) != 0 || setuid(kNobody) != 0) return 98;
    prctl(PR_SET_DUMPABLE, 1);  // as after the exec that usually follows
    try {
      const std::string script =
          "[ $(uname -n) = $(cat /proc/sys/kernel/hostname) ] && [ -s $TALWEG_CLUSTER ]";
      return Lab::build(leaves_under_spines()).run({"sh", "-c", script}, "c.yaml", {}).exit_code;
    } catch (const Error& e) {
      fprintf(stderr, "%s\n", e.what());
      return e.code() == ErrorCode::unsupported ? 97 : 99;
    }
  });
  if (code == 97) GTEST_SKIP() << "this system gives ordinary users no user namespaces";
  EXPECT_EQ(code, 0);
}

TEST_F(LabTest, SaysInOneLineWhatItNeedsWhereItHasNoRights) {
  const int code = apart([&] {
    gain_lab_privileges();
    if (unshare(CLONE_NEWUSER) != 0) return 97;
    std::ofstream("/proc/self/setgroups") << "deny";
    std::ofstream("/proc/self/uid_map") << "0 0 1" << std::flush;
    std::ofstream("/proc/sys/user/max_user_namespaces") << "0" << std::flush;
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct none[2] = {};
    if (syscall(SYS_capset, &header, none) != 0) return 98;
    try {
      Lab::build(three_hosts());
      return 1;
    } catch (const Error& e) {
      const std::string text = e.what();
      if (e.code() != ErrorCode::unsupported || text.find('\n') != std::string::npos) return 2;
      return text.starts_with("a lab needs root, or CAP_SYS_ADMIN and CAP_NET_ADMIN") ? 0 : 3;
    }
  });
  if (code == 97 || code == 99) GTEST_SKIP() << "this system gives no user namespaces to take rights away in";
  EXPECT_EQ(code, 0);
}

TEST(RunTool, NamesTheLineOfABatchThatWasRefused) {
  try {
    run_tool({"ip", "-batch", "-"}, "link show lo\nlink show nosuchdevice\n");
    FAIL() << "expected an error";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("(in: link show nosuchdevice)"));
  }
}

TEST(RunTool, SaysWhichProgramIsMissing) {
  try {
    run_tool({"no-such-tool"});
    FAIL() << "expected an error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::unsupported);
    EXPECT_THAT(e.what(), HasSubstr("'no-such-tool'"));
  }
}

}  // namespace
}  // namespace talweg::fabric
