#include "fabric/child.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <array>
#include <vector>

#include "base/fail.h"
#include "base/printable.h"

namespace talweg::fabric {

namespace {

struct Pipe {
  FileDescriptor read, write;
};

Pipe make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw_system("make a pipe");
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

// The launcher's environment with the process's own settings on top.
std::vector<std::string> merged_environment(const Process& process) {
  std::vector<std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view key = text.substr(0, text.find('='));
    bool replaced = false;
    for (const auto& [name, value] : process.environment) replaced |= key == name;
    if (!replaced) merged.emplace_back(text);
  }
  for (const auto& [name, value] : process.environment) merged.push_back(name + "=" + value);
  return merged;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& s : strings) result.push_back(s.data());
  result.push_back(nullptr);
  return result;
}

// What the new process writes to the status pipe when it cannot become the program.
constexpr char kExecFailed = 'x';  // followed by errno as text
constexpr char kHookFailed = 'h';  // followed by the hook's message

void report(int status, char kind, const std::string& text) {
  const std::string message = kind + text;
  [[maybe_unused]] const ssize_t written = write(status, message.data(), message.size());
  _exit(127);
}

int run_body(const std::function<int()>& body) {
  try {
    return body();
  } catch (const std::exception& e) {
    const std::string text = fmt::format("talweg: {}\n", e.what());
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
    return 1;
  }
}

}  // namespace

Child::Child(const Process& process, const LaunchOptions& options, const sigset_t& mask, const Warden& warden)
    : label_(printable(process.label)),  // an aggregator's name comes out of a file
      aggregates_(process.aggregates),
      carries_(process.carries),
      out_{{}, options.out, LinePrefixer("[" + label_ + "] ")},
      err_{{}, options.err, LinePrefixer("[" + label_ + "] ")} {
  if (process.command.empty() && !process.body) refuse("cannot start {}: no program given", who());
  Pipe out = make_pipe(), err = make_pipe(), status = make_pipe();
  FileDescriptor input(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!input) throw_system("open /dev/null");
  std::vector<std::string> arguments = process.command, environment = merged_environment(process);
  const std::vector<char*> argv = pointers(arguments), envp = pointers(environment);
  const pid_t launcher = getpid();

  process_.emplace(fmt::format("start a process for {}", who()), [&] {
    setpgid(0, 0);
    warden.watch_me();
    dup2(input.get(), STDIN_FILENO);
    dup2(out.write.get(), STDOUT_FILENO);
    dup2(err.write.get(), STDERR_FILENO);
    try {
      if (process.before_exec) process.before_exec();
    } catch (const std::exception& e) {
      report(status.write.get(), kHookFailed, e.what());
    }
    // After the hook, because a change of credentials clears it.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) _exit(127);
    signal(SIGPIPE, SIG_DFL);
    if (process.body) {
      close(status.write.get());
      _exit(run_body(process.body));
    }
    sigprocmask(SIG_SETMASK, &mask, nullptr);
    execvpe(argv[0], argv.data(), envp.data());
    report(status.write.get(), kExecFailed, std::to_string(errno));
  });
  setpgid(pid(), pid());  // also here, so that the group exists before anybody signals it
  // By number, because the declaration in glibc 2.36 has no extern "C".
  pidfd_ = FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, pid(), 0)));
  if (!pidfd_) {
    kill_group(SIGKILL);
    process_->wait();
    throw_system("watch a process");
  }
  status.write.reset();
  std::string report;
  std::array<char, 512> buffer;
  ssize_t n;
  while ((n = read(status.read.get(), buffer.data(), buffer.size())) != 0) {
    if (n > 0) report.append(buffer.data(), static_cast<std::size_t>(n));
    if (n < 0 && errno != EINTR) break;
  }
  if (!report.empty()) explain_failed_start(process, report);
  out_.from = std::move(out.read);
  err_.from = std::move(err.read);
  for (const Stream* stream : {&out_, &err_}) fcntl(stream->from.get(), F_SETFL, O_NONBLOCK);
}

void Child::explain_failed_start(const Process& process, const std::string& report) {
  process_->wait();
  if (report[0] == kHookFailed)
    throw_error(ErrorCode::system, "cannot start {}: {}", who(), report.substr(1));
  const int reason = std::stoi(report.substr(1));
  const std::string& program = process.command[0];
  const bool looked_up = program.find('/') == std::string::npos;
  refuse("cannot start {}: program '{}'{}: {}", who(), program,
         looked_up && reason == ENOENT ? " in PATH" : "", strerror(reason));
}

Child::~Child() {
  if (process_ && pid() > 0) kill_group(SIGKILL);
}

bool Child::pump(Stream& stream, bool prefix) {
  std::array<char, 16384> buffer;
  const ssize_t n = read(stream.from.get(), buffer.data(), buffer.size());
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  std::string raw;
  if (n > 0) raw.assign(buffer.data(), static_cast<std::size_t>(n));
  const std::string text = !prefix ? raw : n > 0 ? stream.lines.feed(raw) : stream.lines.finish();
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t written = write(stream.to, text.data() + done, text.size() - done);
    if (written > 0) done += static_cast<std::size_t>(written);
    if (written < 0 && errno != EINTR && errno != EAGAIN) {
      stream.lost = errno;
      break;
    }
  }
  return n > 0;
}

void Child::kill_group(int signal) const {
  kill(-pid(), signal);
  if (signal != SIGKILL) kill(-pid(), SIGCONT);  // a stopped one would else hear of it only when it goes on
}

void Child::note_end() {
  siginfo_t info{};
  if (waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &info, WEXITED | WNOWAIT) != 0)
    throw_system("wait for a rank");
  ended_ = true;
  killed_ = info.si_code != CLD_EXITED;
  exit_code_ = killed_ ? 128 + info.si_status : info.si_status;
}

std::string Child::how_it_ended() const {
  if (!killed_) return fmt::format("{} exited with code {}", who(), exit_code_);
  const int signal = exit_code_ - 128;
  const char* abbreviation = sigabbrev_np(signal);
  return fmt::format("{} was killed by signal {} (SIG{})", who(), signal,
                     abbreviation == nullptr ? std::to_string(signal) : abbreviation);
}

}  // namespace talweg::fabric
