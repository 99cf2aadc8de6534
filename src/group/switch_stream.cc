#include "group/switch_stream.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/random.h"
#include "group/rejoining.h"
#include "live/join/card.h"
#include "live/system.h"
#include "protocol/aggregation/tolerance.h"

namespace talweg::group {

namespace {

// All ranks have called the sum: without any result for so long the switch, or the way to it, is taken for
// lost.
constexpr std::int64_t kSilenceNs = 1'000 * live::kMillisecondNs;
// Of a sum in the client, which never comes: silence ends it first.
constexpr std::int64_t kNoDeadlineNs = 3'600'000 * live::kMillisecondNs;
// Measured: what a sum costs however short it is, and what its bytes do.
constexpr std::size_t kShortElements = 1024;
constexpr std::size_t kLongElements = 256 * 1024;
constexpr int kShortSums = 9, kLongSums = 3;
constexpr double kPairs = 0.25;  // of the long vector's elements on any rank
constexpr std::size_t kRows = 16 * 1024;
constexpr double kRowsOnAny = 0.25;
constexpr int kLockTries = 50;  // tries to let another thread have the lock
constexpr std::int64_t kMeasureNs = 10'000 * live::kMillisecondNs;  // for one of them
constexpr std::int64_t kFirstNs = 3'000 * live::kMillisecondNs;     // for the first, as all ranks have joined
constexpr const char* kGivenUp = "a sum was given up, here or on another rank";

// The median.
double seconds_of(live::SwitchClient& client, const live::SwitchVector& vector, int times,
                  std::int64_t deadline_ns = kMeasureNs) {
  std::vector<std::int64_t> took;
  for (int i = 0; i < times; ++i) {
    const std::int64_t begin_ns = live::now_ns();
    client.all_reduce(vector, begin_ns + deadline_ns);
    took.push_back(live::now_ns() - begin_ns);
  }
  std::ranges::nth_element(took, took.begin() + times / 2);
  return static_cast<double>(took[static_cast<std::size_t>(times) / 2]) * 1e-9;
}

double seconds_of_sum(live::SwitchClient& client, const std::vector<float>& data, std::vector<float>& sum,
                      wire::AggregationFormat format, int times, std::int64_t deadline_ns = kMeasureNs) {
  sum.resize(data.size());
  const std::size_t size = data.size() * sizeof(float);
  return seconds_of(client,
                    {reinterpret_cast<const std::byte*>(data.data()),
                     reinterpret_cast<std::byte*>(sum.data()), size, size, format},
                    times, deadline_ns);
}

// Of what each rank holds so many are on any rank, where they hold them independently of each other.
double share_of_one(double on_any, int ranks) {
  return 1 - std::pow(1 - on_any, 1.0 / ranks);
}

std::uint64_t sent_again(const protocol::WorkerCounters& counters) {
  return counters.asked_for + counters.named;
}

}  // namespace

std::string SwitchStream::Place::name() const {
  return fmt::format("job {} of {} rank{}", job, size, size == 1 ? "" : "s");
}

SwitchStream::SwitchStream(const SwitchWish& wish, const SwitchWish::At& at, Place place, const Logger& log,
                           std::function<void()> changed)
    : wish_(wish),
      at_(at),
      place_(std::move(place)),
      log_(log),
      changed_(std::move(changed)),
      wake_(live::check(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "creating an event descriptor")) {
  thread_ = std::thread([this] { serve(); });
}

SwitchStream::~SwitchStream() {
  stop();
}

void SwitchStream::halt() {
  {
    const std::lock_guard guard(mutex_);
    stopped_ = true;
    queue_.close();
  }
  pause_.notify_all();
  wake();
}

void SwitchStream::stop() {
  halt();
  if (thread_.joinable()) thread_.join();
}

void SwitchStream::wake() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto n = ::write(wake_.get(), &one, sizeof one);  // full: it is awake already
}

void SwitchStream::check_stopped() const {
  if (stopped_) throw Error(ErrorCode::aborted, "the group has been left");
}

std::unique_lock<std::mutex> SwitchStream::lock() const {
  ++wanting_;
  std::unique_lock guard(mutex_);
  --wanting_;
  return guard;
}

std::pair<std::shared_ptr<protocol::QueuedSum>, SwitchStream::Cost> SwitchStream::line_up() {
  const auto guard = lock();
  return {queue_.line_up(), cost_.value_or(Cost{})};
}

void SwitchStream::go(protocol::QueuedSum& sum, const protocol::SumTask& task) {
  {
    const auto guard = lock();
    queue_.go(sum, task);
  }
  wake();
}

void SwitchStream::pass(protocol::QueuedSum& sum) {
  {
    const auto guard = lock();
    queue_.pass(sum);
  }
  wake();  // the next one's turn may have come
}

// Its thread touches a sum's memory under the lock alone, and only while the sum is in line. That the life
// has ended is known at once, not when the thread gets to it.
void SwitchStream::abandon(protocol::QueuedSum& sum) {
  {
    const auto guard = lock();
    queue_.abandon(sum);
    if (cost_ && !queue_.alive()) end_life(kGivenUp);
  }
  wake();
}

protocol::SumStream::Progress SwitchStream::look(const protocol::QueuedSum& sum) const {
  const auto guard = lock();
  return {sum.state, sum.number};
}

std::optional<SwitchStream::Cost> SwitchStream::cost() const {
  const auto guard = lock();
  return cost_;
}

SwitchStream::Traffic SwitchStream::traffic() const {
  const auto guard = lock();
  return traffic_;
}

std::string SwitchStream::describe(const SwitchWish& wish, const SwitchWish::At& at, std::uint64_t sums) {
  constexpr const char* kSparse[] = {"", ", sparse", ", sparse by pairs", ""};
  return fmt::format("{}, {} sum{}{}{}{}{}{}", at.from, sums, sums == 1 ? "" : "s",
                     wish.floats_as ? fmt::format(", float as {}", wire::name(*wish.floats_as)) : "",
                     wish.exact ? ", exact" : "", wish.ordered ? ", in order" : "",
                     wish.encrypted ? ", encrypted" : "", kSparse[static_cast<std::size_t>(wish.sparse)]);
}

std::string SwitchStream::describe() const {
  const auto guard = lock();
  const std::string sums = describe(wish_, at_, sums_);
  return cost_ ? sums : fmt::format("{}; not now: {}", sums, why_not_);
}

void SwitchStream::serve() {
  Rejoining rejoining(place_.part, live::random_number());
  bool said_group = false;
  while (!stopped_) {
    std::string why;
    bool fault = true;  // of this switch, or of the way to it
    bool joined = false, refused = false;
    try {
      live::SwitchClientOptions options;
      options.address = at_.address;
      options.job = place_.job;
      options.worker = static_cast<std::uint16_t>(place_.rank);
      options.workers = static_cast<std::uint16_t>(place_.size);
      if (!place_.switches.empty())
        live::sit_down(options, static_cast<std::size_t>(place_.rank), place_.switches);
      options.key = wish_.key;
      options.encrypted = wish_.encrypted;
      options.ordered = wish_.ordered;
      options.block = wish_.block;
      options.key_from = "TALWEG_SWITCH_KEY_FILE";
      options.tolerant = wish_.tolerant;
      options.socket = wish_.socket;
      options.sender = wish_.sender;
      options.send = wish_.send;
      options.join_deadline_ns = live::now_ns() + rejoining.window().count() * live::kMillisecondNs;
      options.idle = [this] { check_stopped(); };
      options.say = [&](const std::string& text) {
        if (!std::exchange(said_group, true)) log_.log(LogLevel::warn, "plan", "{}", text);
      };
      live::SwitchClient client(options);
      joined = true;
      rejoining.joined();
      Cost cost = wish_.is_measured() ? measure(client) : tried(client);
      cost.block = client.terms().block;
      cost.lanes = client.terms().threads;
      constexpr std::uint64_t kExact = protocol::LingerTime::kWarmUp;
      cost.exact = static_cast<std::uint32_t>(kExact - std::min<std::uint64_t>(client.sums(), kExact));
      open(client, cost);
      serve(client);
      why = kGivenUp;
      if (!stopped_) {
        // Another rank may have been the first to find that the switch is lost.
        check_silence(client, live::now_ns(), silence_ns_ / 2);
        client.hear();
        client.give_up(ErrorCode::aborted, why);
      }
      fault = false;
    } catch (const Error& e) {
      why = e.what();
      refused = !joined && e.code() == ErrorCode::unsupported;
      // Aborted: another rank has given a sum up, which says nothing of the switch unless it is silent here,
      // too.
      fault = e.code() != ErrorCode::aborted || is_silent(live::now_ns(), silence_ns_ / 2);
    } catch (const std::exception& e) {
      why = e.what();
    }
    lose(why, fault, refused);
    const Rejoining::Pause pause = refused ? rejoining.refused() : rejoining.failed();
    std::unique_lock guard(mutex_);
    pause_.wait_for(guard, pause, [this] { return stopped_.load(); });
  }
}

// That datagrams pass, not the connection alone.
SwitchStream::Cost SwitchStream::tried(live::SwitchClient& client) const {
  const std::vector<float> few(kShortElements, 1.0F);
  std::vector<float> sum;
  seconds_of_sum(client, few, sum, format_of(wish_, DataType::f32).value(), 1, kFirstNs);
  return {};
}

// The mean of all ranks, which the switch itself makes: all have the same bits. Of dense sums: what is zero
// in those to come nobody knows. Where that is looked at before each, of pairs, too; where float travels as
// codes, of what does not, too.
SwitchStream::Cost SwitchStream::measure(live::SwitchClient& client) const {
  // Blocks of zeros might not travel.
  const std::vector<float> few(kShortElements, 1.0F), many(kLongElements, 1.0F);
  std::vector<float> sum;
  const wire::AggregationFormat format = format_of(wish_, DataType::f32).value();
  seconds_of_sum(client, few, sum, format, 1, kFirstNs);
  seconds_of_sum(client, few, sum, format, 1);
  const double of_few = seconds_of_sum(client, few, sum, format, kShortSums);
  const double of_many = seconds_of_sum(client, many, sum, format, kLongSums);
  const auto [of_pairs, pairs] =
      (wish_.sparse == SwitchSparse::chosen || wish_.rows) && format == wire::AggregationFormat::f32
          ? measure_pairs(client)
          : std::pair{0.0, std::size_t{0}};
  const double of_others =
      wish_.floats_as ? seconds_of_sum(client, many, sum, wire::AggregationFormat::f32, kLongSums) : of_many;
  const auto [of_rows, rows] = wish_.rows ? measure_rows(client) : std::pair{0.0, std::size_t{0}};
  const auto ranks = static_cast<float>(place_.size);
  std::array<float, 5> mean{static_cast<float>(of_few) / ranks, static_cast<float>(of_many) / ranks,
                            static_cast<float>(of_pairs) / ranks, static_cast<float>(of_others) / ranks,
                            static_cast<float>(of_rows) / ranks};
  auto* const bytes = reinterpret_cast<std::byte*>(mean.data());
  client.all_reduce({bytes, bytes, sizeof mean, sizeof mean}, live::now_ns() + kMeasureNs);
  // What disturbs the short sums alone does not make bytes cost nothing.
  const auto per_element = [&](double of_long) {
    return std::max(of_long / (4.0 * kLongElements),
                    (of_long - double{mean[0]}) / double{kLongElements - kShortElements});
  };
  const double of_float = per_element(mean[1]);
  Cost cost{.fixed = std::max(0.0, double{mean[0]} - of_float * double{kShortElements})};
  if (wish_.floats_as) {
    cost.per_byte = per_element(mean[3]) / wire::mean_bytes(wire::AggregationFormat::f32);
    cost.per_coded = of_float / wire::mean_bytes(format);
  } else {
    cost.per_byte = of_float / wire::mean_bytes(format);
  }
  // No less than their bytes cost anywhere, whatever disturbed these sums.
  if (rows > 0)
    cost.per_short_row = std::max(cost.per_byte * 4.0 * Cost::kShortRow,
                                  (double{mean[4]} - cost.fixed) / static_cast<double>(rows));
  if (pairs == 0) return cost;
  constexpr double kPairBytes = wire::element_bytes(wire::AggregationFormat::pairs);
  cost.per_pair =
      std::max(cost.per_byte * kPairBytes, (double{mean[2]} - cost.fixed) / static_cast<double>(pairs));
  return cost;
}

// Of some that ranks hold independently of each other; and how many are on any of them, which all ranks find.
std::pair<double, std::size_t> SwitchStream::measure_pairs(live::SwitchClient& client) const {
  const double own = share_of_one(kPairs, place_.size);
  Random random(static_cast<std::uint64_t>(place_.rank));
  std::vector<float> data(kLongElements), sum;
  for (float& x : data) x = random.uniform() < own ? 1.0F : 0.0F;
  const double seconds = seconds_of_sum(client, data, sum, wire::AggregationFormat::pairs, kLongSums);
  return {seconds, sum.size() - static_cast<std::size_t>(std::ranges::count(sum, 0.0F))};
}

// The same of short rows: of short blocks, what is said of each and of their datagrams is most.
std::pair<double, std::size_t> SwitchStream::measure_rows(live::SwitchClient& client) const {
  const double own = share_of_one(kRowsOnAny, place_.size);
  Random random(static_cast<std::uint64_t>(place_.rank));
  std::vector<std::int64_t> keys;
  for (std::size_t key = 0; key < kRows; ++key)
    if (random.uniform() < own) keys.push_back(static_cast<std::int64_t>(key));
  const std::vector<float> values(keys.size() * Cost::kShortRow, 1.0F);
  protocol::RowSums sums;
  const protocol::Rows rows{keys,
                            reinterpret_cast<const std::byte*>(values.data()),
                            kRows,
                            Cost::kShortRow,
                            static_cast<std::uint64_t>(own * kRows) * static_cast<std::uint64_t>(place_.size),
                            &sums};
  live::SwitchVector vector;
  vector.format = format_of(wish_, DataType::f32).value();
  vector.rows = &rows;
  const double seconds = seconds_of(client, vector, kLongSums);
  // To put them in order is a part of each.
  const std::int64_t began_ns = live::now_ns();
  const auto summed = sums.finish();
  const double to_finish = static_cast<double>(live::now_ns() - began_ns) * 1e-9;
  if (!summed) throw_error(ErrorCode::corrupted, "the switch has sent parts of rows that are no whole ones");
  return {seconds + to_finish, summed->keys.size()};
}

double SwitchStream::Cost::seconds(std::size_t elements, wire::AggregationFormat format,
                                   protocol::SumForm form, const protocol::Held& held) const {
  const auto of_all = static_cast<double>(elements);
  const double of_bytes = wire::is_coded(format) && per_coded > 0 ? per_coded : per_byte;
  const double of_dense = of_bytes * of_all * wire::mean_bytes(format);
  switch (form) {
    case protocol::SumForm::dense:
      return fixed + of_dense;
    case protocol::SumForm::blocks:
      return fixed + of_dense * held.blocks;
    case protocol::SumForm::pairs:
      break;
  }
  if (per_pair == 0 || format != wire::AggregationFormat::f32) return std::numeric_limits<double>::infinity();
  return fixed + per_pair * of_all * held.elements;
}

// Whole blocks of float have been measured, and short ones: others take what lies between, by their bytes.
double SwitchStream::Cost::seconds_of_rows(double rows, std::size_t width, wire::AggregationFormat format,
                                           protocol::SumForm form) const {
  if (form == protocol::SumForm::pairs)
    return seconds(1, format, form, {0, rows * static_cast<double>(width)});
  const auto bytes = [](std::size_t elements, wire::AggregationFormat as) {
    return static_cast<double>(wire::data_bytes(as, elements));
  };
  const protocol::RowUnits units = protocol::units_of(width, format, std::max<std::size_t>(block, 1));
  const double whole = bytes(block, wire::AggregationFormat::f32);
  const double least = std::min(whole, bytes(kShortRow, wire::AggregationFormat::f32));
  const double of_least = std::min(per_short_row, per_byte * whole);
  const double more = std::max(0.0, bytes(units.length, format) - least);
  const double per_unit =
      more == 0 ? of_least : of_least + (per_byte * whole - of_least) * more / (whole - least);
  return fixed + rows * static_cast<double>(units.per_row) * per_unit;
}

void SwitchStream::open(const live::SwitchClient& client, const Cost& cost) {
  {
    const std::lock_guard guard(mutex_);
    if (stopped_) return;
    queue_.open(client.terms().life);
    cost_ = cost;
    said_ = false;
    ++lives_;
  }
  const std::string shortage = client.shortage();
  if (place_.speaks_for_host && !shortage.empty() && !std::exchange(said_shortage_, true))
    log_.log(LogLevel::warn, "plan", "{} by the switch at {}: {}", what(), to_string(at_.address), shortage);
  log_.log(LogLevel::info, "plan", "the switch at {} makes {} for {}{}", to_string(at_.address), what(),
           place_.name(),
           wish_.is_measured()
               ? fmt::format(": {:.3g} ms and {:.3g} ms per MB{}", cost.fixed * 1e3, cost.per_byte * 1e9,
                             cost.per_coded > 0 ? fmt::format(", of codes {:.3g}", cost.per_coded * 1e9) : "")
               : "");
}

void SwitchStream::end_life(const std::string& why) {
  if (cost_) ++lives_;
  cost_.reset();
  why_not_ = why;
}

void SwitchStream::lose(const std::string& why, bool fault, bool refused) {
  bool news = false;
  {
    const std::lock_guard guard(mutex_);
    queue_.close();
    running_ = nullptr;
    past_ = traffic_;
    end_life(why);
    news = !said_;
    said_ = said_ || fault;  // what others have found is said again when it is found here
  }
  if (stopped_) return;
  if (news)
    // Of a switch that has no place for parts of a group there may be as many lines as parts.
    log_.log(place_.rank == 0 && fault && !(refused && place_.part) ? LogLevel::warn : LogLevel::info, "plan",
             "no {} by the switch at {}, the group does without until it is there: {}{}", what(),
             to_string(at_.address), why,
             why.find(place_.job) == std::string::npos ? fmt::format(" ({})", place_.name()) : "");
  changed_();
}

void SwitchStream::serve(live::SwitchClient& client) {
  for (;;) {
    bool ended = false;
    // A mutex is not fair, and who waits for this one holds up the group.
    for (int i = 0; i < kLockTries && wanting_ > 0; ++i) std::this_thread::yield();
    {
      const std::lock_guard guard(mutex_);
      if (stopped_ || !queue_.alive()) return;
      ended = step(client);
      if (!queue_.alive()) return;  // memory does not hold what the next sum needs: nobody would wake us
    }
    if (ended)
      changed_();
    else
      wait(client);
  }
}

// True: a sum is done.
bool SwitchStream::step(live::SwitchClient& client) {
  const std::int64_t now = live::now_ns();
  if (running_ == nullptr && (running_ = queue_.next()) != nullptr) {
    const protocol::SumTask& task = running_->task;
    const bool pairs = task.form == protocol::SumForm::pairs;
    live::SwitchVector vector{task.in,
                              task.out,
                              task.bytes,
                              task.bytes,
                              pairs ? wire::AggregationFormat::pairs : task.format,
                              task.form != protocol::SumForm::dense,
                              task.tolerance,
                              task.rows,
                              &running_->kept};
    if (wish_.tolerant) vector.tolerance.losses = &running_->losses;
    again_ = sent_again(client.counters());
    client.start(vector, now + kNoDeadlineNs);
    results_ = client.counters().results;
    progress_ns_ = now;
    silence_ns_ = task.silence_ns > 0 ? std::min(task.silence_ns, kSilenceNs) : kSilenceNs;
  }
  const bool done = client.step(now);
  traffic_ = past_;
  traffic_ += {client.sent().bytes, client.received().bytes + client.received_by_group().bytes};
  if (running_ == nullptr) return false;
  if (done) {
    protocol::SumLosses& losses = running_->losses;
    losses.again = sent_again(client.counters()) - again_;
    if (client.sums() <= protocol::LingerTime::kWarmUp) losses.allowance = 0;
    queue_.done(*std::exchange(running_, nullptr));
    ++sums_;
    return true;
  }
  // A switch that has said when it will be less busy is not silent before.
  if (const std::uint64_t results = client.counters().results;
      results != results_ || now < client.busy_until_ns()) {
    results_ = results;
    progress_ns_ = now;
  } else {
    check_silence(client, now, silence_ns_);
  }
  return false;
}

bool SwitchStream::is_silent(std::int64_t now, std::int64_t most_ns) const {
  return running_ != nullptr && now - progress_ns_ > most_ns;
}

void SwitchStream::check_silence(const live::SwitchClient& client, std::int64_t now,
                                 std::int64_t most_ns) const {
  if (!is_silent(now, most_ns) || now < client.busy_until_ns()) return;
  const std::string why = client.why_silent(progress_ns_);
  throw_error(ErrorCode::timeout, "nothing has come of a sum for {:.2g} s{}{}",
              static_cast<double>(now - progress_ns_) * 1e-9, why.empty() ? "" : ": ", why);
}

void SwitchStream::wait(const live::SwitchClient& client) const {
  const auto [data, line, group] = client.sockets();
  pollfd polled[] = {{data, POLLIN, 0}, {line, POLLIN, 0}, {wake_.get(), POLLIN, 0}, {group, POLLIN, 0}};
  timespec left{0, 0};
  const bool sums = running_ != nullptr;
  if (sums) {
    const std::int64_t until_ns = std::min(client.next_time_ns(), progress_ns_ + silence_ns_);
    const std::int64_t ns = std::clamp<std::int64_t>(until_ns - live::now_ns(), 0, silence_ns_);
    left = {ns / 1'000'000'000, ns % 1'000'000'000};
  }
  ::ppoll(polled, 4, sums ? &left : nullptr, nullptr);
  std::uint64_t woken = 0;
  [[maybe_unused]] const auto n = ::read(wake_.get(), &woken, sizeof woken);
}

}  // namespace talweg::group
