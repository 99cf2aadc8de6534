// Labs that stay up: each is held by a small process in the background, and a file says which process that
// is.
//
// The file, lab-NAME.json in lab_state_folder(), is only a note. When its process is gone, so is the lab, and
// the note is removed by whoever finds it.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "fabric/lab.h"

namespace talweg::fabric {

struct LabNote {
  std::string name;
  std::string cluster_file;  // absolute
  std::string network;       // the cluster as YAML, to notice that the file has changed since
  pid_t holder = 0;
  std::string
      holder_started;  // clock ticks since boot: tells the holder from a later process with its number
  struct Host {
    std::string name;
    bool worker = true;
    std::string address;
    std::string net;  // path of its network namespace
  };
  std::vector<Host> hosts;
  std::string switches;
};

// "$XDG_RUNTIME_DIR/talweg", or /run/talweg for root, or else a folder of the user's own in /tmp. To be asked
// before Lab::build, which may turn the process into another user.
std::string lab_state_folder();

// The labs that are up. Removes the notes of those that are not. In a folder of somebody else there are none.
std::vector<LabNote> labs_up(const std::string& folder);

// Leaves `lab` in the hands of a holder process and writes its note. Throws Error{invalid_argument} when a
// lab of that name is up, Error{system}.
LabNote keep_up(const Lab& lab, const std::string& name, const std::string& cluster_file,
                const cluster::Cluster& cluster, const std::string& folder);

// The lab behind a note, with the holder's rights; `cluster` is what it was built of. Warns of what is left
// out, and of nothing else that was said when it was built. Throws Error{system}.
Lab attach(const LabNote& note, const cluster::Cluster& cluster);

// Ends the holder, and with it the lab once nothing runs in it, and removes the note.
void take_down(const LabNote& note, const std::string& folder);

// The name that a lab of this file has unless another is given: the file's own, without folder and extension.
std::string default_lab_name(const std::string& cluster_file);

}  // namespace talweg::fabric
