// Where the members of a group find each other: a small key-value store. Talweg brings two (TCP, served by
// rank 0; a shared file); PyTorch's store is adapted to the same face.
#pragma once

#include <chrono>
#include <memory>
#include <string>

namespace talweg {

class Store {
 public:
  virtual ~Store() = default;
  // Makes `value` visible to all members under `key`. Keys are written once.
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Blocks until somebody has set `key`. Throws Error{timeout} at the deadline, naming the key, and
  // Error{peer_failed} when the store's server is gone.
  virtual std::string get(const std::string& key, std::chrono::steady_clock::time_point deadline) = 0;
};

// A store on rank 0 at host:port; rank 0 serves it from a thread that lives as long as the object. Port 0 on
// the serving side takes a free one: see `port_of`. Blocks until connected. Throws Error{system} (port in
// use, no such host) or Error{timeout}.
std::shared_ptr<Store> tcp_store(const std::string& host, int port, bool serve,
                                 std::chrono::steady_clock::time_point deadline);
// A store in one file that all members can see (created if missing, locked while it is written). The file
// must be new or empty for each group. Throws Error{invalid_argument} when the path is a directory.
std::shared_ptr<Store> file_store(const std::string& path);

}  // namespace talweg
