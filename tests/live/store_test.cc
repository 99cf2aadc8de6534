#include "talweg/store.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "live/system.h"
#include "own_address.h"
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

TEST(Store, AFileThatIsSomethingElseIsRefusedAndLeftAsItWas) {
  const std::filesystem::path folder = "/tmp/talweg-store-of-" + std::to_string(::getpid());
  std::filesystem::create_directory(folder);
  const auto refused = [](const std::string& path, const char* why) {
    try {
      file_store(path)->set("key", "value");
      ADD_FAILURE() << path << " was taken";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(e.what()).find(why), std::string::npos) << e.what();
    }
  };
  const std::string precious = folder / "precious";
  std::ofstream(precious) << "a line that is none of a store's\n";
  refused(precious, "something else is in it");
  std::filesystem::create_symlink(precious, folder / "link");
  refused(folder / "link", "a symbolic link");
  std::filesystem::create_symlink(folder / "new", folder / "leads nowhere");
  refused(folder / "leads nowhere", "a symbolic link");
  EXPECT_FALSE(std::filesystem::exists(folder / "new"));
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  refused(folder / "pipe", "something else");
  std::ifstream file(precious);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "a line that is none of a store's\n");
  std::filesystem::remove_all(folder);
}

constexpr int kPort = 25456;

std::shared_ptr<Store> serve(const std::string& key) {
  return tcp_store(own_address(), kPort, true, in_ms(5000), key);
}

TEST(Store, ATcpServerIsFoundByItsHostsName) {
  std::shared_ptr<Store> a;
  int port = kPort;
  while (!a) {  // on the first port that is free
    try {
      a = tcp_store("127.0.0.1", ++port, true, in_ms(5000), "the key of this job");
    } catch (const Error& e) {
      ASSERT_LT(port, kPort + 100) << e.what();
    }
  }
  exchange(*a, *tcp_store("localhost", port, false, in_ms(5000), "the key of this job"));
}

TEST(Store, ATcpServerCarriesKeysBetweenItsClients) {
  for (const char* key : {"", "the key of this job"}) {
    auto a = serve(key);
    const auto b = tcp_store(own_address(), kPort, false, in_ms(5000), key);
    exchange(*a, *b);
    a.reset();
    try {
      b->get("key", in_ms(2000));
      FAIL();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::peer_failed);
      EXPECT_NE(std::string(e.what()).find("no other one has come in its place"), std::string::npos)
          << e.what();
    }
  }
}

// Two groups meet at one address, one after the other: who is quick finds the first one's store still there.
TEST(Store, WhoFindsATcpServerJustClosingWaitsForTheNextOne) {
  for (int round = 0; round < 20; ++round) {
    auto first = serve("the key of this job");
    const auto early = tcp_store(own_address(), kPort, false, in_ms(20'000), "the key of this job");
    early->set("early", "is here");
    std::string answer;
    std::thread asker([&, &client = *early] { answer = client.get("second", in_ms(20'000)); });
    if (round % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    first.reset();
    const auto second = tcp_store(own_address(), kPort, true, in_ms(5000), "the key of this job");
    EXPECT_EQ(second->get("early", in_ms(10'000)), "is here");
    second->set("second", "is there");
    asker.join();
    EXPECT_EQ(answer, "is there");
  }
}

TEST(Store, ATcpServerRefusesOtherKeys) {
  const auto a = serve("the key of this job");
  for (const char* key : {"", "the key of another job"}) {
    try {
      tcp_store(own_address(), kPort, false, in_ms(5000), key);
      FAIL();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(e.what()).find("the same job key"), std::string::npos) << e.what();
    }
  }
  // The server counts after it has answered; who is served later knows that it has.
  a->set("key", "value");
  EXPECT_EQ(a->get("key", in_ms(1000)), "value");
  EXPECT_EQ(a->refused_connections(), 2U);
}

TEST(Store, ATcpServerListensBeyondLoopbackOnlyWithAKey) {
  try {
    tcp_store("192.0.2.1", 25456, true, in_ms(100));
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(e.what()).find("TALWEG_KEY_FILE"), std::string::npos) << e.what();
  }
}

TEST(Store, StrangersDoNotDisturbATcpServer) {
  const auto a = serve("the key of this job");
  const auto b = tcp_store(own_address(), kPort, false, in_ms(5000), "the key of this job");
  std::vector<live::FileDescriptor> crowd;
  for (int i = 0; i < 600; ++i) {
    crowd.push_back(live::connect_tcp({own_address(), kPort}, live::now_ns() + 5'000'000'000));
    const std::string noise(static_cast<std::size_t>(i % 300), static_cast<char>(i));
    ::send(crowd.back().get(), noise.data(), noise.size(), MSG_NOSIGNAL);
  }
  exchange(*a, *b);
  const auto late = tcp_store(own_address(), kPort, false, in_ms(5000), "the key of this job");
  EXPECT_EQ(late->get("empty", in_ms(1000)), "");
  EXPECT_GT(a->refused_connections(), 300U);
}

TEST(Store, OnlyAFileOfItsOwnerAloneKeepsSecrets) {
  char name[] = "/tmp/talweg-store-XXXXXX";
  ::close(::mkstemp(name));
  EXPECT_TRUE(file_store(name)->confidential());
  ASSERT_EQ(::chmod(name, 0640), 0);
  EXPECT_FALSE(file_store(name)->confidential());
  std::filesystem::remove(name);
}

}  // namespace
}  // namespace talweg
