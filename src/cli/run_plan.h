// What `talweg run` will start: which rank on which host, with which environment, by which command.
//
// Ranks are numbered host by host, in the order given. Ranks of this machine ("localhost", or no --hosts at
// all) are plain processes; others are reached through a remote shell that gets one command line, as ssh and
// rsh do.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace talweg::cli {

struct HostSlots {
  std::string host;
  int slots = 1;
  bool operator==(const HostSlots&) const = default;
};

// "h0:2,h1:2,localhost"; slots default to 1. Throws Error{invalid_argument}.
std::vector<HostSlots> parse_hosts(const std::string& text);
bool is_local(const std::string& host);

struct RunPlan {
  struct Rank {
    std::string host;
    bool remote = false;  // the first line of its standard input is the key
    std::vector<std::pair<std::string, std::string>> environment;
    std::vector<std::string> command;
    std::string aggregator;  // the node that it is for; empty: a rank
  };
  std::vector<Rank> ranks;
};

struct RunRequest {
  int ranks = 0;                 // 0: as many as --hosts has slots
  std::vector<HostSlots> hosts;  // empty: this machine only
  std::vector<std::string> program;
  std::string remote_shell = "ssh";  // split at blanks; the host and the command line are appended
  std::string master_address;        // empty: 127.0.0.1, or the first host when there are several
  int master_port = 0;
  int aggregator_port = 0;               // on the same host
  std::string directory;                 // where remote programs start
  std::vector<std::string> pass;         // NAME=value pairs that remote ranks get as well
  std::vector<std::string> aggregators;  // nodes that aggregate, called as their hosts are
  std::string talweg = "talweg";         // this program, here
  std::string key;  // TALWEG_KEY: local ranks get it in their environment, remote ones read it
};

// Throws Error{invalid_argument} when ranks and slots do not fit or nothing is to be run.
RunPlan plan_run(const RunRequest& request);

}  // namespace talweg::cli
