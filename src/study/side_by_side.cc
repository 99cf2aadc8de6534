#include "study/side_by_side.h"

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
#include <cstring>
#include <exception>
#include <iterator>
#include <map>

#include "base/child_process.h"
#include "base/fail.h"

namespace talweg::study {
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

void do_piece(const Work& work, int fd) {
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
    std::ranges::replace(last, '\n', ' ');
  }
  write_all(fd, last + "\n");
}

// A running piece, as its starter sees it.
class Piece {
 public:
  explicit Piece(const Work& work)
      : ends_(make_pipe()), process_("start a process", [&] {
          ::close(ends_[0]);
          do_piece(work, ends_[1]);
        }) {
    ::close(ends_[1]);
  }
  Piece(const Piece&) = delete;
  Piece& operator=(const Piece&) = delete;
  ~Piece() { ::close(ends_[0]); }

  int fd() const { return ends_[0]; }
  std::size_t lines() const { return lines_; }
  // False at the end of what it says.
  bool read_more() {
    std::array<char, 65536> buffer;
    const ssize_t n = ::read(fd(), buffer.data(), buffer.size());
    if (n > 0) {
      text_.append(buffer.data(), static_cast<std::size_t>(n));
      lines_ += static_cast<std::size_t>(std::count(buffer.begin(), buffer.begin() + n, '\n'));
    }
    return n > 0 || (n < 0 && errno == EINTR);
  }

  // After all it has said, or too late: `late` says so.
  WorkResult finish(const std::string& late) {
    process_.kill(SIGKILL);
    const int status = process_.wait();
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
  static std::array<int, 2> make_pipe() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) throw_error(ErrorCode::system, "pipe: {}", std::strerror(errno));
    return ends;
  }

  std::array<int, 2> ends_;
  ChildProcess process_;
  std::string text_;
  std::size_t lines_ = 0;  // with the last, that it is done
};

constexpr int kLookEveryMs = 100;

std::vector<WorkState> states_of(const std::vector<WorkResult>& results,
                                 const std::map<std::size_t, Piece>& running, std::size_t begun) {
  std::vector<WorkState> states(results.size());
  for (std::size_t i = 0; i < begun; ++i) states[i] = {results[i].lines.size(), true};
  for (const auto& [index, piece] : running) states[index] = {piece.lines(), false};
  return states;
}

}  // namespace

std::vector<WorkResult> side_by_side(const std::vector<Work>& pieces, double seconds, Clock::time_point begin,
                                     std::size_t at_once, const Look& look) {
  const std::string late = fmt::format("not done within {:.3g} s", seconds);
  std::vector<WorkResult> results(pieces.size(), {{}, late});
  if (seconds <= 0) return results;
  const auto left_ms = [&] {
    const double left = (seconds - std::chrono::duration<double>(Clock::now() - begin).count()) * 1e3;
    return static_cast<int>(std::clamp(left, 0.0, 1e9));
  };
  std::map<std::size_t, Piece> running;
  std::size_t next = 0;
  while (next < pieces.size() || !running.empty()) {
    while (next < pieces.size() && running.size() < at_once) {
      running.try_emplace(next, pieces[next]);
      ++next;
    }
    std::vector<pollfd> waiting;
    for (const auto& [index, piece] : running) waiting.push_back({piece.fd(), POLLIN, 0});
    const int left = left_ms();
    if (left == 0) break;
    if (look) look(states_of(results, running, next));
    if (poll(waiting.data(), waiting.size(), look ? std::min(left, kLookEveryMs) : left) <= 0) continue;
    auto ready = waiting.begin();
    for (auto it = running.begin(); it != running.end(); ++ready) {
      const bool ended = ready->revents != 0 && !it->second.read_more();
      if (ended) results[it->first] = it->second.finish({});
      it = ended ? running.erase(it) : std::next(it);
    }
  }
  for (auto& [index, piece] : running) results[index] = piece.finish(late);
  return results;
}

}  // namespace talweg::study
