#include "cli/side_by_side.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <utility>

#include "talweg/error.h"

namespace talweg::cli {
namespace {

using Clock = std::chrono::steady_clock;

// The first letter of what a process says.
constexpr char kLine = 'l';
constexpr char kFailure = 'f';
constexpr char kDone = 'd';

void write_all(int fd, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno != EINTR) return;  // nobody listens any more
    done += static_cast<std::size_t>(std::max<ssize_t>(0, n));
  }
}

[[noreturn]] void do_piece(const Work& work, int fd) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // Should memory run out, it is this process that has to go.
  if (const int score = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC); score >= 0) {
    write_all(score, "1000");
    ::close(score);
  }
  std::string last(1, kDone);
  try {
    work([fd](const std::string& line) { write_all(fd, kLine + line + "\n"); });
  } catch (const std::exception& error) {
    last = kFailure + std::string(error.what());
    std::replace(last.begin(), last.end(), '\n', ' ');
  }
  write_all(fd, last + "\n");
  _exit(0);
}

// A running piece, as its starter sees it.
class Piece {
 public:
  explicit Piece(const Work& work) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0)
      throw Error(ErrorCode::system, fmt::format("pipe: {}", std::strerror(errno)));
    pid_ = fork();
    if (pid_ == 0) {
      close(ends[0]);
      do_piece(work, ends[1]);
    }
    const int reason = errno;
    close(ends[1]);
    fd_ = ends[0];
    if (pid_ < 0) {
      close(fd_);
      throw Error(ErrorCode::system, fmt::format("fork: {}", std::strerror(reason)));
    }
  }
  Piece(Piece&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)),
        fd_(std::exchange(other.fd_, -1)),
        text_(std::move(other.text_)) {}
  Piece(const Piece&) = delete;
  Piece& operator=(const Piece&) = delete;
  Piece& operator=(Piece&&) = delete;
  ~Piece() {
    if (pid_ > 0) end();
  }

  int fd() const { return fd_; }
  // False at the end of what it says.
  bool read_more() {
    std::array<char, 65536> buffer;
    const ssize_t n = ::read(fd_, buffer.data(), buffer.size());
    if (n > 0) text_.append(buffer.data(), static_cast<std::size_t>(n));
    return n > 0 || (n < 0 && errno == EINTR);
  }

  // After all it has said, or too late: `late` says so.
  WorkResult finish(const std::string& late) {
    const int status = end();
    WorkResult result;
    result.failure =
        WIFSIGNALED(status) && late.empty()
            ? fmt::format("ended by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)))
            : late;
    std::size_t begin = 0;
    for (std::size_t line_end; (line_end = text_.find('\n', begin)) != std::string::npos;
         begin = line_end + 1) {
      const std::string line = text_.substr(begin + 1, line_end - begin - 1);
      if (text_[begin] == kLine) result.lines.push_back(line);
      if (text_[begin] == kDone) result.failure.clear();
      if (text_[begin] == kFailure) result.failure = line;
    }
    return result;
  }

 private:
  int end() {
    kill(pid_, SIGKILL);
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    close(fd_);
    pid_ = -1;
    return status;
  }

  pid_t pid_ = -1;
  int fd_ = -1;
  std::string text_;
};

}  // namespace

std::vector<WorkResult> side_by_side(const std::vector<Work>& pieces, double seconds,
                                     Clock::time_point begin) {
  const std::string late = fmt::format("not done within {:.3g} s", seconds);
  std::vector<WorkResult> results(pieces.size(), {{}, late});
  if (seconds <= 0) return results;
  std::fflush(nullptr);  // or every process would write what is buffered
  const auto deadline = begin + std::chrono::duration<double>(seconds);
  std::vector<Piece> running;
  running.reserve(pieces.size());
  for (const Work& work : pieces) running.emplace_back(work);
  std::vector<pollfd> waiting;
  for (const Piece& piece : running) waiting.push_back({piece.fd(), POLLIN, 0});
  for (std::size_t open = running.size(); open > 0;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) break;
    if (poll(waiting.data(), waiting.size(), static_cast<int>(std::min<std::int64_t>(left, 1 << 30))) <= 0)
      continue;
    for (std::size_t i = 0; i < running.size(); ++i) {
      if (waiting[i].fd < 0 || waiting[i].revents == 0 || running[i].read_more()) continue;
      waiting[i].fd = -1;
      results[i] = running[i].finish({});
      --open;
    }
  }
  for (std::size_t i = 0; i < running.size(); ++i)
    if (waiting[i].fd >= 0) results[i] = running[i].finish(late);
  return results;
}

}  // namespace talweg::cli
