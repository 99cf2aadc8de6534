#include "live/join/interface.h"

#include <gmock/gmock.h>

#include "talweg/error.h"

namespace talweg::live {
namespace {

const std::vector<Interface> kThree = {{"lo", "127.0.0.1", true},
                                       {"docker0", "172.17.0.1", false},
                                       {"eth0", "10.0.0.5", false},
                                       {"eth1", "10.1.0.5", false}};

TEST(Interface, ByDefaultNeitherLoopbackNorDocker) {
  EXPECT_EQ(choose_interface("", kThree).name, "eth0");
}

TEST(Interface, FallsBackToLoopbackWhereThereIsNothingElse) {
  EXPECT_EQ(choose_interface("", {kThree[0], kThree[1]}).name, "lo");
}

TEST(Interface, UnderstandsNcclsGrammar) {
  EXPECT_EQ(choose_interface("eth", kThree).name, "eth0");
  EXPECT_EQ(choose_interface("ib,eth1", kThree).name, "eth1");
  EXPECT_EQ(choose_interface("=eth1", kThree).name, "eth1");
  EXPECT_EQ(choose_interface("^lo,docker,eth0", kThree).name, "eth1");
  EXPECT_EQ(choose_interface("^=lo,docker0", kThree).name, "eth0");
  EXPECT_EQ(choose_interface("^docker,br-", kThree).name, "eth0") << "loopback is no way to other hosts";
  EXPECT_EQ(choose_interface("^docker,eth", kThree).name, "lo") << "where nothing else is left";
}

TEST(Interface, FailsLoudlyWhenNothingMatches) {
  try {
    choose_interface("=eth", kThree);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(e.what(), ::testing::HasSubstr("\"=eth\""));
    EXPECT_THAT(e.what(), ::testing::HasSubstr("eth1 (10.1.0.5)"));
  }
}

TEST(Interface, FindsTheWayToLoopback) {
  EXPECT_EQ(address_toward("127.0.0.1"), "127.0.0.1");
}

}  // namespace
}  // namespace talweg::live
