#include "live/loop/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cstdint>

namespace talweg::live {

namespace {
constexpr std::uint64_t kWakeKey = ~0ULL;
constexpr int kEventsAtOnce = 64;
}  // namespace

EventLoop::EventLoop()
    : epoll_(check(::epoll_create1(EPOLL_CLOEXEC), "creating an epoll instance")),
      wake_(check(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "creating an eventfd")) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeKey;
  check(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event), "watching an eventfd");
}

EventLoop::Handle EventLoop::watch(int fd, Watcher& who, std::size_t which) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = slots_.size();
  check(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event), "watching a connection");
  slots_.push_back({fd, &who, which, false});
  return slots_.size() - 1;
}

void EventLoop::want_write(Handle handle, bool wanted) {
  Slot& slot = slots_[handle];
  if (slot.write == wanted || slot.who == nullptr) return;
  slot.write = wanted;
  epoll_event event{};
  event.events = EPOLLIN | (wanted ? EPOLLOUT : 0U);
  event.data.u64 = handle;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, slot.fd, &event);
}

void EventLoop::unwatch(Handle handle) {
  Slot& slot = slots_[handle];
  if (slot.who == nullptr) return;
  slot.who = nullptr;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, slot.fd, nullptr);
}

bool EventLoop::poll() {
  std::array<epoll_event, kEventsAtOnce> events;
  const int n = ::epoll_wait(epoll_.get(), events.data(), kEventsAtOnce, 0);
  bool any = false;
  for (int i = 0; i < n; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    if (event.data.u64 == kWakeKey) {
      std::uint64_t count = 0;
      [[maybe_unused]] const auto r = ::read(wake_.get(), &count, sizeof count);
      continue;
    }
    const Slot slot = slots_[event.data.u64];
    if (slot.who == nullptr) continue;
    const bool readable = (event.events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0;
    any = slot.who->on_ready(slot.which, readable, (event.events & EPOLLOUT) != 0) || any;
  }
  return any;
}

void EventLoop::sleep(int ms) {
  epoll_event event;
  ::epoll_wait(epoll_.get(), &event, 1, ms);
}

void EventLoop::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto n = ::write(wake_.get(), &one, sizeof one);
}

}  // namespace talweg::live
