// Where the members of a group find each other: a small key-value store. Talweg brings two (TCP, served by
// rank 0; a shared file); PyTorch's store is adapted to the same face.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "talweg/error.h"

namespace talweg {

class Store {
 public:
  virtual ~Store() = default;
  // Makes `value` visible to all members under `key`; a value that was there before is replaced.
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Blocks until somebody has set `key`. Throws Error{timeout} at the deadline, naming the key, and
  // Error{peer_failed} when the store's server is gone.
  virtual std::string get(const std::string& key, std::chrono::steady_clock::time_point deadline) = 0;
  // What is under `key` now; empty if nobody has set it.
  virtual std::optional<std::string> find(const std::string& key) {
    try {
      return get(key, std::chrono::steady_clock::now());
    } catch (const Error& e) {
      if (e.code() != ErrorCode::timeout) throw;
      return std::nullopt;
    }
  }
  // True when only members can read what is written here. Then a group that was given no job key draws a key
  // of its own and keeps it here: it is as safe as the store is.
  virtual bool confidential() const { return false; }
  // False where `talweg aggregator` cannot look: in a store that the ranks' program alone can reach.
  virtual bool seen_by_aggregators() const { return true; }
  // Connections that this side's server has dropped: strangers, wrong keys, silence.
  virtual std::uint64_t refused_connections() const { return 0; }
};

// A store on rank 0 at host:port; rank 0 serves it from a thread that lives as long as the object. Both ends
// of every connection prove `key`, the text of the job's key, and what they say is encrypted. Without a key
// the server serves on loopback only. Blocks until connected. Throws Error{system} (port in use, no such
// host), Error{timeout}, Error{invalid_argument} (no key where one is needed, or another key than the
// server's).
std::shared_ptr<Store> tcp_store(const std::string& host, int port, bool serve,
                                 std::chrono::steady_clock::time_point deadline, const std::string& key = {});
// A store in one file that all members can see (created for its owner alone if missing, locked while it is
// written); the file's permissions are what protects it. Throws
// Error{invalid_argument} when the path is a directory.
std::shared_ptr<Store> file_store(const std::string& path);

}  // namespace talweg
