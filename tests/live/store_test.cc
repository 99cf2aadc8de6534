#include "talweg/store.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "talweg/error.h"

namespace talweg {
namespace {

using Clock = std::chrono::steady_clock;

Clock::time_point in_ms(int ms) {
  return Clock::now() + std::chrono::milliseconds(ms);
}

void exchange(Store& a, Store& b) {
  const std::string binary("zero\0byte\nand newline", 21);
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    a.set("key", binary);
  });
  EXPECT_EQ(b.get("key", in_ms(10'000)), binary) << "waits until it is set";
  later.join();
  EXPECT_EQ(a.get("key", in_ms(1000)), binary);
  a.set("empty", "");
  EXPECT_EQ(b.get("empty", in_ms(1000)), "");
  try {
    b.get("never", in_ms(30));
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::timeout);
    EXPECT_NE(std::string(e.what()).find("never"), std::string::npos);
  }
  EXPECT_EQ(b.get("key", in_ms(1000)), binary) << "usable after a timeout";
}

TEST(Store, AFileCarriesKeysBetweenItsReaders) {
  char name[] = "/tmp/talweg-store-XXXXXX";
  ::close(::mkstemp(name));
  const auto a = file_store(name);
  const auto b = file_store(name);
  exchange(*a, *b);
  std::filesystem::remove(name);
}

TEST(Store, ATcpServerCarriesKeysBetweenItsClients) {
  std::shared_ptr<Store> a;
  int port = 25456;
  while (!a && port < 25556) {
    try {
      a = tcp_store("127.0.0.1", port, true, in_ms(5000));
    } catch (const Error&) {
      ++port;
    }
  }
  ASSERT_TRUE(a);
  const auto b = tcp_store("localhost", port, false, in_ms(5000));
  exchange(*a, *b);
  a.reset();
  try {
    b->get("key", in_ms(2000));
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::peer_failed);
  }
}

}  // namespace
}  // namespace talweg
