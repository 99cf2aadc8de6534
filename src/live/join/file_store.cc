// A key-value store in one shared file: a line that says so, then a line per key, "key value" in hexadecimal,
// appended under a lock.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <thread>

#include "base/fail.h"
#include "live/system.h"
#include "talweg/store.h"

namespace talweg {

namespace {

constexpr std::string_view kHead = "talweg-store\n";
constexpr auto kPoll = std::chrono::milliseconds(2);  // between looks at the file

std::string to_hex(const std::string& text) {
  std::string hex;
  for (const char c : text) hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return hex;
}

std::string from_hex(const std::string& hex) {
  std::string text;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    text += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return text;
}

class FileStore : public Store {
 public:
  explicit FileStore(const std::string& path) : path_(path) {
    struct stat info {};
    if (::lstat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
      refuse("file store {}: expected a file, this is {}", path,
             S_ISDIR(info.st_mode)   ? "a directory"
             : S_ISLNK(info.st_mode) ? "a symbolic link, which may lead anywhere"
                                     : "something else");
    // Not through a link, nor waiting for another end: what is there now may be another thing than before.
    constexpr int kHow = O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    file_ = FileDescriptor(
        live::check(::open(path.c_str(), kHow, 0600), fmt::format("opening the file store {}", path)));
    locked([&] {
      std::string head(kHead.size(), '\0');
      const ssize_t n = live::check(static_cast<int>(::pread(file_.get(), head.data(), head.size(), 0)),
                                    "reading the file store " + path_);
      if (n == 0) return append(std::string(kHead));
      if (head != kHead)
        refuse(
            "file store {}: expected an empty file or one that groups have met by; something else is in it",
            path_);
    });
  }

  void set(const std::string& key, const std::string& value) override {
    locked([&] { append(to_hex(key) + " " + to_hex(value) + "\n"); });
  }

  std::string get(const std::string& key, std::chrono::steady_clock::time_point deadline) override {
    for (;;) {
      read_more();
      if (const auto it = values_.find(to_hex(key)); it != values_.end()) return from_hex(it->second);
      if (std::chrono::steady_clock::now() >= deadline)
        throw_error(ErrorCode::timeout, "file store {}: nobody has set \"{}\"", path_, key);
      std::this_thread::sleep_for(kPoll);
    }
  }

  bool confidential() const override {
    struct stat info {};
    return ::fstat(file_.get(), &info) == 0 && info.st_uid == ::geteuid() &&
           (info.st_mode & (S_IRWXG | S_IRWXO)) == 0;
  }

 private:
  template <class Function>
  void locked(Function&& function) {
    int rc = 0;
    do rc = ::flock(file_.get(), LOCK_EX);
    while (rc < 0 && errno == EINTR);
    live::check(rc, "locking the file store " + path_);
    try {
      function();
    } catch (...) {
      ::flock(file_.get(), LOCK_UN);
      throw;
    }
    ::flock(file_.get(), LOCK_UN);
  }

  void append(const std::string& text) {
    if (::write(file_.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
      live::check(-1, "writing to the file store " + path_);
  }

  void read_more() {
    char chunk[4096];
    for (;;) {
      const ssize_t n = ::pread(file_.get(), chunk, sizeof chunk, offset_);
      if (live::check(static_cast<int>(n), "reading the file store " + path_) == 0) break;
      offset_ += n;
      rest_.append(chunk, static_cast<std::size_t>(n));
    }
    std::size_t end = 0;
    while ((end = rest_.find('\n')) != std::string::npos) {
      const std::string line = rest_.substr(0, end);
      rest_.erase(0, end + 1);
      if (const std::size_t space = line.find(' '); space != std::string::npos)
        values_[line.substr(0, space)] = line.substr(space + 1);
    }
  }

  const std::string path_;
  live::FileDescriptor file_;
  off_t offset_ = 0;
  std::string rest_;
  std::map<std::string, std::string> values_;
};

}  // namespace

std::shared_ptr<Store> file_store(const std::string& path) {
  return std::make_shared<FileStore>(path);
}

}  // namespace talweg
