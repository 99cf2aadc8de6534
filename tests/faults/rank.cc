// One rank of a group that something happens to: carries out the steps it is given, one after the other, and
// writes one line of JSON for each that has an outcome, with the time on the machine's steady clock.
//
//   fault_rank RANK SIZE MEETING TIMEOUT_MS STEP...
//
// MEETING is GroupOptions::rendezvous. Steps, whose values are separated by commas:
//   join=INTERFACE     a group of all ranks; the n-th join of each rank meets the n-th of the others
//   call=OP,COUNT,TYPE,REDUCTION,ROOT     one collective of so many elements of each rank; its result, if all
//                                         ranks agree, is checked
//   loop=COUNT,MS[,FILE]  all-reduces of that size, checked, until MS have passed, FILE is there or one fails
//   follow=COUNT,CALLS,MS  the same, until so many calls have followed the first change of plan; says at which
//                      calls it changed, and how many bytes this rank sent in each
//   bounded=COUNT[,MS]  an all-reduce, checked, by sums of which a part may be lost, made for it; more of them until MS
//                      have passed or one fails, checked where they are exact
//   sums=SEED,FILE     all-reduces of sizes, types and zeros drawn from SEED, checked, until FILE is there and the switch
//                      that is named has summed again since, or has not within TIMEOUT_MS; says how many it has made
//   start=COUNT        an all-reduce that nobody waits for; finish waits for it
//   sleep=MS, mark=NAME, abort=WHY, leave, skip (a join that this process missed), die (by SIGKILL)
//   child=MS           forks a process that lives so long and inherits everything
//   alarms=US          a signal so often from now on, which interrupts system calls; 0: no more, and how many
//   there were resources          how many descriptors and threads this process has, once this has settled
// An error ends the step, not the program, unless there is no group to go on with.
#include <fmt/format.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "kernel/half.h"
#include "soak/values.h"
#include "talweg/bounded_loss.h"
#include "talweg/group.h"

namespace {

using namespace talweg;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

std::atomic<long> alarmed{0};
static_assert(std::atomic<long>::is_always_lock_free, "a signal handler counts");

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts{""};
  for (const char c : text) {
    if (c == ',') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

void say(const std::string& event, const std::string& more = {}) {
  const auto now = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch());
  fmt::print("{{\"event\": {}, \"ns\": {}{}}}\n", quoted(event), now.count(), more);
  fflush(stdout);
}

std::size_t entries(const char* folder) {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()));
}

class Actor {
 public:
  Actor(int rank, int size, std::string meeting, milliseconds timeout)
      : rank_(rank), size_(size), meeting_(std::move(meeting)), timeout_(timeout) {}

  void act(const std::string& name, const std::string& value) {
    const std::vector<std::string> v = split(value);
    if (name == "join") return join(value);
    if (name == "call") return call(v);
    if (name == "loop")
      return loop(std::stoul(v[0]), milliseconds(std::stol(v.at(1))), v.size() > 2 ? v[2] : "");
    if (name == "follow") return follow(std::stoul(v[0]), std::stol(v[1]), milliseconds(std::stol(v[2])));
    if (name == "bounded") return bounded(std::stoul(v[0]), milliseconds(v.size() > 1 ? std::stol(v[1]) : 0));
    if (name == "sums") return sums(std::stoull(v[0]), v.at(1));
    if (name == "start") return start(std::stoul(v[0]));
    if (name == "finish") return finish();
    if (name == "sleep") return std::this_thread::sleep_for(milliseconds(std::stol(value)));
    if (name == "mark") return say(value);
    if (name == "abort") return group_->abort(value);
    if (name == "leave") return leave();
    if (name == "die") return die();
    if (name == "skip") return static_cast<void>(++joins_);  // a meeting that this process missed
    if (name == "child") return child(milliseconds(std::stol(value)));
    if (name == "alarms") return alarms(std::stol(value));
    if (name == "resources") return resources();
    throw Error(ErrorCode::invalid_argument, "no step is called " + name);
  }

  bool has_group() const { return group_ != nullptr; }

 private:
  void join(const std::string& interface) {
    group_.reset();
    calls_ = 0;
    GroupOptions options;
    options.rank = rank_;
    options.size = size_;
    options.prefix = fmt::format("join{}/", ++joins_);
    options.timeout = timeout_;
    options.interface = interface;
    options.rendezvous = meeting_;
    group_ = Group::join(options);
    say("joined");
  }

  void call(const std::vector<std::string>& v) {
    const auto op = *parse_collective(v[0]);
    const auto count = static_cast<std::size_t>(std::stoul(v.at(1)));
    const DataType type = *parse_data_type(v.at(2));
    const ReduceOp reduction = *parse_reduce_op(v.at(3));
    const int root = std::stoi(v.at(4));
    const auto n = static_cast<std::size_t>(size_);
    const std::size_t part = count * size_of(type);
    const soak::Values values{++calls_, type, reduction, size_};
    std::vector<std::byte> in(n * part);
    values.write(in.data(), rank_, 0, n * count);
    const bool sends = op == Collective::broadcast && rank_ == root;
    const std::vector<std::byte> before = sends ? in : std::vector<std::byte>(in.size(), std::byte{0x5a});
    std::vector<std::byte> out = before;
    const std::vector<std::size_t> counts(n, count);
    try {
      switch (op) {
        case Collective::all_reduce:
          group_->all_reduce(in.data(), out.data(), count, type, reduction);
          break;
        case Collective::reduce:
          group_->reduce(in.data(), out.data(), count, type, reduction, root);
          break;
        case Collective::broadcast:
          group_->broadcast(out.data(), count, type, root);
          break;
        case Collective::reduce_scatter:
          group_->reduce_scatter(in.data(), out.data(), counts, type, reduction);
          break;
        case Collective::all_gather:
          group_->all_gather(in.data(), out.data(), counts, type);
          break;
        case Collective::all_to_all:
          group_->all_to_all(in.data(), counts, out.data(), counts, type);
          break;
        case Collective::gather:
          group_->gather(in.data(), out.data(), counts, type, root);
          break;
        case Collective::scatter:
          group_->scatter(in.data(), out.data(), counts, type, root);
          break;
        default:
          group_->barrier();
      }
    } catch (const Error&) {
      say(out == before ? "buffer untouched" : "buffer written");
      throw;
    }
    const std::size_t wrong = wrong_after(op, root, values, out.data(), count);
    if (wrong > 0) {
      say("wrong value", fmt::format(", \"call\": {}, \"elements\": {}", quoted(v[0]), wrong));
      ::exit(3);
    }
    say("called");
  }

  // Elements of what this rank has got that are not what a serial run would have given.
  std::size_t wrong_after(Collective op, int root, const soak::Values& values, const std::byte* out,
                          std::size_t count) const {
    const std::size_t own = static_cast<std::size_t>(rank_) * count;
    // A part from each rank, from this place of what that rank had.
    const auto parts = [&](std::size_t first) {
      std::size_t bad = 0;
      for (int r = 0; r < size_; ++r)
        bad +=
            values.wrong(out + static_cast<std::size_t>(r) * count * size_of(values.type), r, first, count);
      return bad;
    };
    switch (op) {
      case Collective::all_reduce:
        return values.wrong_reduced(out, 0, count);
      case Collective::reduce:
        return rank_ == root ? values.wrong_reduced(out, 0, count) : 0;
      case Collective::broadcast:
        return values.wrong(out, root, 0, count);
      case Collective::reduce_scatter:
        return values.wrong_reduced(out, own, count);
      case Collective::all_gather:
        return parts(0);
      case Collective::all_to_all:
        return parts(own);
      case Collective::gather:
        return rank_ == root ? parts(0) : 0;
      case Collective::scatter:
        return values.wrong(out, root, own, count);
      default:
        return 0;
    }
  }

  struct Sum {
    std::uint64_t seed;
    std::size_t count;
    DataType type;
    ReduceOp reduction;
  };

  // At place `i` in such a call the first rank has this, the second four times as much, and so on: a sum says
  // how often each rank is in it. Of up to eight ranks floats have it exactly.
  static int share(std::uint64_t call, std::size_t i) { return static_cast<int>(1 + (i + call) % 97); }
  static int weight(int rank) { return 1 << 2 * rank; }

  void fill(std::vector<float>& data) {
    ++calls_;
    for (std::size_t i = 0; i < data.size(); ++i)
      data[i] = static_cast<float>(weight(rank_) * share(calls_, i));
  }

  void all_reduce_checked(std::vector<float>& data) {
    fill(data);
    group_->all_reduce(data.data(), data.data(), data.size(), DataType::f32, ReduceOp::sum);
    check(data, calls_);
  }

  void check(const std::vector<float>& data, std::uint64_t call) const {
    for (std::size_t i = 0; i < data.size(); ++i) {
      const int expected = (weight(size_) - 1) / 3 * share(call, i);
      if (data[i] != static_cast<float>(expected)) {
        say("wrong value", fmt::format(", \"index\": {}, \"value\": {}", i, data[i]));
        ::exit(3);
      }
    }
  }

  void loop(std::size_t count, milliseconds time, const std::string& end) {
    std::vector<float> data(count);
    const auto until = Clock::now() + time;
    long calls = 0;
    // The first call of the last round tells all to stop: ranks count time from different moments.
    for (float more = 1; more > 0; ++calls) {
      all_reduce_checked(data);
      if (calls == 0) say("looping");
      more = Clock::now() < until && (end.empty() || !std::filesystem::exists(end)) ? 1.0F : 0.0F;
      group_->all_reduce(&more, &more, 1, DataType::f32, ReduceOp::min);
    }
    say("looped", fmt::format(", \"calls\": {}", calls));
  }

  void follow(std::size_t count, long wanted, milliseconds time) {
    std::vector<float> data(count);
    const auto until = Clock::now() + time;
    std::string plan = group_->explain(Collective::all_reduce, count, DataType::f32);
    std::string changes;  // the number of the first call after each
    std::string sent;     // bytes
    long changed = -1;    // the first of them
    float more = 1;
    for (long calls = 0; more > 0; ++calls) {
      const std::uint64_t before = group_->statistics().bytes_sent;
      all_reduce_checked(data);
      sent += fmt::format("{}{}", calls > 0 ? ", " : "", group_->statistics().bytes_sent - before);
      if (calls == 0) say("looping");
      more = Clock::now() < until && (changed < 0 || calls < changed + wanted) ? 1.0F : 0.0F;
      group_->all_reduce(&more, &more, 1, DataType::f32, ReduceOp::min);
      std::string now = group_->explain(Collective::all_reduce, count, DataType::f32);
      if (now == plan) continue;
      if (changed < 0) changed = calls + 1;
      changes += fmt::format("{}{}", changes.empty() ? "" : ", ", calls + 1);
      plan = std::move(now);
    }
    say("followed", fmt::format(", \"changes\": [{}], \"sent\": [{}], \"plan\": \"{}\"", changes, sent,
                                plan.substr(0, plan.find('\n'))));
  }

  // What a rank has in such a call. A third of each rank's blocks is zero; averages are whole.
  static int drawn(const Sum& sum, int rank, int ranks, std::size_t i) {
    const auto mix = [&](std::uint64_t x) {
      x = (x + sum.seed + static_cast<std::uint64_t>(rank) * 0x9E3779B97F4A7C15) * 0xD1B54A32D192ED03;
      return (x ^ (x >> 29)) * 0xBF58476D1CE4E5B9 >> 32;
    };
    if (mix(i / 700) % 3 == 0) return 0;
    const int value = static_cast<int>(mix(i) % 9) - 4;
    return sum.reduction == ReduceOp::avg ? value * ranks : value;
  }

  static void put(std::byte* to, DataType type, int value) {
    const auto real = static_cast<float>(value);
    const std::uint16_t half = type == DataType::f16 ? kernel::f32_to_f16(real) : kernel::f32_to_bf16(real);
    const std::size_t bytes = size_of(type);
    std::memcpy(to,
                type == DataType::i32   ? static_cast<const void*>(&value)
                : type == DataType::f32 ? static_cast<const void*>(&real)
                                        : &half,
                bytes);
  }

  // Throws what the call does; ends the process where a sum is wrong.
  void sum_checked(const Sum& sum, bool in_place) {
    const std::size_t element = size_of(sum.type);
    std::vector<std::byte> in(sum.count * element), out(in.size()), expected(in.size());
    for (std::size_t i = 0; i < sum.count; ++i) {
      int all = 0;
      for (int r = 0; r < size_; ++r) {
        const int value = drawn(sum, r, size_, i);
        if (r == rank_) put(&in[i * element], sum.type, value);
        all = sum.reduction == ReduceOp::max && r > 0 ? std::max(all, value)
              : sum.reduction == ReduceOp::max        ? value
                                                      : all + value;
      }
      put(&expected[i * element], sum.type, sum.reduction == ReduceOp::avg ? all / size_ : all);
    }
    if (in_place) out = in;
    group_->all_reduce(in_place ? out.data() : in.data(), out.data(), sum.count, sum.type, sum.reduction);
    if (out == expected) return;
    const auto wrong = std::ranges::mismatch(out, expected).in1 - out.begin();
    say("wrong value",
        fmt::format(", \"seed\": {}, \"count\": {}, \"type\": {}, \"index\": {}", sum.seed, sum.count,
                    quoted(name(sum.type)), static_cast<std::size_t>(wrong) / element));
    ::exit(3);
  }

  // "switch: 10.88.0.3:4711 (environment), 12 sums", of which this is the number.
  long sums_of_switch() const {
    const std::string text = group_->describe();
    const std::size_t at = text.find("), ", text.find("\nswitch: "));
    return at == std::string::npos ? 0 : std::stol(text.substr(at + 3));
  }

  // The number that says whether to go on is a sum of trees alone, of which all ranks have the same.
  void sums(std::uint64_t seed, const std::string& file) {
    constexpr DataType kTypes[] = {DataType::f32, DataType::f16, DataType::bf16, DataType::i32};
    constexpr ReduceOp kReductions[] = {ReduceOp::sum, ReduceOp::sum, ReduceOp::sum, ReduceOp::avg,
                                        ReduceOp::max};
    Random random(seed);
    std::optional<Clock::time_point> healed;
    Clock::duration longest{0};
    long calls = 0, then = 0;
    for (std::int64_t state = 1; state == 1; ++calls) {
      const Sum sum{random.below(UINT64_MAX), 1 + random.below(std::uint64_t{2} << random.below(17)),
                    kTypes[random.below(std::size(kTypes))],
                    kReductions[random.below(std::size(kReductions))]};
      const auto begun = Clock::now();
      sum_checked(sum, random.below(2) == 0);
      longest = std::max(longest, Clock::now() - begun);
      if (!healed && std::filesystem::exists(file)) {
        healed = Clock::now();
        then = sums_of_switch();
      }
      const std::int64_t own = !healed                             ? 1
                               : sums_of_switch() > then + 10      ? 2
                               : Clock::now() > *healed + timeout_ ? 0
                                                                   : 1;
      group_->all_reduce(&own, &state, 1, DataType::i64, ReduceOp::min);
      if (calls == 0) say("summing");
    }
    const std::string text = group_->describe();
    const std::size_t at = text.find("switch: ");
    say("summed",
        fmt::format(", \"calls\": {}, \"longest_ms\": {}, \"by_switch\": {}, \"since\": {}, \"says\": {}",
                    calls, std::chrono::duration_cast<milliseconds>(longest).count(), sums_of_switch(),
                    sums_of_switch() - then, quoted(text.substr(at, text.find('\n', at) - at))));
  }

  // The first calls of such sums lose nothing. Whether to go on is asked once in a while:
  // what happens meanwhile happens to a sum.
  static constexpr int kAskedEach = 16;
  void bounded(std::size_t count, milliseconds time) {
    std::vector<float> data(count);
    bounded_ = BoundedSums::make(*group_);  // until this rank leaves
    say("made");
    const auto until = Clock::now() + time;
    bool exact = true;
    float more = 1;
    for (int call = 0; more > 0; ++call) {
      fill(data);
      const LossReport report = bounded_->all_reduce({.in = data.data(), .out = data.data(), .count = count});
      exact = exact && report.exact;
      if (exact) check(data, calls_);
      if (time == milliseconds(0)) break;
      if (call == 0) say("summing");
      if (call % kAskedEach != kAskedEach - 1) continue;
      more = Clock::now() < until ? 1.0F : 0.0F;
      group_->all_reduce(&more, &more, 1, DataType::f32, ReduceOp::min);
    }
    say("summed", fmt::format(", \"exact\": {}", exact));
  }

  static void die() {
    ::kill(::getpid(), SIGKILL);
    for (;;) ::pause();
  }

  // The caller says that it will wait, and does not.
  void start(std::size_t count) {
    started_.resize(count);
    fill(started_);
    started_as_ = calls_;
    CallOptions options;
    options.will_wait = true;
    work_ = group_->start_all_reduce(started_.data(), started_.data(), count, DataType::f32, ReduceOp::sum,
                                     options);
  }

  void finish() {
    work_->wait();
    check(started_, started_as_);
    say("finished");
  }

  void leave() {
    work_.reset();
    bounded_.reset();
    const auto before = Clock::now();
    group_.reset();
    const auto ms = std::chrono::duration_cast<milliseconds>(Clock::now() - before).count();
    say("left", fmt::format(", \"ms\": {}", ms));
  }

  static void child(milliseconds time) {
    if (::fork() != 0) return;
    ::prctl(PR_SET_PDEATHSIG, 0);
    ::close(STDOUT_FILENO);  // whoever reads our reports waits for their end
    ::close(STDERR_FILENO);
    std::this_thread::sleep_for(time);
    ::_exit(0);
  }

  static void alarms(long microseconds) {
    struct sigaction action {};  // without SA_RESTART
    action.sa_handler = [](int) { ++alarmed; };
    ::sigaction(SIGALRM, &action, nullptr);
    itimerval timer{};
    timer.it_interval.tv_usec = timer.it_value.tv_usec = microseconds;
    ::setitimer(ITIMER_REAL, &timer, nullptr);
    if (microseconds == 0) say("alarmed", fmt::format(", \"times\": {}", alarmed.load()));
  }

  // Other processes' ends are seen a moment after they happen; a leak stays.
  static void resources() {
    std::size_t fds = 0;
    std::size_t threads = 0;
    for (int i = 0; i < 20; ++i) {
      fds = entries("/proc/self/fd");
      threads = entries("/proc/self/task");
      std::this_thread::sleep_for(milliseconds(10));
    }
    say("resources", fmt::format(", \"fds\": {}, \"threads\": {}", fds, threads));
  }

  const int rank_;
  const int size_;
  const std::string meeting_;
  const milliseconds timeout_;
  int joins_ = 0;
  std::uint64_t calls_ = 0;  // with data, in this group; the same on all ranks
  std::shared_ptr<Group> group_;
  std::vector<float> started_;
  std::uint64_t started_as_ = 0;
  WorkPtr work_;
  std::shared_ptr<BoundedSums> bounded_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    fmt::print(stderr, "usage: fault_rank RANK SIZE MEETING TIMEOUT_MS STEP...\n");
    return 2;
  }
  Actor actor(std::stoi(argv[1]), std::stoi(argv[2]), argv[3], milliseconds(std::stol(argv[4])));
  for (int i = 5; i < argc; ++i) {
    const std::string step = argv[i];
    const std::size_t equals = std::min(step.find('='), step.size());
    try {
      actor.act(step.substr(0, equals), equals < step.size() ? step.substr(equals + 1) : "");
    } catch (const Error& e) {
      say("error", fmt::format(", \"step\": {}, \"code\": {}, \"text\": {}", quoted(step),
                               quoted(name(e.code())), quoted(e.what())));
      if (!actor.has_group()) return 0;
    }
  }
  return 0;
}
